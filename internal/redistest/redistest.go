// Package redistest starts a throw-away Redis Cluster for tests: three masters with a replica each, real redis-server
// processes on free loopback ports, gone with the test.
//
// Tests of both planes import it; production code never does. It stays free of Kubernetes.
package redistest

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	masters = 3
	nodes   = 2 * masters

	// startTimeout bounds one attempt to start a cluster. An idle machine needs 2.5 s, 2 of which Redis itself waits
	// before a fresh master takes writes.
	startTimeout = 60 * time.Second
	// startAttempts bounds the attempts. The next one takes other ports: between the probe of a port and its use,
	// another process can take it.
	startAttempts = 3

	defaultNodeTimeout = 2 * time.Second
)

// T is what a test framework offers: *testing.T, testing.TB and GinkgoT() are such.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Options shape a cluster. The zero value is a cluster without a password and TLS.
type Options struct {
	// NodeTimeout is cluster-node-timeout: how long a node may be silent before it counts as failing, and so about the
	// time a failover takes. Default 2 s.
	NodeTimeout time.Duration
	// Password is the default user's; empty lets everybody in.
	Password string
	// ACLFile gives each node an ACL file, so that ACL SAVE works and users outlive a restart.
	ACLFile bool
	// Persist keeps a node's data over a restart, in an append-only file. Without it a restarted node is empty until it
	// has synced.
	Persist bool
	// TLS makes the nodes speak TLS alone, to clients and among themselves; see Cluster.TLS for the certificates.
	TLS bool
	// Clock gives each node a clock of its own that Node.StepClock sets; it needs a C compiler.
	Clock bool
	// Announce is asked once for each node's address, and answers the port on the same host that the node tells clients and
	// replicas instead of its own: for something in between. Methods of Node still reach the node itself.
	Announce func(addr string) (port int, err error)
	// Config are lines for redis.conf, after all others.
	Config []string
}

// Cluster is a running Redis Cluster. Its methods are safe for concurrent use, except that one node's process is to be
// controlled by one goroutine at a time.
type Cluster struct {
	// Nodes are the nodes; the first three started as masters, Nodes[i+3] as the replica of Nodes[i]. Roles move with
	// failovers: see Masters and Node.Role.
	Nodes []*Node
	// TLS holds the certificates that Options.TLS asked for, else nil.
	TLS *Certificates

	options Options
	dir     string
	// started counts the nodes that came later.
	started int
	client  *redis.ClusterClient
}

// Start starts a cluster and waits until every node says cluster_state:ok and every replica follows its master. The
// context bounds the start only; the cluster lives until t's cleanup, and dies with this process whatever happens.
func Start(ctx context.Context, t T, options Options) *Cluster {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatalf("redis-server 7.0 or later must be in PATH (Debian: apt-get install redis-server): %v", err)
	}
	if options.NodeTimeout == 0 {
		options.NodeTimeout = defaultNodeTimeout
	}
	var err error
	for range startAttempts {
		var cluster *Cluster
		if cluster, err = start(ctx, options); err == nil {
			t.Cleanup(cluster.close)
			return cluster
		}
		if ctx.Err() != nil {
			break
		}
		t.Logf("starting a Redis Cluster anew on other ports: %v", err)
	}
	t.Fatalf("start a Redis Cluster: %v", err)
	return nil
}

func start(ctx context.Context, options Options) (_ *Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c := &Cluster{options: options}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.dir, err = os.MkdirTemp("", "redistest-"); err != nil {
		return nil, err
	}
	if options.TLS {
		if c.TLS, err = newCertificates(c.dir); err != nil {
			return nil, fmt.Errorf("make certificates: %w", err)
		}
	}
	if options.Clock {
		if err := buildClock(ctx, c.dir); err != nil {
			return nil, err
		}
	}
	ports, err := freePorts(2 * nodes)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		node := newNode(c, filepath.Join(c.dir, strconv.Itoa(i)), ports[2*i], ports[2*i+1])
		if err := os.Mkdir(node.dir, 0o700); err != nil {
			return nil, err
		}
		if err := node.configure(); err != nil {
			return nil, fmt.Errorf("configure node %d: %w", i, err)
		}
		if err := node.spawn(); err != nil {
			return nil, fmt.Errorf("start node %d: %w", i, err)
		}
		c.Nodes = append(c.Nodes, node)
	}
	c.client = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Password: options.Password, TLSConfig: c.tlsConfig(), MaxRedirects: 8,
		DisableIdentity: true, MaintNotificationsConfig: noMaintNotifications(),
	})
	if err := c.form(ctx); err != nil {
		return nil, err
	}
	if err := c.WaitHealthy(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// close ends all processes and removes all files.
func (c *Cluster) close() {
	if c.client != nil {
		_ = c.client.Close()
	}
	for _, node := range c.Nodes {
		_ = node.client.Close()
		node.kill()
	}
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// Addrs are the addresses of all nodes, as host:port.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Client is a client of the whole cluster, as the default user. It is closed with the cluster.
func (c *Cluster) Client() *redis.ClusterClient { return c.client }

func (c *Cluster) tlsConfig() *tls.Config {
	if c.TLS == nil {
		return nil
	}
	return c.TLS.ClientConfig()
}

func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
