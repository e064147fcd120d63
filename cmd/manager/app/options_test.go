package app_test

import (
	"bytes"
	"flag"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/cmd/manager/app"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value
			}
		}
		return ""
	}
}

var _ = Describe("Options", func() {
	It("have defaults that hold without a flag", func() {
		options, err := app.ParseOptions(nil, environment(), io.Discard)
		Expect(err).NotTo(HaveOccurred())
		Expect(options.SystemNamespace).To(Equal("portero-system"))
		Expect(options.LeaderElection.Enabled).To(BeTrue())
	})

	It("read the namespace and the sidecar's image from the environment, and flags go before it", func() {
		env := environment("POD_NAMESPACE=doors", "SIDECAR_IMAGE=example.org/sidecar:v2")
		options, err := app.ParseOptions(nil, env, io.Discard)
		Expect(err).NotTo(HaveOccurred())
		Expect(options.SystemNamespace).To(Equal("doors"))
		Expect(options.Injection.SidecarImage).To(Equal("example.org/sidecar:v2"))
		options, err = app.ParseOptions([]string{"--sidecar-image=other:v3"}, env, io.Discard)
		Expect(err).NotTo(HaveOccurred())
		Expect(options.Injection.SidecarImage).To(Equal("other:v3"))
	})

	DescribeTable("refuse a value that can't work, naming flag, value and way out",
		func(args string, want ...string) {
			_, err := app.ParseOptions(strings.Fields(args), environment(), io.Discard)
			Expect(err).To(HaveOccurred())
			for _, part := range want {
				Expect(err.Error()).To(ContainSubstring(part))
			}
		},
		Entry(nil, "--instance=Not_OK", "--instance", "Not_OK", "lower-case"),
		Entry(nil, "--sidecar-redis-addrs=redis", "--sidecar-redis-addrs", `"redis"`, "host:port"),
		Entry(nil, "--sidecar-pull-policy=Sometimes", "--sidecar-pull-policy=Sometimes", "IfNotPresent"),
		Entry(nil, "--metrics-bind-address=8080", "--metrics-bind-address=8080", ":8080"),
		Entry(nil, "--health-probe-bind-address=x", "--health-probe-bind-address=x", ":8080"),
		Entry(nil, "--webhook-port=70000", "--webhook-port=70000", "65535"),
		Entry(nil, "--system-namespace=a.b", "--system-namespace=a.b"),
		Entry(nil, "--log-level=loud", "--log-level=loud", "debug, info, error"),
		Entry(nil, "--log-format=xml", "--log-format=xml", "json, text"),
		Entry(nil, "--leader-elect-lease-duration=5s", "--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline"),
		Entry(nil, "--leader-elect-renew-deadline=2s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period"),
		Entry(nil, "--leader-elect-retry-period=0s", "--leader-elect-retry-period=0s", "positive"),
		Entry(nil, "--log-level=loud --webhook-port=-1", "--log-level=loud", "--webhook-port=-1"),
		Entry(nil, "start", `"start"`, "--help"),
	)

	It("refuse an empty image", func() {
		_, err := app.ParseOptions([]string{"--sidecar-image", " "}, environment(), io.Discard)
		Expect(err).To(MatchError(ContainSubstring("--sidecar-image")))
	})

	It("teach: every flag with its meaning, and where Redis is configured", func() {
		var output bytes.Buffer
		_, err := app.ParseOptions([]string{"--help"}, environment(), &output)
		Expect(err).To(MatchError(flag.ErrHelp))
		Expect(output.String()).To(And(ContainSubstring("portero-redis-admin"), ContainSubstring("-instance"), ContainSubstring("kube-system")))
	})
})

var _ = Describe("Main", func() {
	It("ends with 2 and the reason when a flag is wrong, with 0 after help", func(ctx SpecContext) {
		var stdout, stderr bytes.Buffer
		Expect(app.Main(ctx, []string{"--log-level=loud"}, &stdout, &stderr)).To(Equal(2))
		Expect(stderr.String()).To(ContainSubstring("--log-level=loud"))
		Expect(app.Main(ctx, []string{"--help"}, &stdout, &stderr)).To(Equal(0))
		Expect(stdout.String()).To(ContainSubstring("Usage: manager"))
	})
})
