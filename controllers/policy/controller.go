// Package policy reconciles a RateLimitPolicy: it publishes the policy in Redis and tells in its status what the sidecars
// really enforce.
//
// Reconcile is a list of phases of one signature, then one status patch. What conditions say is decided by pure functions
// from the Facts that the phases gathered. The package must stay free of Redis clients: it declares what it needs.
package policy

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/controllers/beats"
	"github.com/portero-dev/portero/controllers/problem"
	"github.com/portero-dev/portero/controllers/publisher"
	"github.com/portero-dev/portero/internal/bucketconfig"
)

// +kubebuilder:rbac:groups=portero.dev,resources=ratelimitpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=portero.dev,resources=ratelimitpolicies/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Publisher keeps a namespace's records in Redis.
type Publisher interface {
	// Publish makes Redis hold the policy, or its last good version where the spec can't be translated now. It asks Redis
	// only when that is not known to be there.
	Publish(ctx context.Context, namespace string, update publisher.Update) error
	// Withdraw makes Redis no longer hold a policy that is gone.
	Withdraw(ctx context.Context, namespace, policy string) error
}

// Board tells what sidecars last reported.
type Board interface {
	// Read is what the namespace's sidecars last sent; those of the pods named are looked for anew when one is missing.
	Read(ctx context.Context, namespace string, podUIDs []string) beats.Snapshot
	Traffic(namespace, policyUID string) (beats.Traffic, bool)
}

// Reconciler reconciles policies. All fields are required.
type Reconciler struct {
	Client    client.Client
	Recorder  events.EventRecorder
	Publisher Publisher
	Board     Board
	// Redis and Credentials tell what is wrong with Redis, and with the credentials of a namespace or what its Secret holds of a policy, nil when
	// nothing is.
	Redis func() *problem.Problem
	// RedisWarning tells which settings of Redis should be others; empty when none.
	RedisWarning func() string
	Credentials  func(namespace, policy string) *problem.Problem
	// TrafficWrites bounds the status writes that only carry new traffic figures, over all policies.
	TrafficWrites *rate.Limiter
	Now           func() time.Time
}

// pass is one run over one policy: what the phases hand on.
type pass struct {
	policy *portero.RateLimitPolicy
	record *bucketconfig.Record
	facts  Facts
	// requeue is when to look again though nothing happens; 0 for never.
	requeue time.Duration
}

// lookAgain asks for another pass; the earliest one asked for counts.
func (p *pass) lookAgain(after time.Duration) {
	if p.requeue == 0 || after < p.requeue {
		p.requeue = after
	}
}

// phase does one step. An error does not keep later phases from running: the status has to tell of it.
type phase func(context.Context, *pass) error

// Reconcile publishes one policy and writes its status.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	policy := &portero.RateLimitPolicy{}
	err := r.Client.Get(ctx, request.NamespacedName, policy)
	if apierrors.IsNotFound(err) || (err == nil && !policy.DeletionTimestamp.IsZero()) {
		forgetMetrics(request.NamespacedName)
		// While Redis is away this can't succeed; the sweep catches up.
		return ctrl.Result{}, ignoreProblems(r.Publisher.Withdraw(ctx, request.Namespace, request.Name))
	}
	if err != nil {
		return ctrl.Result{}, err
	}

	p := &pass{policy: policy}
	var errs []error
	for _, run := range []phase{r.translate, r.selectPods, r.readHeartbeats, r.publish, r.writeStatus} {
		errs = append(errs, run(ctx, p))
	}
	return ctrl.Result{RequeueAfter: p.requeue}, errors.Join(errs...)
}

// ignoreProblems drops errors that a condition already tells, and that need no retry in a hurry.
func ignoreProblems(err error) error {
	var p *problem.Problem
	if errors.As(err, &p) {
		return nil
	}
	return err
}
