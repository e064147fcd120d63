package redisadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/redisclient"
)

const (
	// nodeTimeout bounds the work on one node; nodes are worked on at the same time, and one that hangs holds up no other.
	nodeTimeout = 1500 * time.Millisecond
	// rememberFor is how long a node is still visited after the last other node has named it: the nodes stop naming one
	// that is down, and are late to name it again when it is back.
	rememberFor = time.Minute
)

// NodesError tells on which nodes something failed; on all others it was done. Each error is one of configstore's
// ErrUnreachable and ErrDenied where it is one of these.
type NodesError struct {
	Nodes map[string]error // by address
	// Masters are those of them that hold slots in the eyes of a node that answers: what is lost with another one is
	// only a copy. Empty when none answers.
	Masters []string
}

func (e *NodesError) Error() string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(e.Nodes)) {
		parts = append(parts, fmt.Sprintf("node %s: %v", node, e.Nodes[node]))
	}
	return strings.Join(parts, "; ")
}

// Unwrap gives the errors of all nodes.
func (e *NodesError) Unwrap() []error {
	return slices.Collect(maps.Values(e.Nodes))
}

// node is a node that has answered.
type node struct {
	*redis.Client
	addr   string
	master bool // of at least one slot, as it sees itself
	takes  bool // writes, as it sees itself: a master, also of no slot yet
}

// visit works on every node at the same time. Which nodes there are is asked of each of them, as their views differ: a
// replica that is new, or back, is known to its master first. The error is a *NodesError for the nodes that failed.
func (a *Admin) visit(ctx context.Context, work func(context.Context, node) error) error {
	v := &visitor{
		admin: a, work: work, failed: make(map[string]error),
		addrs: make(map[string]bool), ids: make(map[string]bool), named: make(map[string]bool), masters: make(map[string]bool),
	}
	for _, addr := range a.known() {
		v.start(ctx, addr)
	}
	v.running.Wait()
	a.remember(v.named)
	if len(v.ids) > 0 {
		// An address of the start is one way to the nodes, and need not be one of theirs.
		for _, seed := range a.seeds {
			if !v.named[seed] && errors.Is(v.failed[seed], errNoAnswer) {
				delete(v.failed, seed)
			}
		}
	}
	if len(v.failed) == 0 {
		return nil
	}
	failed := &NodesError{Nodes: v.failed}
	for addr := range v.failed {
		if v.masters[addr] {
			failed.Masters = append(failed.Masters, addr)
		}
	}
	slices.Sort(failed.Masters)
	return failed
}

// errNoAnswer marks nodes that did not even say who they are.
var errNoAnswer = errors.New("no answer")

// visitor is one visit of all nodes.
type visitor struct {
	admin   *Admin
	work    func(context.Context, node) error
	running sync.WaitGroup

	mutex  sync.Mutex
	addrs  map[string]bool  // visited
	ids    map[string]bool  // of nodes that answered: one node can have two addresses
	named  map[string]bool  // addresses by which nodes know each other
	failed map[string]error // by address

	masters map[string]bool // of named, those that hold slots
}

// start visits an address, and from there all others that its node names, unless that has been done.
func (v *visitor) start(ctx context.Context, addr string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.addrs[addr] {
		return
	}
	v.addrs[addr] = true
	v.running.Go(func() {
		if err := v.at(ctx, v.admin.node(addr), addr); err != nil {
			v.mutex.Lock()
			defer v.mutex.Unlock()
			v.failed[addr] = configstore.Classify(err)
		}
	})
}

func (v *visitor) at(ctx context.Context, client *redis.Client, addr string) error {
	own, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	pipe := client.Pipeline()
	whoami, view, all := pipe.ClusterMyID(own), pipe.ClusterSlots(own), pipe.ClusterNodes(own)
	if _, err := pipe.Exec(own); err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	id, master := whoami.Val(), false
	serving := make(map[string]bool)
	for _, slots := range view.Val() {
		for i, other := range slots.Nodes {
			master = master || i == 0 && other.ID == id
			name := reachable(other.Addr, addr)
			v.start(ctx, name)
			v.name(name, i == 0)
			serving[other.ID] = true
		}
	}
	takes := false
	for line := range strings.Lines(all.Val()) {
		other, ok := parseNode(line)
		if !ok {
			continue
		}
		takes = takes || other.id == id && other.master
		// One that serves no slot yet must know library and users before the first slot comes.
		if !serving[other.id] && other.well {
			name := reachable(other.addr, addr)
			v.start(ctx, name)
			v.name(name, false)
		}
	}
	if v.again(id) {
		return nil
	}
	return v.work(own, node{Client: client, addr: addr, master: master, takes: takes})
}

// listed is a line of CLUSTER NODES.
type listed struct {
	id, addr     string
	master, well bool
}

// parseNode reads "id host:port@bus[,hostname] flag,flag… …"; the port is that of the kind of connection that asks.
func parseNode(line string) (listed, bool) {
	fields := strings.Fields(line)
	const needed = 3
	if len(fields) < needed {
		return listed{}, false
	}
	addr, _, found := strings.Cut(fields[1], "@")
	if colon := strings.LastIndexByte(addr, ':'); colon >= 0 {
		addr = net.JoinHostPort(addr[:colon], addr[colon+1:]) // an IPv6 address stands there without brackets
	}
	flags := strings.Split(fields[2], ",")
	unwell := slices.ContainsFunc(flags, func(flag string) bool {
		return slices.Contains([]string{"fail", "fail?", "handshake", "noaddr"}, flag)
	})
	return listed{id: fields[0], addr: addr, master: slices.Contains(flags, "master"), well: !unwell}, found
}

// name notes an address that a node gave, and whether it took that one for a master.
func (v *visitor) name(addr string, master bool) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.named[addr] = true
	v.masters[addr] = v.masters[addr] || master
}

// again tells whether a node was visited before, by another address.
func (v *visitor) again(id string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	before := v.ids[id]
	v.ids[id] = true
	return before
}

// reachable completes the address of a node that does not know its own host, which is the one it was asked at.
func reachable(addr, askedAt string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" {
		return addr
	}
	asked, _, _ := net.SplitHostPort(askedAt)
	return net.JoinHostPort(asked, port)
}

// known gives the addresses to start from: those of the configuration, and those that were named of late.
func (a *Admin) known() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return append(slices.Clone(a.seeds), slices.Collect(maps.Keys(a.lastNamed))...)
}

// remember notes the addresses that nodes named, and forgets those that nobody has named for long.
func (a *Admin) remember(named map[string]bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	now := time.Now()
	for addr := range named {
		a.lastNamed[addr] = now
	}
	if len(named) == 0 {
		return // nobody answers: what is known is all there is
	}
	for addr, last := range a.lastNamed {
		if now.Sub(last) > rememberFor {
			delete(a.lastNamed, addr)
			if client := a.clients[addr]; client != nil && !slices.Contains(a.seeds, addr) {
				_ = client.Close()
				delete(a.clients, addr)
			}
		}
	}
}

// node gives the client of one node, with the credentials of the cluster's.
func (a *Admin) node(addr string) *redis.Client {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	client := a.clients[addr]
	if client == nil {
		client = redisclient.NewNode(a.options, addr)
		a.clients[addr] = client
	}
	return client
}
