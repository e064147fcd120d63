package bucketconfig_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

var update = flag.Bool("update-golden", false, "write the golden files instead of comparing with them")

func golden(name string, got []byte) []byte {
	GinkgoHelper()
	path := filepath.Join("testdata", name)
	if *update {
		Expect(os.WriteFile(path, got, 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred(), "make golden files with -update-golden")
	return want
}

func deflated(text []byte) []byte {
	GinkgoHelper()
	var buffer bytes.Buffer
	writer, err := flate.NewWriter(&buffer, flate.BestCompression)
	Expect(err).NotTo(HaveOccurred())
	_, err = writer.Write(text)
	Expect(err).NotTo(HaveOccurred())
	Expect(writer.Close()).To(Succeed())
	return buffer.Bytes()
}

var _ = Describe("Records on the wire", func() {
	It("come back as they were", func() {
		data, err := bucketconfig.Encode(validRecord())
		Expect(err).NotTo(HaveOccurred())
		Expect(bucketconfig.Decode(data)).To(Equal(validRecord()))
	})

	It("are the same bytes each time, so that equal ones are not published again", func() {
		first, err := bucketconfig.Encode(validRecord())
		Expect(err).NotTo(HaveOccurred())
		for range 20 {
			Expect(bucketconfig.Encode(validRecord())).To(Equal(first))
		}
	})

	DescribeTable("decode from the bytes that the first release of a version wrote, and keep the spelling of its fields",
		func(version int, written, read func() *bucketconfig.Record) {
			text, err := json.MarshalIndent(written(), "", "  ")
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).To(Equal(string(golden(fmt.Sprintf("record-v%d.json", version), text))))
			data, err := bucketconfig.Encode(written())
			Expect(err).NotTo(HaveOccurred())
			Expect(bucketconfig.Decode(golden(fmt.Sprintf("record-v%d.bin", version), data))).To(Equal(read()))
		},
		Entry("1, as what it means in this one", 1, func() *bucketconfig.Record {
			older, ok := bucketconfig.Schema1(simpleRecord())
			Expect(ok).To(BeTrue())
			return older
		}, simpleRecord),
		Entry("2", 2, validRecord, validRecord),
	)

	It("may hold fields that a later release appended", func() {
		text, err := json.Marshal(validRecord())
		Expect(err).NotTo(HaveOccurred())
		text = append([]byte(`{"appended":[1,{}],`), text[1:]...)
		Expect(bucketconfig.Decode(deflated(text))).To(Equal(validRecord()))
	})

	It("are refused with the version's number when the schema is unknown, whatever else they hold", func() {
		_, err := bucketconfig.Decode(deflated([]byte(`{"schema":3,"limits":"of another shape"}`)))
		var version *bucketconfig.VersionError
		Expect(errors.As(err, &version)).To(BeTrue(), "%v", err)
		Expect(version.Version).To(Equal(3))
	})

	DescribeTable("are refused when damaged",
		func(data func() []byte, message string) {
			_, err := bucketconfig.Decode(data())
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("empty", func() []byte { return nil }, "unexpected EOF"),
		Entry("not compressed", func() []byte { return []byte(`{"schema":1}`) }, "flate"),
		Entry("cut off", func() []byte {
			data, err := bucketconfig.Encode(validRecord())
			Expect(err).NotTo(HaveOccurred())
			return data[:len(data)-3]
		}, "unexpected EOF"),
		Entry("followed by something", func() []byte {
			data, err := bucketconfig.Encode(validRecord())
			Expect(err).NotTo(HaveOccurred())
			return append(data, 'x')
		}, "1 bytes after the end"),
		Entry("without a schema", func() []byte { return deflated([]byte(`{}`)) }, "schema: missing"),
		Entry("not JSON", func() []byte { return deflated([]byte(`schema=1`)) }, "invalid character"),
		Entry("of a version that has no word for what it states", func() []byte {
			text, err := json.Marshal(validRecord())
			Expect(err).NotTo(HaveOccurred())
			return deflated(bytes.Replace(text, []byte(`"schema":2`), []byte(`"schema":1`), 1))
		}, "schema: version 1 can't express"),
		Entry("out of bounds", func() []byte { return deflated([]byte(`{"schema":1,"kind":"RateLimitPolicy"}`)) }, "name: 0 bytes"),
		Entry("longer than allowed", func() []byte { return make([]byte, bucketconfig.MaxRecordSize+1) }, "65537 bytes exceed 65536"),
		Entry("a bomb", func() []byte {
			return deflated(bytes.Repeat([]byte(" "), bucketconfig.MaxRecordJSON+1))
		}, "more than 524288 bytes when decompressed"),
	)

	It("are refused before they are written when they exceed a bound", func() {
		record := validRecord()
		record.Limits[0].Cost = 101
		_, err := bucketconfig.Encode(record)
		Expect(err).To(MatchError("encode record: limits[0]: cost: 101 is outside 1..100"))
	})
})

var _ = Describe("Digests", func() {
	It("tell values apart and name equal ones alike", func() {
		Expect(bucketconfig.Digest([]byte("a"))).To(Equal(bucketconfig.Digest([]byte("a"))))
		Expect(bucketconfig.Digest([]byte("a"))).NotTo(Equal(bucketconfig.Digest([]byte("b"))))
		Expect(bucketconfig.Digest(nil)).To(Equal("47DEQpj8HBSa-_TImW-5JA"), "the SHA-256 of nothing, as it is published")
	})
})

var _ = Describe("Shares on the wire", func() {
	It("come back as they were", func() {
		data, err := bucketconfig.EncodeShare(bucketconfig.Share{Sidecars: 3})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).To(Equal(`{"sidecars":3}`))
		Expect(bucketconfig.DecodeShare(data)).To(Equal(bucketconfig.Share{Sidecars: 3}))
	})

	DescribeTable("are refused when a sidecar could not divide by them",
		func(text, message string) {
			_, err := bucketconfig.DecodeShare([]byte(text))
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("zero", `{"sidecars":0}`, "0 is outside 1..1000000"),
		Entry("missing", `{}`, "0 is outside"),
		Entry("negative", `{"sidecars":-1}`, "-1 is outside"),
		Entry("huge", `{"sidecars":1000001}`, "1000001 is outside"),
		Entry("a fraction", `{"sidecars":1.5}`, "cannot unmarshal"),
		Entry("long", `{"sidecars":1,"x":"`+strings.Repeat("x", 1024)+`"}`, "exceed 1024"),
	)

	It("are refused before they are written", func() {
		_, err := bucketconfig.EncodeShare(bucketconfig.Share{})
		Expect(err).To(MatchError("encode share: sidecars: 0 is outside 1..1000000"))
	})
})
