package link

import (
	"net"
	"sync"
	"time"
)

const (
	// pendingAnswers bounds what a connection holds: beyond it the server's own buffers fill.
	pendingAnswers = 256
	chunk          = 32 << 10
)

// connection is a client joined to the server.
type connection struct {
	link           *Link
	client, server net.Conn
	answers        chan answer
	ended          bool // guarded by link.mu
}

// answer is what the server sent at a time.
type answer struct {
	at    time.Time
	bytes []byte
}

// forward returns when the connection has ended on both sides.
func (c *connection) forward() {
	var both sync.WaitGroup
	both.Go(c.requests)
	both.Go(c.listenToServer)
	both.Go(c.reply)
	both.Wait()
}

func (c *connection) requests() {
	buffer := make([]byte, chunk)
	for {
		n, err := c.client.Read(buffer)
		if _, open := c.link.passes(c, BlackholeSYN); !open || err != nil {
			c.end()
			return
		}
		if _, err := c.server.Write(buffer[:n]); err != nil {
			c.end()
			return
		}
	}
}

func (c *connection) listenToServer() {
	defer close(c.answers)
	for {
		buffer := make([]byte, chunk)
		n, err := c.server.Read(buffer)
		if n > 0 {
			c.answers <- answer{at: time.Now(), bytes: buffer[:n]}
		}
		if err != nil {
			return
		}
	}
}

// reply hands answers on in their order, each when the link's fault lets it.
func (c *connection) reply() {
	defer c.drain()
	n := 0
	for answer := range c.answers {
		fault, open := c.link.passes(c, BlackholeSYN, BlackholeReplies)
		if !open {
			return
		}
		n++
		switch {
		case fault == DelayReplies:
			<-time.After(time.Until(answer.at.Add(Delay)))
		case fault == ResetReplies && n%resetEvery == 0:
			_, _ = c.client.Write(answer.bytes[:len(answer.bytes)/2])
			c.end()
			return
		}
		if _, err := c.client.Write(answer.bytes); err != nil {
			return
		}
	}
}

// drain lets the reader of the server end.
func (c *connection) drain() {
	c.end()
	for range c.answers {
	}
}

func (c *connection) end() {
	c.link.mu.Lock()
	c.ended = true
	c.link.healed.Broadcast()
	c.link.mu.Unlock()
	c.reset()
}

func (c *connection) reset() {
	reset(c.client)
	reset(c.server)
}

// reset closes a connection by RST, so that its other end is not left to believe in an orderly end.
func reset(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}
