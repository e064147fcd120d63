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

// Warning is a setting of a node under which Portero keeps less than it promises.
type Warning struct {
	Node    string // address
	Setting string
	Value   string
	Message string // what follows from it and what to do
}

// CheckServer looks at every node's version and settings, and gives what there is to warn of, sorted by node and setting.
// A node that does not let its settings be read gives a warning too. The error is a *NodesError for nodes that do not
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
			found = append(found, Warning{
				Node: seen.Addr, Setting: "CONFIG GET", Value: err.Error(),
				Message: "the settings can't be checked: see that maxmemory-policy is noeviction and cluster-require-full-coverage no",
			})
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
	settings, err := node.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return nil, err
	}
	coverage, err := node.ConfigGet(ctx, "cluster-require-full-coverage").Result()
	if err != nil {
		return nil, err
	}
	maps.Copy(settings, coverage)
	return settings, nil
}

func checkVersion(node Node) []Warning {
	major, _, _ := strings.Cut(node.Version, ".")
	if number, err := strconv.Atoi(major); err == nil && number >= minMajor {
		return nil
	}
	return []Warning{{
		Node: node.Addr, Setting: "version", Value: node.Version,
		Message: "Redis below 7.0 has no Functions, which decide over the buckets: upgrade to Redis 7.0 or Valkey 7.2",
	}}
}

func checkSettings(node Node, settings map[string]string) []Warning {
	var found []Warning
	if value := settings["maxmemory-policy"]; value != "noeviction" {
		found = append(found, Warning{
			Node: node.Addr, Setting: "maxmemory-policy", Value: value,
			Message: "an evicted bucket comes back full, which lets clients exceed their limits: set it to noeviction",
		})
	}
	if value := settings["cluster-require-full-coverage"]; value != "no" {
		found = append(found, Warning{
			Node: node.Addr, Setting: "cluster-require-full-coverage", Value: value,
			Message: "one dead master makes all nodes refuse until its replica takes over, so all limits fall back to local ones: set it to no",
		})
	}
	return found
}
