package configstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Timing of a subscription. A hung node is noticed within pingInterval + answerTimeout = 2.5 s, and the next one, if it
// answers, has subscribed well within 5 s.
const (
	pingInterval  = 1500 * time.Millisecond
	answerTimeout = time.Second // to dial, to greet, to confirm, to answer a ping
	retryMin      = 200 * time.Millisecond
	retryMax      = 2 * time.Second
)

// Subscribe tells of news: the channel receives after each publication, and after each subscription, as publications in
// between went unheard. Several may become one. Receivers call Update. The channel is closed some time after the context
// ended, at the latest two seconds, and nothing is left behind.
//
// The subscription keeps a connection of its own to one node, any of the cluster: a node that stops answering is left for
// another. go-redis' own pub/sub of a cluster does not do: it never noticed a hung node, and its sharded one went silent
// for good after a failover. News can still be lost, as between nodes of a split cluster, so the revision is to be polled.
func (r *Reader) Subscribe(ctx context.Context, log *slog.Logger) <-chan struct{} {
	s := &subscription{
		options: r.client.Options(),
		channel: r.channel,
		news:    make(chan struct{}, 1),
		log:     log,
	}
	s.nodes = slices.Clone(s.options.Addrs)
	rand.Shuffle(len(s.nodes), func(i, j int) { s.nodes[i], s.nodes[j] = s.nodes[j], s.nodes[i] })
	go func() {
		defer close(s.news)
		s.run(ctx)
	}()
	return s.news
}

type subscription struct {
	options *redis.ClusterOptions
	channel string
	news    chan struct{}
	log     *slog.Logger
	// nodes are addresses in the order in which they are to be tried: the one in use stands last.
	nodes []string
}

// run goes from node to node until the context ends.
func (s *subscription) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		node := s.nodes[0]
		s.nodes = append(s.nodes[1:], node)
		subscribed, err := s.listen(ctx, node)
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("config subscription lost, taking another node", "node", node, "subscribed", subscribed, "error", err)
		if subscribed {
			failures = 0
			continue
		}
		failures++
		if failures%len(s.nodes) == 0 { // all have failed: no hurry until one comes back
			pause := min(retryMin<<min(failures/len(s.nodes)-1, 8), retryMax)
			sleep(ctx, pause/2+rand.N(pause/2))
		}
	}
}

// listen subscribes at one node and passes on news until the node fails. It tells whether the node had confirmed.
func (s *subscription) listen(ctx context.Context, node string) (subscribed bool, err error) {
	client := redis.NewClient(s.nodeOptions(node))
	defer func() { _ = client.Close() }()
	pubsub := client.Subscribe(ctx)
	defer func() { _ = pubsub.Close() }()
	// A read waits for its timeout, whatever the context says; closing ends it.
	defer context.AfterFunc(ctx, func() { _ = pubsub.Close() })()

	if err := pubsub.Subscribe(ctx, s.channel); err != nil {
		return false, fmt.Errorf("subscribe: %w", err)
	}
	waiting, timeout := true, answerTimeout // for an answer: the confirmation, then pongs
	for {
		message, err := pubsub.ReceiveTimeout(ctx, timeout)
		var network net.Error
		switch {
		case err == nil:
			waiting, timeout = false, pingInterval
		case errors.As(err, &network) && network.Timeout() && !waiting:
			if err := pubsub.Ping(ctx); err != nil {
				return subscribed, fmt.Errorf("ping: %w", err)
			}
			waiting, timeout = true, answerTimeout
			continue
		case waiting:
			return subscribed, fmt.Errorf("wait %s for an answer: %w", timeout, err)
		default:
			return subscribed, fmt.Errorf("listen: %w", err)
		}
		switch message.(type) {
		case *redis.Subscription:
			if !subscribed {
				subscribed = true
				s.learnNodes(ctx, client, node)
				s.log.Info("config subscription established", "node", node)
			}
			s.tell()
		case *redis.Message:
			s.tell()
		}
	}
}

// tell never blocks: news that nobody fetched yet stands for this one too.
func (s *subscription) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// learnNodes asks for the cluster's nodes, as those of the start may all be replaced over the months. Those it was given
// stay in the list; a failure leaves it as it was.
func (s *subscription) learnNodes(ctx context.Context, client *redis.Client, current string) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	slots, err := client.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS names nodes by host name or address as each prefers; SLOTS gives what clients connect to
	if err != nil {
		s.log.Warn("cluster nodes unknown, keeping those known before", "node", current, "error", err)
		return
	}
	host, _, _ := net.SplitHostPort(current)
	known := slices.Clone(s.options.Addrs)
	for _, slot := range slots {
		for _, node := range slot.Nodes {
			addr := node.Addr
			if nodeHost, port, err := net.SplitHostPort(addr); err == nil && nodeHost == "" {
				addr = net.JoinHostPort(host, port) // a node that does not know its own address
			}
			known = append(known, addr)
		}
	}
	slices.Sort(known)
	known = slices.DeleteFunc(slices.Compact(known), func(addr string) bool { return addr == current })
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	s.nodes = append(known, current)
}

// nodeOptions are the cluster client's way to a node, with the timeouts of a subscription. RESP2 delivers messages and
// pongs in one stream, as go-redis' low-level receiving wants it.
func (s *subscription) nodeOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr:                         addr,
		Dialer:                       s.options.Dialer,
		OnConnect:                    s.options.OnConnect,
		Protocol:                     2,
		Username:                     s.options.Username,
		Password:                     s.options.Password,
		CredentialsProvider:          s.options.CredentialsProvider,
		CredentialsProviderContext:   s.options.CredentialsProviderContext,
		StreamingCredentialsProvider: s.options.StreamingCredentialsProvider,
		TLSConfig:                    s.options.TLSConfig,
		DialTimeout:                  answerTimeout,
		DialerRetries:                1,
		ReadTimeout:                  answerTimeout,
		WriteTimeout:                 answerTimeout,
		ContextTimeoutEnabled:        true,
		MaxRetries:                   -1,
		PoolSize:                     1,
		DisableIdentity:              true,
		MaintNotificationsConfig:     s.options.MaintNotificationsConfig,
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
