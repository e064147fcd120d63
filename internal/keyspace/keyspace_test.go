package keyspace_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/keyspace"
)

const instance = keyspace.Instance("1f2e3d4c")

var _ = Describe("Keys", func() {
	// These spellings are the wire format: sidecars of older releases know them.
	DescribeTable("are spelled as every release spells them",
		func(got, want string) { Expect(got).To(Equal(want)) },
		Entry("config", instance.Config("shop"), "portero:v1:1f2e3d4c:{ns:shop}:cfg"),
		Entry("heartbeats", instance.Heartbeats("shop"), "portero:v1:1f2e3d4c:{ns:shop}:hb"),
		Entry("namespaces", instance.Namespaces(), "portero:v1:1f2e3d4c:namespaces"),
		Entry("channel", instance.ConfigChannel("shop"), "portero:v1:1f2e3d4c:cfg:shop"),
		Entry("bucket", instance.Bucket("shop", "dGFn"), "portero:v1:1f2e3d4c:b:shop:{dGFn}"),
		Entry("bucket pattern", instance.BucketPattern("shop"), "portero:v1:1f2e3d4c:b:shop:*"),
		Entry("user", instance.User("shop"), "portero:1f2e3d4c:shop"),
		Entry("library", keyspace.FunctionLibrary, "portero_v1"),
	)

	It("put a namespace's config and heartbeats into one slot", func() {
		Expect(hashTag(instance.Config("shop"))).To(Equal(hashTag(instance.Heartbeats("shop"))))
		Expect(hashTag(instance.Config("shop"))).NotTo(Equal(hashTag(instance.Config("shop-x"))))
	})

	It("spread buckets by their tag alone", func() {
		Expect(hashTag(instance.Bucket("shop", "dGFn"))).To(Equal("dGFn"))
	})

	It("fence a namespace from those whose names begin alike", func() {
		pattern := strings.TrimSuffix(instance.BucketPattern("shop"), "*")
		Expect(instance.Bucket("shop", "t")).To(HavePrefix(pattern))
		for _, other := range []string{"shop-x", "shopx", "sho", "my-shop"} {
			Expect(instance.Bucket(other, "t")).NotTo(HavePrefix(pattern))
		}
	})
})

var _ = Describe("Users", func() {
	It("tell their namespace to their own instance only", func() {
		namespace, ours := instance.UserNamespace(instance.User("shop"))
		Expect(ours).To(BeTrue())
		Expect(namespace).To(Equal("shop"))
		for _, user := range []string{"default", "portero:1f2e3d4c:", "portero:other:shop", "portero:1f2e3d4c-b:shop"} {
			_, ours := instance.UserNamespace(user)
			Expect(ours).To(BeFalse(), user)
		}
	})

	It("differ where dashes would make two names one", func() {
		Expect(keyspace.Instance("a").User("b-c")).NotTo(Equal(keyspace.Instance("a-b").User("c")))
	})
})

var _ = Describe("ParseInstance", func() {
	DescribeTable("accepts names that can stand in a key",
		func(name string) { Expect(keyspace.ParseInstance(name)).To(Equal(keyspace.Instance(name))) },
		Entry("hex", "1f2e3d4c"), Entry("one letter", "a"), Entry("dashes", "eu-west-1"), Entry("longest", strings.Repeat("a", 63)),
	)

	DescribeTable("refuses others and names the bad value",
		func(name string) {
			_, err := keyspace.ParseInstance(name)
			Expect(err).To(MatchError(ContainSubstring("%q", name)))
			Expect(err).To(MatchError(ContainSubstring("must be 1 to 63")))
		},
		Entry("empty", ""), Entry("a separator", "a:b"), Entry("a brace", "a{b"), Entry("a pattern", "a*"), Entry("upper case", "A"),
		Entry("leading dash", "-a"), Entry("trailing dash", "a-"), Entry("long", strings.Repeat("a", 64)), Entry("newline", "a\n"),
	)
})

var _ = Describe("Tag", func() {
	It("is the MAC that every release computes", func() {
		tagger := keyspace.NewTagger([]byte("secret"))
		for range 3 {
			Expect(tagger.Tag("RateLimitPolicy", "checkout", "X-Api-Key", "alice")).To(Equal("6VHSvFL-3mgI3tPAhy7x9g"))
			Expect(tagger.Tag(strings.Repeat("long", 10_000))).To(HaveLen(22), "what came between leaves nothing behind")
		}
	})

	It("depends on the secret", func() {
		Expect(keyspace.NewTagger([]byte("a")).Tag("x")).NotTo(Equal(keyspace.NewTagger([]byte("b")).Tag("x")))
	})

	It("can't be steered by separators in a client's value", func() {
		tagger := keyspace.NewTagger([]byte("secret"))
		tags := map[string][]string{}
		for _, parts := range [][]string{
			nil, {""}, {"", ""}, {"a", "b"}, {"ab"}, {"ab", ""}, {"", "ab"}, {"a,b"}, {"a\x00b"}, {"b", "a"},
			{"a", "\x00\x00\x00\x00\x00\x00\x00\x01b"}, {"a\x00\x00\x00\x00\x00\x00\x00\x01b"},
		} {
			tag := tagger.Tag(parts...)
			Expect(tags).NotTo(HaveKey(tag), "%q", parts)
			tags[tag] = parts
		}
	})
})

// hashTag is the part of a key that Redis hashes, by the rule of the cluster specification: between the first opening
// brace and the first closing one after it, when that is not empty.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !found || !closed || tag == "" {
		return key
	}
	return tag
}
