package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestSidecar(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cmd/sidecar")
}

// banned are what the sidecar must not link, with the reason.
var banned = map[string]string{
	"k8s.io/":                            "a proxy in every pod needs no Kubernetes client: size and memory",
	"sigs.k8s.io/":                       "a proxy in every pod needs no Kubernetes client: size and memory",
	"github.com/portero-dev/portero/api": "it would bring k8s.io, and tie old sidecars to the newest API",
	"github.com/portero-dev/portero/controllers": "the data plane knows nothing of the control plane",
	"github.com/onsi/":                           "test only",
}

// maxSize bounds the stripped binary: it is pulled to every node.
const maxSize = 14_000_000

// run runs the go command in the module's root.
func run(ctx context.Context, env []string, args ...string) string {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = filepath.Join("..", "..")
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "go %s: %s", strings.Join(args, " "), out)
	return string(out)
}

var _ = Describe("The sidecar's binary", func() {
	It("links nothing that it must not", func(ctx SpecContext) {
		deps := strings.Fields(run(ctx, nil, "list", "-deps", "./cmd/sidecar"))
		Expect(deps).To(ContainElement("github.com/portero-dev/portero/sidecar"))
		for prefix, reason := range banned {
			for _, dep := range deps {
				Expect(dep).NotTo(HavePrefix(prefix), reason)
			}
		}
	})

	It("is small, and knows its commands", func(ctx SpecContext) {
		binary := filepath.Join(GinkgoT().TempDir(), "portero-sidecar")
		run(ctx, []string{"CGO_ENABLED=0"}, "build", "-ldflags", "-s -w", "-o", binary, "./cmd/sidecar")
		stat, err := os.Stat(binary)
		Expect(err).NotTo(HaveOccurred())
		Expect(stat.Size()).To(BeNumerically("<=", maxSize))

		Expect(exec.CommandContext(ctx, binary, "--help").Output()).To(ContainSubstring("redirect"))
		out, err := exec.CommandContext(ctx, binary, "dance").CombinedOutput()
		Expect(err).To(HaveField("ExitCode()", 1))
		Expect(string(out)).To(ContainSubstring(`unknown command "dance"`))
	})
})
