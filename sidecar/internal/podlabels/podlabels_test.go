package podlabels_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/sidecar/internal/podlabels"
)

var _ = Describe("Read", func() {
	It("reads what the downward API writes", func() {
		file := filepath.Join(GinkgoT().TempDir(), "labels")
		Expect(os.WriteFile(file, []byte("app=\"checkout\"\nexample.com/odd=\"\\\"quoted\\\" = \\\\\"\nempty=\"\"\n"), 0o600)).To(Succeed())
		Expect(podlabels.Read(file)).To(Equal(map[string]string{"app": "checkout", "example.com/odd": `"quoted" = \`, "empty": ""}))
	})

	It("finds no labels where there is no file", func() {
		Expect(podlabels.Read("/does/not/exist")).To(BeEmpty())
	})

	DescribeTable("refuses what is no such file",
		func(content string) {
			_, err := podlabels.Parse(content)
			Expect(err).To(MatchError(ContainSubstring("line")))
		},
		Entry("no value", "app"),
		Entry("no quotes", "app=checkout"),
		Entry("an open quote", `app="checkout`),
	)
})

func FuzzParse(f *testing.F) {
	f.Add("app=\"checkout\"\n")
	f.Fuzz(func(t *testing.T, content string) {
		if labels, err := podlabels.Parse(content); err == nil && labels == nil {
			t.Fatal("neither labels nor an error")
		}
	})
}
