// Package redisadmin is what the manager does on every node of the user's Redis Cluster, because nothing else carries it
// there: the Function library on masters, ACL users on all nodes, and a look at settings that would break a promise.
//
// Only the manager imports it. It stays free of Kubernetes. Everything compares first and writes only what differs, so
// all of it may be called again and again.
package redisadmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/redisclient"
	"github.com/portero-dev/portero/internal/tokenbucket"
)

// Admin works on all nodes that the cluster knows at the time of a call. It is safe for concurrent use.
type Admin struct {
	options  redisclient.Options
	instance keyspace.Instance
	library  tokenbucket.Source
	seeds    []string

	mutex     sync.Mutex
	clients   map[string]*redis.Client // by address
	lastNamed map[string]time.Time     // when nodes last named an address as one of theirs
}

// New gives an Admin for one instance. The user must be allowed to manage functions and users. Close it after use.
func New(options redisclient.Options, instance keyspace.Instance) *Admin {
	return &Admin{
		options:   options,
		instance:  instance,
		library:   tokenbucket.Library(),
		seeds:     options.Addrs,
		clients:   make(map[string]*redis.Client),
		lastNamed: make(map[string]time.Time),
	}
}

// Close closes all connections; calls that are under way fail.
func (a *Admin) Close() error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var errs []error
	for _, client := range a.clients {
		errs = append(errs, client.Close())
	}
	clear(a.clients)
	return errors.Join(errs...)
}

// EnsureLibrary loads the Function library on every master, of slots or of none yet, that lacks it or holds code under its name that it supersedes,
// and gives their addresses. What a later manager loaded stays: it serves this one too. Replicas get it from their masters.
func (a *Admin) EnsureLibrary(ctx context.Context) (loaded []string, err error) {
	var mutex sync.Mutex
	err = a.visit(ctx, func(ctx context.Context, node node) error {
		if !node.takes {
			return nil
		}
		query := redis.FunctionListQuery{LibraryNamePattern: a.library.Name, WithCode: true}
		libraries, err := node.FunctionList(ctx, query).Result()
		if err != nil {
			return fmt.Errorf("list functions: %w", err)
		}
		if len(libraries) == 1 && !a.library.Supersedes(libraries[0].Code) {
			return nil
		}
		if err := node.FunctionLoadReplace(ctx, a.library.Code).Err(); err != nil {
			return fmt.Errorf("load the function library: %w", err)
		}
		mutex.Lock()
		defer mutex.Unlock()
		loaded = append(loaded, node.addr)
		return nil
	})
	slices.Sort(loaded)
	return loaded, err
}

// Node is one node of the cluster, as it answered.
type Node struct {
	Addr string
	// RunID is new at each start of the node's process: with another one, what lives in memory alone may be lost.
	RunID   string
	Version string // of Redis, or the one whose features a Valkey has
	Master  bool   // of at least one slot
}

// Nodes gives all nodes that answer, sorted by address. The error is a *NodesError for those that do not.
func (a *Admin) Nodes(ctx context.Context) ([]Node, error) {
	var mutex sync.Mutex
	var nodes []Node
	err := a.visit(ctx, func(ctx context.Context, node node) error {
		seen, err := look(ctx, node)
		if err != nil {
			return err
		}
		mutex.Lock()
		defer mutex.Unlock()
		nodes = append(nodes, seen)
		return nil
	})
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Addr, b.Addr) })
	return nodes, err
}

func look(ctx context.Context, node node) (Node, error) {
	info, err := node.Info(ctx, "server").Result()
	if err != nil {
		return Node{}, fmt.Errorf("look at the server: %w", err)
	}
	seen := Node{Addr: node.addr, Master: node.master}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "run_id":
			seen.RunID = value
		case "redis_version":
			seen.Version = value
		}
	}
	if seen.RunID == "" || seen.Version == "" {
		return Node{}, errors.New("look at the server: it does not tell its run id and version")
	}
	return seen, nil
}
