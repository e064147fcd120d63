package redisadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// The floor of Redis' version: the first with Functions.
const minMajor = 7

// WarningKind says what a warning is about. It is a closed set: the label of a metric.
type WarningKind string

// The kinds.
const (
	WarnEviction     WarningKind = "eviction"      // a full memory makes buckets vanish, and come back full
	WarnFullCoverage WarningKind = "full_coverage" // one dead master stops all
	WarnVersion      WarningKind = "version"       // below the floor
	WarnUnknown      WarningKind = "unknown"       // a setting may not be read
)

// WarningKinds are all kinds.
var WarningKinds = []WarningKind{WarnEviction, WarnFullCoverage, WarnVersion, WarnUnknown}

// Warning is a setting of a node under which Portero keeps less than it promises.
type Warning struct {
	Kind    WarningKind
	Node    string // address
	Setting string
	Value   string
	Message string // what follows from it and what to do
}

// CheckServer looks at every node's version and settings, and gives what there is to warn of, sorted by node and setting.
// Where CONFIG GET is refused, as managed services do, INFO tells the eviction policy, and what remains unread is a warning
// of its own. The error is a *NodesError for nodes that do not
// answer.
func (a *Admin) CheckServer(ctx context.Context) ([]Warning, error) {
	var mutex sync.Mutex
	var warnings []Warning
	err := a.visit(ctx, func(ctx context.Context, node node) error {
		seen, err := look(ctx, node)
		if err != nil {
			return err
		}
		found := checkVersion(seen)
		settings, err := readSettings(ctx, node)
		var refusal redis.Error
		switch {
		case errors.As(err, &refusal):
			found = append(found, checkUnread(ctx, node, seen)...)
		case err != nil:
			return fmt.Errorf("look at the settings: %w", err)
		default:
			found = append(found, checkSettings(seen, settings)...)
		}
		mutex.Lock()
		defer mutex.Unlock()
		warnings = append(warnings, found...)
		return nil
	})
	slices.SortFunc(warnings, func(a, b Warning) int {
		return strings.Compare(a.Node+" "+a.Setting, b.Node+" "+b.Setting)
	})
	return warnings, err
}

// readSettings asks for the two settings by name: a pattern would bring passwords along.
func readSettings(ctx context.Context, node node) (map[string]string, error) {
	settings, err := node.ConfigGet(ctx, evictionPolicy).Result()
	if err != nil {
		return nil, err
	}
	coverage, err := node.ConfigGet(ctx, fullCoverage).Result()
	if err != nil {
		return nil, err
	}
	maps.Copy(settings, coverage)
	return settings, nil
}

// The settings that are looked at.
const (
	evictionPolicy = "maxmemory-policy"
	fullCoverage   = "cluster-require-full-coverage"
)

// unread is the value of a setting that nobody may read.
const unread = "unknown"

// checkUnread looks at what INFO tells, and warns of what it does not.
func checkUnread(ctx context.Context, node node, seen Node) []Warning {
	found := []Warning{{
		Kind: WarnUnknown, Node: seen.Addr, Setting: fullCoverage, Value: unread,
		Message: "CONFIG GET is refused: see that it is no, else one dead master stops all",
	}}
	info, err := node.InfoMap(ctx, "memory").Result()
	policy := info["Memory"]["maxmemory_policy"]
	if err != nil || policy == "" {
		return append(found, Warning{
			Kind: WarnUnknown, Node: seen.Addr, Setting: evictionPolicy, Value: unread,
			Message: "CONFIG GET is refused and INFO does not tell: see that it is noeviction, else evicted buckets come back full",
		})
	}
	return append(found, checkEviction(seen, policy)...)
}

func checkVersion(node Node) []Warning {
	major, _, _ := strings.Cut(node.Version, ".")
	if number, err := strconv.Atoi(major); err == nil && number >= minMajor {
		return nil
	}
	return []Warning{{
		Kind: WarnVersion, Node: node.Addr, Setting: "version", Value: node.Version,
		Message: "Redis below 7.0 has no Functions, which decide over the buckets: upgrade to Redis 7.0 or Valkey 7.2",
	}}
}

func checkSettings(node Node, settings map[string]string) []Warning {
	found := checkEviction(node, settings[evictionPolicy])
	if value := settings[fullCoverage]; value != "no" {
		found = append(found, Warning{
			Kind: WarnFullCoverage, Node: node.Addr, Setting: fullCoverage, Value: value,
			Message: "one dead master makes all nodes refuse until its replica takes over, so all limits fall back to local ones: set it to no",
		})
	}
	return found
}

func checkEviction(node Node, policy string) []Warning {
	if policy == "noeviction" {
		return nil
	}
	return []Warning{{
		Kind: WarnEviction, Node: node.Addr, Setting: evictionPolicy, Value: policy,
		Message: "an evicted bucket comes back full, which lets clients exceed their limits: set it to noeviction",
	}}
}
