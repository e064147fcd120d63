package flusher_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/tokenbucket"
	"github.com/portero-dev/portero/sidecar/internal/failover"
)

// together is how many verdicts the pipeline carries whose answers are spoilt.
const together = 5

// spoil makes of the answers to the pipeline's calls, all of which Redis has run, what arrives, and how it ends: by an error
// of the connection, or nil where the connection goes on.
type spoil func(answers [][]byte) (arrives []byte, end error)

// spoilt is a hook that joins a client to Redis by connections of which one is spoilt, once: that of the next pipeline of as
// many calls.
type spoilt struct {
	how atomic.Pointer[spoil]
}

// DialHook implements redis.Hook.
func (s *spoilt) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &spoiltConn{Conn: conn, answers: bufio.NewReader(conn), hook: s}, nil
	}
}

// ProcessHook implements redis.Hook.
func (*spoilt) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (*spoilt) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// spoiltConn is used by one goroutine at a time, as go-redis does.
type spoiltConn struct {
	net.Conn
	answers *bufio.Reader
	hook    *spoilt
	how     *spoil        // of the answers that come next
	arrives *bytes.Reader // what is left of them
	end     error
}

// SyscallConn lets go-redis look whether a connection in its pool has ended.
func (c *spoiltConn) SyscallConn() (syscall.RawConn, error) {
	conn, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return conn.SyscallConn()
}

func (c *spoiltConn) Write(b []byte) (int, error) {
	if bytes.Count(b, []byte(tokenbucket.FunctionTake)) == together {
		c.how = c.hook.how.Swap(nil)
	}
	return c.Conn.Write(b)
}

func (c *spoiltConn) Read(b []byte) (int, error) {
	if c.how != nil {
		answers := make([][]byte, together)
		for i := range answers {
			var err error
			if answers[i], err = readString(c.answers); err != nil {
				return 0, fmt.Errorf("answer %d: %w", i, err)
			}
		}
		arrives, end := (*c.how)(answers)
		c.how, c.arrives, c.end = nil, bytes.NewReader(arrives), end
	}
	if c.arrives != nil && c.arrives.Len() > 0 {
		n, err := c.arrives.Read(b)
		if c.arrives.Len() == 0 && c.end != nil {
			_ = c.Close()
		}
		return n, err
	}
	if c.end != nil {
		return 0, c.end
	}
	return c.answers.Read(b)
}

// readString reads a RESP string, framing and all.
func readString(from *bufio.Reader) ([]byte, error) {
	head, err := from.ReadString('\n')
	if err != nil {
		return nil, err
	}
	length, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return nil, fmt.Errorf("%q is no string: %w", head, err)
	}
	whole := append([]byte(head), make([]byte, length+len("\r\n"))...)
	_, err = io.ReadFull(from, whole[len(head):])
	return whole, err
}

// cutAfter ends the connection after so many answers and half of the next.
func cutAfter(whole int, half bool, end error) spoil {
	return func(answers [][]byte) ([]byte, error) {
		arrives := bytes.Join(answers[:whole], nil)
		if half {
			arrives = append(arrives, answers[whole][:len(answers[whole])/2]...)
		}
		return arrives, end
	}
}

// instead puts an error in the place of the first answer.
func instead(line string) spoil {
	return func(answers [][]byte) ([]byte, error) {
		return append([]byte(line+"\r\n"), bytes.Join(answers[1:], nil)...), nil
	}
}

var _ = Describe("A pipeline whose answers are lost", func() {
	// Redis ran all calls of the pipeline, and the client can't know that: sent again, a call would charge twice.
	DescribeTable("is charged once",
		func(ctx SpecContext, how spoil, answered int, first failover.Kind) {
			const tag, capacity = "once", 100
			group := func() *ratelimit.Group {
				g := bucket(tag, capacity)
				g.Policy.Record.Store.TimeoutUS = bucketconfig.MaxTimeoutUS // or a slow machine is a timeout
				return g
			}
			client := redisclient.NewVerdict(redisclient.Options{Addrs: cluster.Addrs()})
			connections := &spoilt{}
			client.OnNewNode(func(node *redis.Client) { node.AddHook(connections) })
			f, _ := run(ctx, client)
			Eventually(f.Masters).Should(HaveLen(3))
			Expect(ask(f, group()).Err).NotTo(HaveOccurred())
			master := node(ctx, tag)
			before := executed(ctx, master)

			// While the master hangs each lane holds one call, and what is asked then waits to travel together.
			resume := halt(master)
			held := make(chan failover.Answer, 2)
			for range cap(held) {
				f.Ask(locate(f, tag), group(), 0, held)
				Eventually(func() int { return f.Queued(master.Addr()) }).Should(BeZero())
			}
			answers := make(chan failover.Answer, together)
			for i := range together {
				f.Ask(locate(f, tag), group(), i, answers)
			}
			Expect(f.Queued(master.Addr())).To(Equal(together))
			connections.how.Store(&how)
			resume()

			for range cap(held) {
				var answer failover.Answer
				Eventually(held, "3s").Should(Receive(&answer))
				Expect(answer.Err).NotTo(HaveOccurred())
			}
			failures := map[int]*failover.StoreError{}
			for range together {
				var answer failover.Answer
				Eventually(answers, "3s").Should(Receive(&answer))
				if answer.Err != nil {
					failures[answer.Index] = fault(answer)
				}
			}
			Expect(connections.how.Load()).To(BeNil(), "the pipeline was spoilt")
			Expect(failures).To(HaveLen(together - answered))
			for _, failure := range failures {
				Expect(failure).To(kind(first))
				Expect(failure.Unknown).To(Equal(first == failover.KindConnection), "only an answer proves what ran")
			}

			Expect(executed(ctx, master) - before).To(Equal(cap(held) + together))
			after := ask(f, group())
			Expect(after.Err).NotTo(HaveOccurred(), "the lanes go on, over a new connection where one broke")
			const asked = 1 + 2 + together + 1
			Expect(after.Charges[0].Level.Tokens).To(Equal(int64(capacity - asked)))
		},
		Entry("EOF before the first answer", cutAfter(0, false, io.EOF), 0, failover.KindConnection),
		Entry("EOF within the first answer", cutAfter(0, true, io.EOF), 0, failover.KindConnection),
		Entry("EOF after three answers", cutAfter(3, false, io.EOF), 3, failover.KindConnection),
		Entry("EOF within the last answer", cutAfter(together-1, true, io.EOF), together-1, failover.KindConnection),
		Entry("EOF after all answers", cutAfter(together, false, io.EOF), together, failover.KindConnection),
		Entry("a reset before the first answer", cutAfter(0, false, syscall.ECONNRESET), 0, failover.KindConnection),
		Entry("a reset after three answers", cutAfter(3, false, syscall.ECONNRESET), 3, failover.KindConnection),
		Entry("TRYAGAIN first", instead("-TRYAGAIN Multiple keys request during rehashing of slot"), together-1, failover.KindCluster),
		Entry("LOADING first", instead("-LOADING Redis is loading the dataset in memory"), together-1, failover.KindCluster),
		Entry("CLUSTERDOWN first", instead("-CLUSTERDOWN The cluster is down"), together-1, failover.KindCluster),
		Entry("READONLY first", instead("-READONLY You can't write against a read only replica."), together-1, failover.KindCluster),
	)
})
