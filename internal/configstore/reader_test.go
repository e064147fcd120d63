package configstore_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/configstore"
)

var _ = Describe("Reading", func() {
	It("tells lost from empty", func(ctx SpecContext) {
		namespace := newNamespace()
		reader := newReader(namespace)
		_, err := reader.Update(ctx, nil)
		Expect(err).To(MatchError(configstore.ErrLost))
		_, err = reader.Revision(ctx)
		Expect(err).To(MatchError(configstore.ErrLost))
		published := publish(ctx, newWriter(1), namespace)
		Expect(read(ctx, reader, nil).Policies).To(BeEmpty())
		Expect(reader.Revision(ctx)).To(Equal(published.Revision))
	})

	DescribeTable("takes a hash without its signs for lost, never for a deletion",
		func(ctx SpecContext, field, value string) {
			namespace := newNamespace()
			publish(ctx, newWriter(1), namespace, policy("a", 1))
			key := instance.Config(namespace)
			Expect(cluster.Client().HSet(ctx, key, field, value).Err()).To(Succeed())
			_, err := newReader(namespace).Update(ctx, nil)
			Expect(err).To(MatchError(configstore.ErrLost))
		},
		Entry("no revision", "$revision", ""),
		Entry("no digests", "$digests", ""),
		Entry("spoilt digests", "$digests", "{"),
		Entry("digests of nothing", "$digests", "null"),
		Entry("other digests", "$digests", `{"1/a":7}`),
	)

	It("gives the same snapshot back when the revision did not change", func(ctx SpecContext) {
		namespace := newNamespace()
		publish(ctx, newWriter(1), namespace, policy("a", 1))
		reader := newReader(namespace)
		first := read(ctx, reader, nil)
		Expect(read(ctx, reader, first)).To(BeIdenticalTo(first))
	})

	It("fetches what changed and nothing else", func(ctx SpecContext) {
		namespace := newNamespace()
		var policies []configstore.Policy
		for i := range 50 {
			policies = append(policies, policy(fmt.Sprintf("p-%d", i), 1))
		}
		publish(ctx, newWriter(1), namespace, policies...)
		watched := &watchedCommands{}
		client := newClient()
		reader := configstore.NewReader(client, instance, namespace)
		first := read(ctx, reader, nil)
		policies[7] = policy("p-7", 2)
		publish(ctx, newWriter(1), namespace, policies...)
		client.AddHook(watched)
		second := read(ctx, reader, first)
		Expect(watched.fields()).To(ConsistOf("$revision", "$digests", "$revision", "$digests", "2/p-7"))
		Expect(second.Policies).To(HaveLen(50))
		Expect(second.Policies["p-7"].Record.Generation).To(BeEquivalentTo(2))
		Expect(second.Policies["p-8"].Record).To(BeIdenticalTo(first.Policies["p-8"].Record))
		Expect(first.Policies["p-7"].Record.Generation).To(BeEquivalentTo(1), "the old snapshot stays as it was")
	})

	DescribeTable("keeps the last good record and says why when the stored one can't be used",
		func(ctx SpecContext, spoil func(ctx SpecContext, key string), message string) {
			namespace, writer := newNamespace(), newWriter(1)
			publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
			reader := newReader(namespace)
			good := read(ctx, reader, nil)
			spoil(ctx, instance.Config(namespace))
			Expect(cluster.Client().HSet(ctx, instance.Config(namespace), "$revision", "1").Err()).To(Succeed())

			bad := read(ctx, reader, good)
			Expect(bad.Policies["a"].Err).To(MatchError(ContainSubstring(message)))
			Expect(bad.Policies["a"].Record).To(BeIdenticalTo(good.Policies["a"].Record))
			Expect(bad.Policies["b"].Err).NotTo(HaveOccurred())
			fresh := read(ctx, newReader(namespace), nil)
			Expect(fresh.Policies["a"].Record).To(BeNil())
			Expect(fresh.Policies["a"].Err).To(MatchError(ContainSubstring(message)))

			publish(ctx, writer, namespace, policy("a", 1), policy("b", 1))
			repaired := read(ctx, reader, bad)
			Expect(repaired.Policies["a"].Err).NotTo(HaveOccurred())
			Expect(read(ctx, reader, fresh).Policies["a"].Record).To(Equal(policy("a", 1).Record))
		},
		Entry("other content than published", func(ctx SpecContext, key string) {
			setField(ctx, key, "2/a", "changed", "digest-of-something")
		}, "published with"),
		Entry("content that is no record", func(ctx SpecContext, key string) {
			setField(ctx, key, "2/a", "changed", bucketconfig.Digest([]byte("changed")))
		}, "decode record"),
		Entry("the record of another policy", func(ctx SpecContext, key string) {
			value := cluster.Client().HGet(ctx, key, "2/b").Val()
			setField(ctx, key, "2/a", value, bucketconfig.Digest([]byte(value)))
		}, `it is of policy "b"`),
		Entry("a record of a newer version only", func(ctx SpecContext, key string) {
			digests := cluster.Client().HGet(ctx, key, "$digests").Val()
			digests = strings.NewReplacer(`1\/a`, `3/a`, `2\/a`, `4/a`).Replace(digests)
			Expect(cluster.Client().HSet(ctx, key, "$digests", digests).Err()).To(Succeed())
		}, "schema version 4 is unknown"),
	)

	It("tells a version error from damage", func(ctx SpecContext) {
		namespace := newNamespace()
		publish(ctx, newWriter(1), namespace)
		Expect(cluster.Client().HSet(ctx, instance.Config(namespace), "$digests", `{"4/a":"x","3/a":"y"}`).Err()).To(Succeed())
		var version *bucketconfig.VersionError
		Expect(errors.As(read(ctx, newReader(namespace), nil).Policies["a"].Err, &version)).To(BeTrue())
		Expect(version.Version).To(Equal(4))
	})

	It("takes an older version where the manager writes no other, and the newer one as soon as it does", func(ctx SpecContext) {
		namespace := newNamespace()
		key := instance.Config(namespace)
		publish(ctx, newWriter(1), namespace, policy("a", 1))
		digests := cluster.Client().HGet(ctx, key, "$digests").Val()
		older := regexp.MustCompile(`"2\\?/a":"[^"]*",|,"2\\?/a":"[^"]*"`).ReplaceAllString(digests, "")
		Expect(older).NotTo(Equal(digests))
		Expect(cluster.Client().HDel(ctx, key, "2/a").Err()).To(Succeed())
		Expect(cluster.Client().HSet(ctx, key, "$digests", older).Err()).To(Succeed())

		reader := newReader(namespace)
		first := read(ctx, reader, nil)
		Expect(first.Policies["a"].Err).NotTo(HaveOccurred())
		Expect(first.Policies["a"].Record).To(Equal(policy("a", 1).Record))
		publish(ctx, newWriter(1), namespace, richPolicy("a", 2))
		second := read(ctx, reader, first)
		Expect(second.Policies["a"].Err).NotTo(HaveOccurred())
		Expect(second.Policies["a"].Record).To(Equal(richPolicy("a", 2).Record))
	})

	It("keeps the last good share, at least one, when the stored one can't be used", func(ctx SpecContext) {
		namespace, writer := newNamespace(), newWriter(1)
		publish(ctx, writer, namespace, policy("a", 1))
		reader := newReader(namespace)
		good := read(ctx, reader, nil)
		value := `{"sidecars":0}`
		setField(ctx, instance.Config(namespace), "$share/a", value, bucketconfig.Digest([]byte(value)))
		Expect(cluster.Client().HSet(ctx, instance.Config(namespace), "$revision", "1").Err()).To(Succeed())
		bad := read(ctx, reader, good)
		Expect(bad.Policies["a"].Share.Sidecars).To(Equal(2))
		Expect(bad.Policies["a"].ShareErr).To(MatchError(ContainSubstring("0 is outside")))
		Expect(bad.Policies["a"].Err).NotTo(HaveOccurred(), "the record is sound")
		Expect(read(ctx, newReader(namespace), nil).Policies["a"].Share.Sidecars).To(Equal(1))
		publish(ctx, writer, namespace, policy("a", 1))
		Expect(read(ctx, reader, bad).Policies["a"].ShareErr).NotTo(HaveOccurred())
	})

	It("says that Redis is unreachable", func(ctx SpecContext) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, DialerRetries: 1})
		DeferCleanup(client.Close)
		_, err := configstore.NewReader(client, instance, "shop").Update(ctx, nil)
		Expect(err).To(MatchError(configstore.ErrUnreachable))
	})
})

// setField changes a field and the digest it is listed with, as a hand or a damaged backup may.
func setField(ctx SpecContext, key, field, value, digest string) {
	GinkgoHelper()
	digests := cluster.Client().HGet(ctx, key, "$digests").Val()
	// Later of two equal names wins in JSON as Go reads it.
	digests = strings.TrimSuffix(digests, "}") + fmt.Sprintf(",%q:%q}", field, digest)
	Expect(cluster.Client().HSet(ctx, key, field, value, "$digests", digests).Err()).To(Succeed())
}
