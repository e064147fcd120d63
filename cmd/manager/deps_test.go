package main_test

import (
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestManagerCommand(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Manager command")
}

const module = "github.com/portero-dev/portero/"

// banned are prefixes of packages that the manager must not link, each with the reason.
var banned = map[string]string{
	module + "sidecar":            "the control plane knows nothing of the data plane",
	module + "cmd/sidecar":        "the control plane knows nothing of the data plane",
	module + "internal/testenv":   "test only",
	module + "internal/redistest": "test only",
	"github.com/onsi":             "test only",
	"testing":                     "test only",
}

func list(ctx SpecContext, args ...string) []string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...).Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.Fields(string(out))
}

var _ = Describe("The manager", func() {
	It("links nothing that is banned", func(ctx SpecContext) {
		linked := list(ctx, "-deps", ".")
		Expect(linked).To(ContainElement(module + "controllers"))
		for _, path := range linked {
			for prefix, reason := range banned {
				Expect(path == prefix || strings.HasPrefix(path, prefix+"/")).To(BeFalse(), "%s is linked: %s", path, reason)
			}
		}
	})

	It("is banned from linking packages that exist", func(ctx SpecContext) {
		ours := list(ctx, module+"...")
		for prefix := range banned {
			if strings.HasPrefix(prefix, module) {
				Expect(ours).To(ContainElement(prefix), "the ban of %s bans nothing: remove or correct it", prefix)
			}
		}
	})
})
