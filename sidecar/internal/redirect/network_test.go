package redirect_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// A pod and its node: two network namespaces of the spec's own, joined by a veth pair. No address leaves them.
const (
	pod4, gateway4, peer4 = "10.77.0.2", "10.77.0.1", "10.77.0.9"
	pod6, gateway6, peer6 = "fd77::2", "fd77::1", "fd77::9"
)

type network struct{ pod, node string }

func newNetwork() network {
	GinkgoHelper()
	if os.Geteuid() != 0 {
		Fail("these specs make network namespaces: run them as root")
	}
	id := fmt.Sprintf("portero-%d-%x", os.Getpid(), rand.Uint32())
	n := network{pod: id + "-pod", node: id + "-node"}
	for _, name := range []string{n.pod, n.node} {
		ip("netns", "add", name)
		DeferCleanup(ip, "netns", "del", name)
		ip("-n", name, "link", "set", "lo", "up")
	}
	ip("link", "add", "eth0", "netns", n.pod, "type", "veth", "peer", "name", "veth0", "netns", n.node)
	for _, address := range []string{pod4 + "/24", pod6 + "/64"} {
		ip("-n", n.pod, "addr", "add", address, "dev", "eth0", "nodad")
	}
	for _, address := range []string{gateway4 + "/24", peer4 + "/24", gateway6 + "/64", peer6 + "/64"} {
		ip("-n", n.node, "addr", "add", address, "dev", "veth0", "nodad")
	}
	ip("-n", n.pod, "link", "set", "eth0", "up")
	ip("-n", n.node, "link", "set", "veth0", "up")
	ip("-n", n.pod, "route", "add", "default", "via", gateway4)
	ip("-n", n.pod, "-6", "route", "add", "default", "via", gateway6)
	return n
}

func ip(args ...string) {
	GinkgoHelper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "ip %s: %s", strings.Join(args, " "), out)
}

// in runs f on a thread inside the network namespace. Sockets that f makes stay there.
func in(name string, f func() error) error {
	done := make(chan error)
	go func() {
		// The thread is not unlocked: it ends with this goroutine, and its namespace with it.
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open("/var/run/netns/" + name)
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter %s: %w", name, err)
			}
			return f()
		}()
	}()
	return <-done
}

// serve answers each connection to the port, on all addresses of the namespace, with a word.
func serve(namespace string, port int, word string) {
	GinkgoHelper()
	var listener net.Listener
	Expect(in(namespace, func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		return err
	})).To(Succeed())
	DeferCleanup(listener.Close)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, word)
			_ = conn.Close()
		}
	}()
}

// ask connects from an address to an address and returns the word it hears.
func ask(ctx context.Context, namespace, from, to string, port uint16) (string, error) {
	var heard []byte
	err := in(namespace, func() error {
		dialer := net.Dialer{Timeout: 2 * time.Second}
		if from != "" {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
		}
		conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(netip.MustParseAddr(to), port).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		heard, err = io.ReadAll(conn)
		return err
	})
	return string(heard), err
}
