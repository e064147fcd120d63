package redirect_test

import (
	"net/netip"
	"syscall"

	"github.com/google/nftables"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/sidecar/internal/environment"
	"github.com/portero-dev/portero/sidecar/internal/redirect"
)

const (
	appPort, listenPort, shadowPort = 8080, 14080, 14180
	openPort                        = 9090 // of the app, not protected
)

var _ = Describe("Apply", func() {
	var net network

	apply := func() {
		GinkgoHelper()
		Expect(in(net.pod, func() error {
			sources, err := redirect.DefaultGateways()
			if err != nil {
				return err
			}
			return redirect.Apply(redirect.Options{
				Ports:        []environment.Port{{App: appPort, Listen: listenPort, Shadow: shadowPort}},
				ProbeSources: sources,
			})
		})).To(Succeed())
	}

	BeforeEach(func() {
		net = newNetwork()
		serve(net.pod, appPort, "app")
		serve(net.pod, listenPort, "sidecar")
		serve(net.pod, openPort, "open")
	})

	DescribeTable("decides by port, source and interface",
		func(ctx SpecContext, inPod bool, from, to string, port int, want string) {
			apply()
			namespace := net.node
			if inPod {
				namespace = net.pod
			}
			heard, err := ask(ctx, namespace, from, to, uint16(port))
			if want == "refused" {
				Expect(err).To(MatchError(syscall.ECONNREFUSED))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(heard).To(Equal(want))
		},
		Entry("a peer to the app's port reaches the sidecar", false, peer4, pod4, appPort, "sidecar"),
		Entry("a peer to the app's port reaches the sidecar, IPv6", false, peer6, pod6, appPort, "sidecar"),
		Entry("the gateway to the app's port reaches the sidecar", false, gateway4, pod4, appPort, "sidecar"),
		Entry("the gateway to the shadow port reaches the app", false, gateway4, pod4, shadowPort, "app"),
		Entry("the gateway to the shadow port reaches the app, IPv6", false, gateway6, pod6, shadowPort, "app"),
		Entry("a peer to the shadow port is refused", false, peer4, pod4, shadowPort, "refused"),
		Entry("a peer to the shadow port is refused, IPv6", false, peer6, pod6, shadowPort, "refused"),
		Entry("a peer to another port is untouched", false, peer4, pod4, openPort, "open"),
		Entry("the pod itself to its loopback reaches the app", true, "", "127.0.0.1", appPort, "app"),
		Entry("the pod itself to its loopback reaches the app, IPv6", true, "", "::1", appPort, "app"),
		Entry("the sidecar to the pod's IP reaches the app", true, "", pod4, appPort, "app"),
		Entry("the sidecar to the pod's IP reaches the app, IPv6", true, "", pod6, appPort, "app"),
	)

	It("leaves one table when run twice, and other tables alone", func() {
		Expect(in(net.pod, func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			theirs := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "theirs"})
			conn.AddChain(&nftables.Chain{Name: "kept", Table: theirs})
			conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: redirect.TableName})
			return conn.Flush()
		})).To(Succeed())

		apply()
		once := tables(net)
		rulesOnce := rules(net)
		apply()

		Expect(once).To(ConsistOf("inet theirs", "ip portero", "inet portero"))
		Expect(tables(net)).To(ConsistOf(once))
		Expect(rulesOnce).To(Equal(3), "the port, and the shadow port from two gateways")
		Expect(rules(net)).To(Equal(rulesOnce))
		Expect(chains(net)).To(ConsistOf("theirs/kept", "portero/prerouting"))
	})

	It("lets named addresses of the node probe", func(ctx SpecContext) {
		Expect(in(net.pod, func() error {
			return redirect.Apply(redirect.Options{
				Ports:        []environment.Port{{App: appPort, Listen: listenPort, Shadow: shadowPort}},
				ProbeSources: []netip.Addr{netip.MustParseAddr(peer4)},
			})
		})).To(Succeed())
		Expect(ask(ctx, net.node, peer4, pod4, shadowPort)).To(Equal("app"))
		_, err := ask(ctx, net.node, gateway4, pod4, shadowPort)
		Expect(err).To(MatchError(syscall.ECONNREFUSED))
	})

	It("names the capability when it is missing", func() {
		err := in(net.pod, func() error {
			if err := dropCapabilities(); err != nil {
				return err
			}
			return redirect.Apply(redirect.Options{Ports: []environment.Port{{App: appPort, Listen: listenPort, Shadow: shadowPort}}})
		})
		Expect(err).To(MatchError(syscall.EPERM))
		Expect(err).To(MatchError(ContainSubstring("NET_ADMIN")))
	})
})

var _ = Describe("DefaultGateways", func() {
	It("finds the gateways of both families", func() {
		net := newNetwork()
		var gateways []netip.Addr
		Expect(in(net.pod, func() (err error) {
			gateways, err = redirect.DefaultGateways()
			return err
		})).To(Succeed())
		Expect(gateways).To(ConsistOf(netip.MustParseAddr(gateway4), netip.MustParseAddr(gateway6)))
	})

	It("finds none where there is no default route", func() {
		net := newNetwork()
		ip("-n", net.pod, "route", "del", "default")
		ip("-n", net.pod, "-6", "route", "del", "default")
		Expect(in(net.pod, func() error {
			gateways, err := redirect.DefaultGateways()
			Expect(gateways).To(BeEmpty())
			return err
		})).To(Succeed())
	})
})
