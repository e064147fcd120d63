package link_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/hack/faults/link"
)

// echo answers each line, and counts the lines that it got.
func echo() (addr string, lines *atomic.Int64) {
	GinkgoHelper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	lines = new(atomic.Int64)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				scanner := bufio.NewScanner(connection)
				for scanner.Scan() {
					lines.Add(1)
					fmt.Fprintf(connection, "%s\n", scanner.Text())
				}
			}()
		}
	}()
	return listener.Addr().String(), lines
}

var _ = Describe("A link", func() {
	var l *link.Link
	var served *atomic.Int64

	BeforeEach(func() {
		var addr string
		addr, served = echo()
		var err error
		l, err = link.Listen(addr)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(l.Close)
	})

	dial := func() (net.Conn, error) {
		connection, err := net.DialTimeout("tcp4", l.Addr(), 200*time.Millisecond)
		if err == nil {
			DeferCleanup(func() { _ = connection.Close() })
		}
		return connection, err
	}
	connect := func() net.Conn {
		GinkgoHelper()
		connection, err := dial()
		Expect(err).NotTo(HaveOccurred())
		return connection
	}
	ask := func(connection net.Conn, within time.Duration) (string, error) {
		Expect(connection.SetDeadline(time.Now().Add(within))).To(Succeed())
		fmt.Fprintln(connection, "hello")
		return bufio.NewReader(connection).ReadString('\n')
	}
	set := func(fault link.Fault) {
		GinkgoHelper()
		Expect(l.Set(fault)).To(Succeed())
	}
	works := func(connection net.Conn) {
		GinkgoHelper()
		Expect(ask(connection, 5*time.Second)).To(Equal("hello\n"))
	}

	It("forwards, and again after each fault", func() {
		for _, fault := range []link.Fault{link.Refuse, link.BlackholeSYN, link.BlackholeReplies, link.DelayReplies, link.ResetReplies} {
			works(connect())
			set(fault)
			set(link.None)
		}
		works(connect())
	})

	It("resets and refuses", func() {
		open := connect()
		works(open)
		set(link.Refuse)
		_, err := ask(open, 5*time.Second)
		Expect(err).To(HaveOccurred())
		Expect(os.IsTimeout(err)).To(BeFalse(), "%v", err)
		_, err = dial()
		Expect(err).To(MatchError(syscall.ECONNREFUSED))
	})

	It("leaves attempts to connect unanswered, and what is open in silence", func() {
		open := connect()
		works(open)
		set(link.BlackholeSYN)
		_, err := dial()
		Expect(os.IsTimeout(err)).To(BeTrue(), "%v", err)
		_, err = ask(open, 100*time.Millisecond)
		Expect(os.IsTimeout(err)).To(BeTrue(), "%v", err)
		Expect(served.Load()).To(BeEquivalentTo(1))
		set(link.None)
		works(open)
	})

	It("lets the server have what it holds the answer of", func() {
		open := connect()
		set(link.BlackholeReplies)
		_, err := ask(open, 100*time.Millisecond)
		Expect(os.IsTimeout(err)).To(BeTrue(), "%v", err)
		Eventually(served.Load).Should(BeEquivalentTo(1))
		connect()
		set(link.None)
		works(open)
	})

	It("delays answers", func() {
		open := connect()
		set(link.DelayReplies)
		asked := time.Now()
		works(open)
		Expect(time.Since(asked)).To(BeNumerically(">=", link.Delay))
	})

	It("resets a connection in the middle of an answer", func() {
		open := connect()
		set(link.ResetReplies)
		for range 9 {
			works(open)
		}
		part, err := ask(open, 5*time.Second)
		Expect(err).To(HaveOccurred())
		Expect(strings.HasPrefix("hello\n", part)).To(BeTrue(), "%q", part)
		works(connect())
	})
})
