package bucketconfig_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

func bundled(name string, sidecars int, change ...func(*bucketconfig.Record)) bucketconfig.Bundled {
	record := validRecord()
	record.Name = name
	for _, c := range change {
		c(record)
	}
	return bucketconfig.Bundled{Name: name, Record: record, Share: bucketconfig.Share{Sidecars: sidecars}}
}

// bulky makes a record of so many values that don't compress.
func bulky(values int) func(*bucketconfig.Record) {
	return func(r *bucketconfig.Record) {
		random := rand.New(rand.NewPCG(1, uint64(values)))
		match := bucketconfig.NamedMatch{Name: "X-Key", Type: "In"}
		for range values {
			match.Values = append(match.Values, fmt.Sprintf("%016x%016x%016x%016x", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64()))
		}
		r.Limits[0].Matches = []bucketconfig.Match{{Headers: []bucketconfig.NamedMatch{match}}}
	}
}

var _ = Describe("Bundles", func() {
	It("come back as they were, in the order of their names", func() {
		data, omitted, err := bucketconfig.EncodeBundle([]bucketconfig.Bundled{bundled("b", 2), bundled("a", 3)})
		Expect(err).NotTo(HaveOccurred())
		Expect(omitted).To(BeEmpty())
		Expect(bucketconfig.DecodeBundle(data)).To(HaveExactElements(bundled("a", 3), bundled("b", 2)))
		again, _, err := bucketconfig.EncodeBundle([]bucketconfig.Bundled{bundled("a", 3), bundled("b", 2)})
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(data), "or a Secret would be written for nothing")
	})

	It("leave out what can't be encoded, and the largest of what exceeds the bound", func() {
		policies := []bucketconfig.Bundled{bundled("small", 1), bundled("bad", 1, func(r *bucketconfig.Record) { r.Kind = "" })}
		for i := range 60 {
			policies = append(policies, bundled(fmt.Sprintf("large-%02d", i), 1, bulky(196+i)))
		}
		data, omitted, err := bucketconfig.EncodeBundle(policies)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(data)).To(BeNumerically("<=", bucketconfig.MaxBundleSize))
		kept, err := bucketconfig.DecodeBundle(data)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(kept)+len(omitted)).To(Equal(len(policies)-1), "a record that can't be encoded is told of elsewhere")
		Expect(kept[len(kept)-1].Name).To(Equal("small"))
		for i, name := range omitted {
			Expect(name).To(Equal(fmt.Sprintf("large-%02d", 60-len(omitted)+i)))
		}
		Expect(omitted).NotTo(BeEmpty())
		Expect(len(data)).To(BeNumerically(">", bucketconfig.MaxBundleSize-(64<<10)), "no more than has to is left out")
	})

	It("decode from the bytes that the first release of a version wrote, and keep the spelling of their fields", func() {
		policies := []bucketconfig.Bundled{bundled("a", 3), bundled("b", 1)}
		data, _, err := bucketconfig.EncodeBundle(policies)
		Expect(err).NotTo(HaveOccurred())
		written := golden("bundle-v1.json", data)
		Expect(bucketconfig.DecodeBundle(written)).To(Equal(policies))
		var shape struct {
			Bundle   int
			Policies []map[string]any
		}
		Expect(json.Unmarshal(written, &shape)).To(Succeed())
		Expect(shape.Bundle).To(Equal(1))
		Expect(shape.Policies).To(HaveEach(And(HaveLen(3), HaveKey("name"), HaveKey("record"), HaveKeyWithValue("share", HaveKey("sidecars")))))
	})

	It("tell of a record that can't be used, and hold the others", func() {
		data, _, err := bucketconfig.EncodeBundle([]bucketconfig.Bundled{bundled("a", 1), bundled("b", 1)})
		Expect(err).NotTo(HaveOccurred())
		var raw map[string]any
		Expect(json.Unmarshal(data, &raw)).To(Succeed())
		first := raw["policies"].([]any)[0].(map[string]any)
		first["record"], first["share"] = "AAAA", map[string]any{"sidecars": -1}
		data, err = json.Marshal(raw)
		Expect(err).NotTo(HaveOccurred())
		read, err := bucketconfig.DecodeBundle(data)
		Expect(err).NotTo(HaveOccurred())
		Expect(read).To(HaveLen(2))
		Expect(read[0].Record).To(BeNil())
		Expect(read[0].Err).To(HaveOccurred())
		Expect(read[0].Share).To(Equal(bucketconfig.Share{}))
		Expect(read[1]).To(Equal(bundled("b", 1)))
	})

	It("are refused where a policy's record is another's", func() {
		data, _, err := bucketconfig.EncodeBundle([]bucketconfig.Bundled{{Name: "a", Record: validRecord(), Share: bucketconfig.Share{Sidecars: 1}}})
		Expect(err).NotTo(HaveOccurred())
		read, err := bucketconfig.DecodeBundle(data)
		Expect(err).NotTo(HaveOccurred())
		Expect(read[0].Err).To(MatchError(ContainSubstring(`the record of policy "a" names "checkout"`)))
	})

	It("tell of a record without a share, of which each sidecar would take all", func() {
		data, _, err := bucketconfig.EncodeBundle([]bucketconfig.Bundled{bundled("a", 1)})
		Expect(err).NotTo(HaveOccurred())
		read, err := bucketconfig.DecodeBundle(bytes.Replace(data, []byte(`"sidecars":1`), []byte(`"sidecars":0`), 1))
		Expect(err).NotTo(HaveOccurred())
		Expect(read[0].Record).To(BeNil())
		Expect(read[0].Err).To(MatchError(ContainSubstring(`policy "a"`)))
	})

	DescribeTable("are refused", func(data, message string) {
		_, err := bucketconfig.DecodeBundle([]byte(data))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("when there is nothing", "", "end of JSON"),
		Entry("when they are no JSON", "{", "end of JSON"),
		Entry("of another version", `{"bundle":2,"policies":[]}`, "version 2 is unknown"),
		Entry("beyond their size", string(make([]byte, bucketconfig.MaxBundleSize+1)), "exceed"),
	)
})

// FuzzDecodeBundle holds that any bytes are read or refused, and that what is read can be written again.
func FuzzDecodeBundle(f *testing.F) {
	data, _, err := bucketconfig.EncodeBundle([]bucketconfig.Bundled{{Name: "checkout", Record: validRecord(), Share: bucketconfig.Share{Sidecars: 2}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := bucketconfig.DecodeBundle(data)
		if err != nil {
			return
		}
		var good []bucketconfig.Bundled
		for _, policy := range read {
			if policy.Record != nil {
				good = append(good, policy)
			}
		}
		again, omitted, err := bucketconfig.EncodeBundle(good)
		if err != nil {
			t.Fatal(err)
		}
		reread, err := bucketconfig.DecodeBundle(again)
		if err != nil || len(reread)+len(omitted) != len(good) {
			t.Fatalf("%d of %d policies can be written again, %d are too large: %v", len(reread), len(good), len(omitted), err)
		}
	})
}
