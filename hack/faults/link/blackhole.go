package link

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

const (
	// unanswered is when an attempt to connect counts as unanswered; over loopback an answer takes microseconds.
	unanswered = 100 * time.Millisecond
	// maxFillers bounds how many connections are tried to fill a queue of length 0.
	maxFillers = 16
)

// blackhole is a listener that nobody accepts from, with its queue full: Linux then drops each SYN.
type blackhole struct {
	socket  int
	fillers []net.Conn
}

func newBlackhole(addr string) (*blackhole, error) {
	where, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	b := &blackhole{socket: socket}
	if err := b.listen(where); err != nil {
		b.close()
		return nil, err
	}
	for range maxFillers {
		filler, err := net.DialTimeout("tcp4", addr, unanswered)
		if os.IsTimeout(err) {
			return b, nil
		}
		if err != nil {
			b.close()
			return nil, err
		}
		b.fillers = append(b.fillers, filler)
	}
	b.close()
	return nil, fmt.Errorf("%d connections did not fill the queue of %s", maxFillers, addr)
}

func (b *blackhole) listen(where netip.AddrPort) error {
	if err := syscall.SetsockoptInt(b.socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(b.socket, &syscall.SockaddrInet4{Addr: where.Addr().As4(), Port: int(where.Port())}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return os.NewSyscallError("listen", syscall.Listen(b.socket, 0))
}

func (b *blackhole) close() {
	for _, filler := range b.fillers {
		_ = filler.Close()
	}
	_ = syscall.Close(b.socket)
}
