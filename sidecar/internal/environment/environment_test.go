package environment_test

import (
	"log/slog"
	"maps"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/sidecar/internal/environment"
)

func injected(changes map[string]string) func(string) string {
	env := map[string]string{
		sidecarenv.Namespace: "shop",
		sidecarenv.PodName:   "checkout-1",
		sidecarenv.PodUID:    "0b8a1d5e",
		sidecarenv.PodIP:     "10.1.2.3",
		sidecarenv.Ports:     "8080:14080:14180",
	}
	maps.Copy(env, changes)
	return func(name string) string { return env[name] }
}

var _ = Describe("Read", func() {
	It("reads what the injector writes, with defaults for the rest", func() {
		Expect(environment.Read(injected(nil))).To(Equal(environment.Environment{
			Namespace:    "shop",
			PodName:      "checkout-1",
			PodUID:       "0b8a1d5e",
			PodIP:        netip.MustParseAddr("10.1.2.3"),
			Ports:        []environment.Port{{App: 8080, Listen: 14080, Shadow: 14180}},
			UpstreamHost: "10.1.2.3",
			LogLevel:     slog.LevelInfo,
			DrainTimeout: environment.DefaultDrainTimeout,
		}))
	})

	It("reads what a user tuned", func() {
		read, err := environment.Read(injected(map[string]string{
			sidecarenv.Ports:        "8080:14080:14180:http, 9090:14081:14181",
			sidecarenv.Workload:     "deployment/checkout",
			sidecarenv.PodIP:        "fd00::7",
			sidecarenv.HostIPs:      "10.0.0.1,fd00::1",
			sidecarenv.UpstreamHost: "127.0.0.1",
			sidecarenv.LogLevel:     "debug",
			sidecarenv.DrainTimeout: "25s",
		}))
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Ports).To(Equal([]environment.Port{
			{App: 8080, Listen: 14080, Shadow: 14180, Name: "http"}, {App: 9090, Listen: 14081, Shadow: 14181},
		}))
		Expect(read.Workload).To(Equal("deployment/checkout"))
		Expect(read.HostIPs).To(Equal([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}))
		Expect(read.UpstreamHost).To(Equal("127.0.0.1"))
		Expect(read.LogLevel).To(Equal(slog.LevelDebug))
		Expect(read.DrainTimeout).To(Equal(25 * time.Second))
	})

	DescribeTable("refuses what it can't use, naming the variable and the value",
		func(variable, value string, says ...string) {
			_, err := environment.Read(injected(map[string]string{variable: value}))
			Expect(err).To(MatchError(ContainSubstring(variable)))
			for _, s := range says {
				Expect(err).To(MatchError(ContainSubstring(s)))
			}
		},
		Entry("no namespace", sidecarenv.Namespace, ""),
		Entry("no pod name", sidecarenv.PodName, ""),
		Entry("no pod UID", sidecarenv.PodUID, ""),
		Entry("a pod IP that is none", sidecarenv.PodIP, "checkout", `"checkout"`),
		Entry("no ports", sidecarenv.Ports, ""),
		Entry("a port without listener", sidecarenv.Ports, "8080", "APP:LISTEN:SHADOW"),
		Entry("a port with too much", sidecarenv.Ports, "8080:14080:14180:http:1", "APP:LISTEN:SHADOW"),
		Entry("a port beyond 65535", sidecarenv.Ports, "8080:14080:70000", `"70000"`),
		Entry("port 0", sidecarenv.Ports, "0:14080:14180", `"0"`),
		Entry("a port that stands twice", sidecarenv.Ports, "8080:14080:14180,8081:14080:14181", "14080"),
		Entry("a listener on the app's port", sidecarenv.Ports, "8080:8080:14180", "8080"),
		Entry("the admin port", sidecarenv.Ports, "14900:14080:14180", "14900"),
		Entry("too many ports", sidecarenv.Ports, "1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3,1:2:3", "at most 16"),
		Entry("a host IP that is none", sidecarenv.HostIPs, "10.0.0.1,node", `"node"`),
		Entry("an upstream host by name", sidecarenv.UpstreamHost, "localhost", `"localhost"`),
		Entry("an unknown log level", sidecarenv.LogLevel, "loud", `"loud"`),
		Entry("a drain timeout without unit", sidecarenv.DrainTimeout, "10", `"10"`),
		Entry("a negative drain timeout", sidecarenv.DrainTimeout, "-1s", `"-1s"`),
	)
})
