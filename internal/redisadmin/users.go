package redisadmin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// commands are all that a sidecar's user may send: calls of functions, reads of the records, heartbeats, the news, and
// what go-redis needs to find its way. The last row is what the functions do inside, with the caller's rights.
//
// None of them loads code: with EVAL or SCRIPT LOAD a captured sidecar could stall every tenant. None tells of others.
var commands = []string{
	"fcall", "hget", "hmget", "hgetall", "hset", "subscribe", "unsubscribe",
	"ping", "hello", "auth", "cluster|slots", "cluster|shards", "asking",
	"get", "set", "time", "pexpire",
}

// userRules are the keys, channels and commands of a namespace's user, as ACL SETUSER takes them. Records can only be
// read: publishing is refused inside the function too.
func (a *Admin) userRules(namespace string) []string {
	rules := []string{
		"~" + a.instance.BucketPattern(namespace),
		"%R~" + a.instance.Config(namespace),
		"~" + a.instance.Heartbeats(namespace),
		"&" + a.instance.ConfigChannel(namespace),
		"-@all",
	}
	for _, command := range commands {
		rules = append(rules, "+"+command)
	}
	return rules
}

// hashRule is the rule that lets a password in, without telling it.
func hashRule(password string) string {
	sum := sha256.Sum256([]byte(password))
	return "#" + hex.EncodeToString(sum[:])
}

// EnsureUser makes the user of a namespace's sidecars on every node, replicas too, with exactly these passwords and
// rights; two passwords serve a rotation. Where all is as it should be nothing is written. Where the nodes keep an ACL
// file, it is saved. The error is a *NodesError where single nodes failed: repeat when they are back.
func (a *Admin) EnsureUser(ctx context.Context, namespace string, passwords ...string) error {
	if len(passwords) == 0 || slices.Contains(passwords, "") {
		return fmt.Errorf("user of namespace %s: a password is missing", namespace)
	}
	user := a.instance.User(namespace)
	rules := append(a.userRules(namespace), "on")
	for _, password := range passwords {
		rules = append(rules, hashRule(password))
	}
	wanted, command := ruleSet(rules), append([]string{"reset"}, rules...)
	err := a.visit(ctx, func(ctx context.Context, node node) error {
		stored, err := storedRules(ctx, node, user)
		if err != nil {
			return err
		}
		if maps.Equal(stored, wanted) {
			return nil
		}
		// One command, so that no moment of a change lets in too many or nobody.
		if err := node.ACLSetUser(ctx, user, command...).Err(); err != nil {
			return fmt.Errorf("set user: %w", err)
		}
		return saveUsers(ctx, node)
	})
	if err != nil {
		return fmt.Errorf("user of namespace %s: %w", namespace, err)
	}
	return nil
}

// RemoveUser removes a namespace's user from every node and ends its connections. The error is one of EnsureUser's.
func (a *Admin) RemoveUser(ctx context.Context, namespace string) error {
	err := a.visit(ctx, func(ctx context.Context, node node) error {
		removed, err := node.ACLDelUser(ctx, a.instance.User(namespace)).Result()
		if err != nil {
			return fmt.Errorf("remove user: %w", err)
		}
		if removed == 0 {
			return nil
		}
		return saveUsers(ctx, node)
	})
	if err != nil {
		return fmt.Errorf("user of namespace %s: %w", namespace, err)
	}
	return nil
}

// Users lists the namespaces that have a user of this instance on any node that answers, sorted. The error is a
// *NodesError for those that do not.
func (a *Admin) Users(ctx context.Context) ([]string, error) {
	var mutex sync.Mutex
	namespaces := make(map[string]bool)
	err := a.visit(ctx, func(ctx context.Context, node node) error {
		users, err := node.ACLUsers(ctx).Result()
		if err != nil {
			return fmt.Errorf("list users: %w", err)
		}
		mutex.Lock()
		defer mutex.Unlock()
		for _, user := range users {
			if namespace, ours := a.instance.UserNamespace(user); ours {
				namespaces[namespace] = true
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(namespaces)), err
}

// storedRules gives a user's rules as a set, nil when there is no such user. Redis 7.0 reorders them, later releases keep
// the order; what stands in the set is the same.
func storedRules(ctx context.Context, node node, user string) (map[string]bool, error) {
	reply, err := node.Do(ctx, "acl", "getuser", user).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at user: %w", err)
	}
	attributes, ok := reply.(map[any]any)
	if !ok {
		return nil, fmt.Errorf("look at user: unexpected reply %T", reply)
	}
	rules := make(map[string]bool)
	for name, value := range attributes {
		prefix := ""
		if name == "passwords" {
			prefix = "#"
		}
		if !addRules(rules, prefix, value) {
			return nil, fmt.Errorf("look at user: unexpected %v %v", name, value)
		}
	}
	delete(rules, "sanitize-payload") // how Redis spells a default
	return rules, nil
}

// addRules takes the attributes' forms: words in one string, or a list. A selector, which is a map, becomes a rule that no
// user of ours has.
func addRules(rules map[string]bool, prefix string, value any) bool {
	switch value := value.(type) {
	case string:
		for word := range strings.FieldsSeq(value) {
			rules[prefix+word] = true
		}
	case []any:
		for _, item := range value {
			if _, isSelector := item.(map[any]any); isSelector {
				rules["selector"] = true
			} else if !addRules(rules, prefix, item) {
				return false
			}
		}
	default:
		return false
	}
	return true
}

func ruleSet(rules []string) map[string]bool {
	set := make(map[string]bool, len(rules))
	for _, rule := range rules {
		set[rule] = true
	}
	return set
}

// saveUsers writes the node's ACL file; a node without one keeps users in memory, and they are made anew when it is back.
func saveUsers(ctx context.Context, node node) error {
	err := node.Do(ctx, "acl", "save").Err()
	if err != nil && !strings.Contains(err.Error(), "not configured to use an ACL file") {
		return fmt.Errorf("save users: %w", err)
	}
	return nil
}
