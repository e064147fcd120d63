package main_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
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
const maxSize = 20_000_000

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

	Describe("built for production", Ordered, func() {
		var binary string
		BeforeAll(func(ctx SpecContext) {
			binary = filepath.Join(GinkgoT().TempDir(), "portero-sidecar")
			run(ctx, []string{"CGO_ENABLED=0"}, "build", "-ldflags", "-s -w", "-o", binary, "./cmd/sidecar")
		})

		It("is small", func() {
			stat, err := os.Stat(binary)
			Expect(err).NotTo(HaveOccurred())
			Expect(stat.Size()).To(BeNumerically("<=", maxSize))
		})

		It("teaches its commands, and refuses what is none", func(ctx SpecContext) {
			Expect(exec.CommandContext(ctx, binary, "--help").Output()).To(ContainSubstring("redirect"))
			Expect(exec.CommandContext(ctx, binary, "version").Output()).To(BeEquivalentTo("dev\n"))
			out, err := exec.CommandContext(ctx, binary, "dance").CombinedOutput()
			Expect(err).To(HaveField("ExitCode()", 1))
			Expect(string(out)).To(ContainSubstring(`unknown command "dance"`))
			out, err = exec.CommandContext(ctx, binary).CombinedOutput()
			Expect(err).To(HaveField("ExitCode()", 1))
			Expect(string(out)).To(ContainSubstring("PORTERO_NAMESPACE is not set"))
		})

		It("redirects, serves, drains when told and ends by SIGTERM", func(ctx SpecContext) {
			// The ports are fixed: the spec has a network namespace of its own.
			namespace := fmt.Sprintf("portero-%d-%x", os.Getpid(), rand.Uint32())
			ip := func(args ...string) {
				GinkgoHelper()
				out, err := exec.CommandContext(context.WithoutCancel(ctx), "ip", args...).CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "ip: %s", out)
			}
			ip("netns", "add", namespace)
			DeferCleanup(ip, "netns", "del", namespace)
			ip("-n", namespace, "link", "set", "lo", "up")
			inside := func(args ...string) *exec.Cmd {
				command := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", namespace, binary}, args...)...)
				command.Env = []string{
					"PORTERO_NAMESPACE=shop", "PORTERO_POD_NAME=checkout", "PORTERO_POD_UID=1", "PORTERO_POD_IP=127.0.0.1",
					"PORTERO_PORTS=8080:14080:14180", "PORTERO_HOST_IPS=10.0.0.1",
				}
				return command
			}
			out, err := inside("drain").CombinedOutput()
			Expect(err).To(HaveField("ExitCode()", 1))
			Expect(string(out)).To(ContainSubstring("does it run in this pod?"))
			out, err = inside("redirect").CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
			Expect(string(out)).To(ContainSubstring("inbound traffic is redirected"))

			log := gbytes.NewBuffer()
			serving := inside()
			serving.Stderr = log
			Expect(serving.Start()).To(Succeed())
			Eventually(log, "10s").Should(gbytes.Say("no Redis credentials"))
			Eventually(func() ([]byte, error) { return inside("drain").CombinedOutput() }, "10s").Should(BeEquivalentTo("draining\n"))
			Eventually(log).Should(gbytes.Say("draining"))
			Expect(serving.Process.Signal(syscall.SIGTERM)).To(Succeed())
			Expect(serving.Wait()).To(Succeed())
			Expect(log).To(gbytes.Say("shutting down"))
		})
	})
})
