package injector_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/injector"
)

// Each testdata/NAME.in.yaml gives the patch in NAME.patch.json. Files that start with "restricted" are injected as in a
// namespace with Pod Security level restricted. `go test ./internal/injector -update` writes the patches.
var _ = Describe("Golden patches", func() {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		panic("no golden files")
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		It("patches "+name+" as before", func() {
			text, err := os.ReadFile(input)
			Expect(err).NotTo(HaveOccurred())
			o := options()
			o.RestrictedNamespace = strings.HasPrefix(name, "restricted")

			got := printPatch(inject(podJSON(string(text)), o).Patch)

			golden := filepath.Join("testdata", name+".patch.json")
			if *update {
				Expect(os.WriteFile(golden, []byte(got), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(golden)
			Expect(err).NotTo(HaveOccurred())
			Expect(got).To(Equal(string(want)))
		})
	}
})

func printPatch(ops []injector.Operation) string {
	GinkgoHelper()
	if ops == nil {
		ops = []injector.Operation{}
	}
	raw, err := json.MarshalIndent(ops, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	return string(raw) + "\n"
}
