package translator_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/translator"
)

// outcome is what an .out.yaml file holds: a record, or why there is none.
type outcome struct {
	Record *bucketconfig.Record `json:"record,omitempty"`
	Error  *failure             `json:"error,omitempty"`
}

type failure struct {
	Reason  v1alpha1.ConditionReason `json:"reason"`
	Field   string                   `json:"field"`
	Message string                   `json:"message"`
}

func outcomeOf(policy *v1alpha1.RateLimitPolicy) outcome {
	GinkgoHelper()
	record, err := translator.Translate(policy)
	if err == nil {
		return outcome{Record: record}
	}
	Expect(record).To(BeNil())
	var typed *translator.Error
	Expect(errors.As(err, &typed)).To(BeTrue(), "%v", err)
	return outcome{Error: &failure{Reason: typed.Reason, Field: typed.Field, Message: err.Error()}}
}

func read(file string) *v1alpha1.RateLimitPolicy {
	GinkgoHelper()
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	policy := &v1alpha1.RateLimitPolicy{}
	Expect(yaml.UnmarshalStrict(text, policy)).To(Succeed(), file)
	return policy
}

var _ = Describe("Translating the policies of testdata", func() {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		panic("no policies in testdata")
	}
	for _, input := range inputs {
		It("gives what stands beside "+filepath.Base(input), func() {
			policy := read(input)
			before := policy.DeepCopy()
			got, err := yaml.Marshal(outcomeOf(policy))
			Expect(err).NotTo(HaveOccurred())
			Expect(policy).To(Equal(before), "the policy was changed")

			output := strings.TrimSuffix(input, ".in.yaml") + ".out.yaml"
			if *update {
				Expect(os.WriteFile(output, got, 0o644)).To(Succeed())
			}
			want, err := os.ReadFile(output)
			Expect(err).NotTo(HaveOccurred(), "write it with: go test ./internal/translator -update")
			Expect(string(got)).To(Equal(string(want)), "if this is meant: go test ./internal/translator -update")
		})
	}

	It("has an input for each output", func() {
		outputs, err := filepath.Glob("testdata/*.out.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(outputs).To(HaveLen(len(inputs)))
	})
})
