package redistest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	host = "127.0.0.1"
	// stopGrace is how long a node may take to end after SIGTERM.
	stopGrace = 10 * time.Second
	poll      = 20 * time.Millisecond
)

// Node is one redis-server process with its own folder, ports and cluster id, which it keeps over restarts.
type Node struct {
	cluster       *Cluster
	dir           string
	port, busPort int
	id            string
	client        *redis.Client

	process *os.Process
	exited  chan struct{}
}

func newNode(c *Cluster, dir string, port, busPort int) *Node {
	n := &Node{cluster: c, dir: dir, port: port, busPort: busPort}
	n.client = n.newClient()
	return n
}

func (n *Node) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: n.Addr(), Password: n.cluster.options.Password, TLSConfig: n.cluster.tlsConfig(), MaxRetries: -1, DialerRetries: 1,
		DialTimeout: time.Second, ReadTimeout: 2 * time.Second, ContextTimeoutEnabled: true,
		DisableIdentity: true, MaintNotificationsConfig: noMaintNotifications(),
	})
}

// Addr is where the node listens, as host:port.
func (n *Node) Addr() string { return net.JoinHostPort(host, strconv.Itoa(n.port)) }

// ID is the node's id in the cluster.
func (n *Node) ID() string { return n.id }

// Client is a client of this node alone, as the default user. It never retries, and is closed with the cluster.
func (n *Node) Client() *redis.Client { return n.client }

// PID is the process id, 0 when the node is stopped.
func (n *Node) PID() int {
	if !n.Running() {
		return 0
	}
	return n.process.Pid
}

// Running tells whether the node's process exists; a paused one does.
func (n *Node) Running() bool {
	if n.process == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the node's process: SIGSTOP hangs it with its connections open, SIGCONT wakes it.
func (n *Node) Signal(signal syscall.Signal) error {
	if !n.Running() {
		return fmt.Errorf("signal node %s: it is not running", n.Addr())
	}
	return n.process.Signal(signal)
}

// Stop ends the node as an administrator would, with SIGTERM, and waits until it is gone. Redis 7 waits for its replicas
// to catch up first. A stopped node stays stopped.
func (n *Node) Stop() {
	if !n.Running() {
		return
	}
	_ = n.process.Signal(syscall.SIGTERM)
	_ = n.process.Signal(syscall.SIGCONT)
	select {
	case <-n.exited:
	case <-time.After(stopGrace):
		n.kill()
	}
}

// Kill ends the node as a crash would, with SIGKILL, and waits until it is gone.
func (n *Node) Kill() { n.kill() }

func (n *Node) kill() {
	if !n.Running() {
		return
	}
	_ = n.process.Kill()
	<-n.exited
}

// Restart starts a stopped node again on its ports, with its id, and waits until it answers. The cluster may need longer
// to take it back: see Cluster.WaitHealthy. Without Options.Persist it starts empty.
func (n *Node) Restart(ctx context.Context) error {
	n.Stop()
	if err := n.spawn(); err != nil {
		return fmt.Errorf("restart node %s: %w", n.Addr(), err)
	}
	return n.waitAnswers(ctx)
}

// spawn starts the process and tells exited when it ends. Pdeathsig fires when the *thread* that started the child ends,
// so that goroutine keeps its thread for as long as the child lives.
func (n *Node) spawn() error {
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		cmd := exec.Command("redis-server", filepath.Join(n.dir, "redis.conf"))
		cmd.Dir = n.dir
		if n.cluster.options.Clock {
			cmd.Env = n.clockEnv()
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		n.process = cmd.Process
		started <- nil
		_ = cmd.Wait()
	}()
	err := <-started
	n.exited = exited
	return err
}

func (n *Node) waitAnswers(ctx context.Context) error {
	var dialer net.Dialer
	for {
		// The bare connection first: the client would log each refused dial.
		connection, err := dialer.DialContext(ctx, "tcp", n.Addr())
		if err == nil {
			_ = connection.Close()
			err = n.client.Ping(ctx).Err()
		}
		if err == nil {
			return nil
		}
		if !n.Running() {
			return fmt.Errorf("node %s ended at once: %s", n.Addr(), n.lastLog())
		}
		if !sleep(ctx, poll) {
			return fmt.Errorf("node %s does not answer: %w", n.Addr(), err)
		}
	}
}

// lastLog is the end of the node's log, for error messages.
func (n *Node) lastLog() string {
	const lines = 5
	content, err := os.ReadFile(filepath.Join(n.dir, "redis.log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "; ")
}

// configure writes the node's redis.conf.
func (n *Node) configure() error {
	o := n.cluster.options
	if o.Clock {
		if err := os.WriteFile(filepath.Join(n.dir, clockFile), make([]byte, 8), 0o600); err != nil {
			return err
		}
	}
	lines := []string{
		"bind " + host,
		fmt.Sprintf("port %d", n.port),
		"daemonize no",
		"dir " + n.dir,
		"logfile redis.log",
		`save ""`,
		"enable-debug-command yes",
		"repl-diskless-sync-delay 0",
		"cluster-enabled yes",
		fmt.Sprintf("cluster-port %d", n.busPort),
		"cluster-config-file nodes.conf",
		fmt.Sprintf("cluster-node-timeout %d", o.NodeTimeout.Milliseconds()),
		"cluster-require-full-coverage no",
		// A replica that was apart from its master for long may be promoted nevertheless: tests stop nodes at will.
		"cluster-replica-validity-factor 0",
		"cluster-allow-replica-migration no",
	}
	if o.Persist {
		lines = append(lines, "appendonly yes", "appendfsync no")
	}
	if o.Password != "" {
		lines = append(lines, "requirepass "+o.Password, "masterauth "+o.Password)
	}
	if o.ACLFile {
		if err := n.writeACLFile(); err != nil {
			return err
		}
		lines = append(lines, "aclfile users.acl")
	}
	if n.cluster.TLS != nil {
		lines = append(lines, n.cluster.TLS.serverConfig(n.port)...)
	}
	if o.Announce != nil {
		port, err := o.Announce(n.Addr())
		if err != nil {
			return err
		}
		lines = append(lines, "cluster-announce-ip "+host, fmt.Sprintf("cluster-announce-port %d", port),
			fmt.Sprintf("cluster-announce-bus-port %d", n.busPort))
	}
	lines = append(lines, o.Config...)
	return os.WriteFile(filepath.Join(n.dir, "redis.conf"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// writeACLFile writes the default user, unless a node that moved has its users already: an ACL file that lacks it would let everybody in, whatever requirepass says.
func (n *Node) writeACLFile() error {
	path := filepath.Join(n.dir, "users.acl")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	secret := "nopass"
	if password := n.cluster.options.Password; password != "" {
		sum := sha256.Sum256([]byte(password))
		secret = "#" + hex.EncodeToString(sum[:])
	}
	return os.WriteFile(path, []byte("user default on "+secret+" ~* &* +@all\n"), 0o600)
}

// sleep waits and tells whether the context still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
