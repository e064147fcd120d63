// Package redisclient makes the clients of the user's Redis Cluster, one constructor for each use, because the uses want
// different patience: verdicts have a budget of milliseconds, records and heartbeats of seconds.
//
// Both planes import it. It stays free of Kubernetes.
package redisclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// VerdictTimeout is how long a flusher of verdicts reads on after the verdicts themselves stopped waiting. It is the
// deadline of the context that the flusher passes, unless a verdict has a greater budget.
const VerdictTimeout = 250 * time.Millisecond

// longestVerdict is the greatest budget of a verdict.
const longestVerdict = bucketconfig.MaxTimeoutUS * time.Microsecond

// Credentials tells user and password of each new connection; it must be safe for concurrent use and not block. Open
// connections keep the user that they came with, also after a change of the password.
type Credentials func(ctx context.Context) (username, password string, err error)

// Static are credentials that never change. An empty username is the default user, an empty password none.
func Static(username, password string) Credentials {
	return func(context.Context) (string, string, error) { return username, password, nil }
}

// Options say where Redis is and who asks.
type Options struct {
	// Addrs are some of the nodes, as host:port; the others are learnt from them. Required.
	Addrs []string
	// Credentials of all connections; nil for a Redis that wants none.
	Credentials Credentials
	// TLS turns TLS on; see TLS.Config.
	TLS *tls.Config
}

// ParseAddrs reads host:port addresses, separated by commas.
func ParseAddrs(list string) ([]string, error) {
	var addrs []string
	for _, addr := range strings.Split(list, ",") {
		addr = strings.TrimSpace(addr)
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("redis address %q: must be host:port: %w", addr, err)
		}
		if number, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || number == 0 {
			return nil, fmt.Errorf("redis address %q: must be host:port with a port from 1 to 65535", addr)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// NewVerdict makes the client that carries verdicts. The context of each call bounds it: give it VerdictTimeout. Whoever
// uses it has the topology read anew while a master fails, as the other clients do by themselves. It never asks the
// server for anything but the topology and the calls themselves, so that a sidecar's ACL user suffices.
func NewVerdict(o Options) *redis.ClusterClient {
	c := o.cluster()
	// A batch is small and nothing waits for a retry: a failed dial is told at once, and one dial at a time keeps a
	// master that hangs from being stormed by them.
	c.DialTimeout, c.DialerRetries, c.MaxConcurrentDials, c.PoolSize = VerdictTimeout, 1, 1, 4
	// They cut the deadlines of all calls, so no deadline is longer; go-redis' own loading of the topology has no other.
	c.ReadTimeout, c.WriteTimeout = longestVerdict+VerdictTimeout, longestVerdict+VerdictTimeout
	return redis.NewClusterClient(c)
}

// NewConfig makes the client that reads records and sends heartbeats. Its calls end after seconds; a shorter context
// bounds them too. Subscriptions take a node's client of their own: see NewNode.
func NewConfig(o Options) *redis.ClusterClient {
	c := o.cluster()
	c.DialTimeout, c.DialerRetries, c.PoolSize = time.Second, 1, 2
	c.ReadTimeout, c.WriteTimeout = 3*time.Second, 3*time.Second
	return reloading(redis.NewClusterClient(c))
}

// NewAdmin makes the manager's client: publications, and what is done on every node.
func NewAdmin(o Options) *redis.ClusterClient {
	c := o.cluster()
	c.DialTimeout, c.DialerRetries, c.PoolSize = 2*time.Second, 1, 8
	c.ReadTimeout, c.WriteTimeout = 5*time.Second, 5*time.Second
	return reloading(redis.NewClusterClient(c))
}

// NewNode makes a client of one node, with the patience of NewConfig: for a subscription that takes another node when
// this one hangs, which a cluster's client would not notice.
func NewNode(o Options, addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, CredentialsProviderContext: o.Credentials, TLSConfig: o.TLS,
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, DialerRetries: 1, PoolSize: 2, ReadTimeout: 3 * time.Second, WriteTimeout: 3 * time.Second,
		DisableIdentity: true, MaintNotificationsConfig: noMaintNotifications(),
	})
}

// cluster holds what all uses share. There is no ClientName, ReadOnly or RouteBy: a sidecar's user may not set a name,
// and replicas are behind.
func (o Options) cluster() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: o.Addrs, CredentialsProviderContext: o.Credentials, TLSConfig: o.TLS,
		// Without it go-redis ignores the deadline of a call that is in flight.
		ContextTimeoutEnabled: true,
		MaxRedirects:          3,
		// -1 is none: a redirected pipeline would otherwise sleep for 10 to 30 ms first.
		MinRetryBackoff: -1,
		// Or each node gets a second pool for pipelines, beside PoolSize, with ten connections and large buffers.
		PipelinePoolSize: -1,
		// Routing policies cost a COMMAND, which a sidecar's user may not send.
		DisableRoutingPolicies: true,
		// CLIENT SETINFO is an error on 7.0.
		DisableIdentity:          true,
		MaintNotificationsConfig: noMaintNotifications(),
	}
}

// noMaintNotifications turns off what only a managed service offers, and what costs a command per connection to find out.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
