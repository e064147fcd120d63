// Package link is a network link to one server that can be made to fail in the ways that networks do: refused and unanswered
// connections, silence, delay, and connections reset in the middle of an answer.
//
// Only the tests of hack/faults import it. It serves what redis-server itself can't show; hung, loading, full, or misconfigured
// servers are real ones.
package link

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Fault is what is wrong with a link.
type Fault int

const (
	// None forwards.
	None Fault = iota
	// Refuse resets what is open and refuses new connections.
	Refuse
	// BlackholeSYN leaves attempts to connect unanswered, and holds what is open, as when a machine is gone.
	BlackholeSYN
	// BlackholeReplies takes connections and requests, which the server gets, and holds the answers.
	BlackholeReplies
	// DelayReplies hands each answer on after Delay.
	DelayReplies
	// ResetReplies resets a connection in the middle of every tenth answer.
	ResetReplies
)

// Delay is how late answers are under DelayReplies.
const Delay = 50 * time.Millisecond

// resetEvery is which answer of a connection is cut under ResetReplies.
const resetEvery = 10

// Link forwards connections to its port. Its methods are safe for concurrent use.
type Link struct {
	listen, upstream string
	port             int

	mu          sync.Mutex
	healed      *sync.Cond // told when the fault changes, or a connection ends
	fault       Fault
	listener    net.Listener
	blackhole   *blackhole
	connections map[*connection]struct{}
	closed      bool
}

// Listen opens a link to upstream on a free port of the loopback interface.
func Listen(upstream string) (*Link, error) {
	l := &Link{upstream: upstream, connections: map[*connection]struct{}{}}
	l.healed = sync.NewCond(&l.mu)
	l.listen = "127.0.0.1:0"
	if err := l.open(); err != nil {
		return nil, err
	}
	addr := l.listener.Addr().(*net.TCPAddr)
	l.listen, l.port = addr.String(), addr.Port
	return l, nil
}

// Addr is where the link listens, as host:port.
func (l *Link) Addr() string { return l.listen }

// Port is the port of Addr.
func (l *Link) Port() int { return l.port }

// Set makes the link fail in that way from now on, and no other; None heals it. What was held is then handed on.
func (l *Link) Set(fault Fault) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("link %s is closed", l.listen)
	}
	l.fault = fault
	l.healed.Broadcast()
	if fault == Refuse {
		l.resetAll()
	}
	if l.blackhole != nil && fault != BlackholeSYN {
		l.blackhole.close()
		l.blackhole = nil
	}
	if fault == Refuse || fault == BlackholeSYN {
		if l.listener != nil {
			_ = l.listener.Close()
			l.listener = nil
		}
		if fault == BlackholeSYN && l.blackhole == nil {
			var err error
			if l.blackhole, err = newBlackhole(l.listen); err != nil {
				return fmt.Errorf("leave connections to %s unanswered: %w", l.listen, err)
			}
		}
		return nil
	}
	if l.listener == nil {
		return l.open()
	}
	return nil
}

// Close ends all connections and frees the port.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.healed.Broadcast()
	l.resetAll()
	if l.listener != nil {
		_ = l.listener.Close()
	}
	if l.blackhole != nil {
		l.blackhole.close()
	}
}

func (l *Link) open() error {
	listener, err := net.Listen("tcp4", l.listen)
	if err != nil {
		return fmt.Errorf("open the link to %s: %w", l.upstream, err)
	}
	l.listener = listener
	go l.accept(listener)
	return nil
}

func (l *Link) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go l.connect(client)
	}
}

// connect joins a client to the server. A server that refuses is seen by the client as a connection that is reset.
func (l *Link) connect(client net.Conn) {
	server, err := net.Dial("tcp4", l.upstream)
	if err != nil {
		reset(client)
		return
	}
	c := &connection{link: l, client: client, server: server, answers: make(chan answer, pendingAnswers)}
	l.mu.Lock()
	if l.closed || l.fault == Refuse {
		l.mu.Unlock()
		c.reset()
		return
	}
	l.connections[c] = struct{}{}
	l.mu.Unlock()
	c.forward()
	l.mu.Lock()
	delete(l.connections, c)
	l.mu.Unlock()
}

func (l *Link) resetAll() {
	for c := range l.connections {
		c.ended = true
		c.reset()
	}
	l.healed.Broadcast()
}

// passes waits until no fault of these is set, or the connection has ended, and answers the fault that is.
func (l *Link) passes(c *connection, holding ...Fault) (Fault, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slices.Contains(holding, l.fault) && !c.ended && !l.closed {
		l.healed.Wait()
	}
	return l.fault, !c.ended && !l.closed
}
