package redislink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/internal/configstore"
	"github.com/portero-dev/portero/internal/redisadmin"
)

// health is the outcome of one look at every node.
type health struct {
	// problem is set when a master does not answer or lacks the library and can't get it.
	problem *problem.Problem
	// slow is true when the problem is nothing but answers that did not come in time.
	slow bool
	// loaded is true when a master lacked the library: it is new, or was flushed.
	loaded bool
	// starts are the run ids of the nodes that answered, by address.
	starts map[string]string
}

// check looks at every node at the same time, and loads the library where it is missing.
func (s *session) check(ctx context.Context) health {
	var h health
	var loaded []string
	var libraryErr error
	var wg sync.WaitGroup
	wg.Go(func() { loaded, libraryErr = s.admin.EnsureLibrary(ctx) })
	nodes, nodesErr := s.admin.Nodes(ctx)
	wg.Wait()

	if len(loaded) > 0 {
		logf.FromContext(ctx).Info("Function library loaded", "nodes", loaded)
	}
	h.loaded = len(loaded) > 0
	h.starts = make(map[string]string, len(nodes))
	for _, node := range nodes {
		h.starts[node.Addr] = node.RunID
	}
	if nodesErr != nil && len(nodes) > 0 {
		logf.FromContext(ctx).V(1).Info("Nodes do not answer", "error", nodesErr.Error())
	}
	h.problem = s.judge(libraryErr, len(nodes) > 0)
	h.slow = h.problem != nil && slow(libraryErr)
	return h
}

// judge words what is wrong with the masters. It names nothing that differs from look to look: a message that changes is
// a write to every policy.
func (s *session) judge(err error, answers bool) *problem.Problem {
	var failed *redisadmin.NodesError
	text := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, configstore.ErrDenied):
		text = refused(err)
	case answers && errors.As(err, &failed):
		if len(failed.Masters) == 0 {
			return nil // a replica that is away hinders nobody
		}
		var parts []string
		for _, master := range failed.Masters {
			parts = append(parts, master+" ("+cause(failed.Nodes[master])+")")
		}
		text = "masters of redis can't be used: " + strings.Join(parts, ", ")
	default:
		text = "redis can't be reached at " + strings.Join(s.settings.Addrs, ", ") + " (" + cause(err) + ")"
	}
	return &problem.Problem{Reason: portero.ReasonRedisUnreachable, Message: text, Cause: err}
}

// refused says what to do about a refusal: a password is wrong, or the user lacks a right.
func refused(err error) string {
	way := "check " + UsernameKey + " and " + PasswordKey + " in the Secret " + AdminSecret
	text := refusal(err)
	if !strings.HasPrefix(text, "WRONGPASS") && !strings.HasPrefix(text, "NOAUTH") {
		way = "grant the user of the Secret " + AdminSecret + " what config/README.md lists"
	}
	return "redis refuses the manager (" + text + "); " + way
}

// refusal finds the server's answer, such as "WRONGPASS invalid username-password pair or user is disabled.".
func refusal(err error) string {
	text := err.Error()
	for _, code := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "The user executing the script"} {
		if _, answer, found := strings.Cut(text, code); found {
			answer, _, _ = strings.Cut(answer, "; node ")
			return strings.TrimSuffix(code+answer, ".")
		}
	}
	return text
}

// cause tells one kind of failure from another, without addresses and times.
func cause(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "the host name " + dns.Name + " is not known"
	case timedOut(err):
		return "no answer in time"
	case errors.Is(err, configstore.ErrUnreachable):
		return "no connection"
	default:
		return err.Error()
	}
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// slow reports whether nothing worse happened on any node than that it did not answer in time.
func slow(err error) bool {
	var failed *redisadmin.NodesError
	if !errors.As(err, &failed) {
		return timedOut(err)
	}
	for _, node := range failed.Nodes {
		if !timedOut(node) || errors.Is(node, configstore.ErrDenied) {
			return false
		}
	}
	return true
}

// EnsureUser makes each node know the namespace's user with exactly these passwords.
func (l *Link) EnsureUser(ctx context.Context, namespace string, passwords ...string) error {
	s, err := l.use(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return l.explainUser(s.admin.EnsureUser(ctx, namespace, passwords...))
}

// RemoveUser makes no node know the namespace's user. Like Remove, it asks the lease first.
func (l *Link) RemoveUser(ctx context.Context, namespace string) error {
	s, err := l.use(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.Fence.Confirm(ctx); err != nil {
		return err
	}
	return l.explainUser(s.admin.RemoveUser(ctx, namespace))
}

// explainUser words what hinders ACL users. A node that is away is Redis' state, which is told by itself, and the user is
// made when the node is back; a refusal while all else works means that users can't be made.
func (l *Link) explainUser(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, configstore.ErrDenied) && l.Problem() == nil:
		return problem.New(portero.ReasonCredentialsFailed,
			"redis does not let the manager manage users; grant +acl to the user of the Secret %s: %w", AdminSecret, err)
	case errors.Is(err, configstore.ErrDenied), errors.Is(err, configstore.ErrUnreachable):
		return problem.New(portero.ReasonRedisUnreachable, "redis can't be reached: %w", err)
	default:
		return fmt.Errorf("redis: %w", err)
	}
}

// Users lists the namespaces of which any node knows a user.
func (l *Link) Users(ctx context.Context) ([]string, error) {
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	names, err := s.admin.Users(ctx)
	return names, explain(err)
}
