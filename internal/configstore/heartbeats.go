package configstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
)

const (
	heartbeatFunction  = keyspace.FunctionLibrary + "_heartbeat"
	heartbeatsFunction = keyspace.FunctionLibrary + "_heartbeats"
	pruneFunction      = keyspace.FunctionLibrary + "_prune"

	// readPods bounds one call, and so its reply to 6.4 MB of heartbeats.
	readPods = 100
)

// Heartbeats are what the sidecars of one namespace say of themselves. A sidecar sends, the manager reads and prunes. It
// is safe for concurrent use.
type Heartbeats struct {
	client redis.UniversalClient
	key    string
	config string
}

// NewHeartbeats gives access to a namespace's heartbeats.
func NewHeartbeats(client redis.UniversalClient, instance keyspace.Instance, namespace string) *Heartbeats {
	return &Heartbeats{
		client: client,
		key:    instance.Heartbeats(namespace),
		config: instance.Config(namespace),
	}
}

// Sent is what came back with a heartbeat.
type Sent struct {
	// Revision is the config's, to be compared with the snapshot's; empty when RevisionErr is set.
	Revision string
	// RevisionErr is an ErrLost when no revision is stored. The heartbeat was sent all the same.
	RevisionErr error
}

// Send stores the heartbeat of a pod and polls the revision, in one pipeline to one node. When only the heartbeat fails,
// Sent still holds the revision.
func (h *Heartbeats) Send(ctx context.Context, podUID string, heartbeat *bucketconfig.Heartbeat) (Sent, error) {
	payload, err := bucketconfig.EncodeHeartbeat(heartbeat)
	if err != nil {
		return Sent{RevisionErr: err}, err
	}
	pipe := h.client.Pipeline()
	stored := pipe.FCall(ctx, heartbeatFunction, []string{h.key}, podUID, payload)
	polled := pipe.HGet(ctx, h.config, revisionField)
	_, _ = pipe.Exec(ctx) // each command holds its own error

	var sent Sent
	switch revision, err := polled.Result(); {
	case errors.Is(err, redis.Nil), err == nil && revision == "":
		sent.RevisionErr = fmt.Errorf("poll %s: %w", h.config, ErrLost)
	case err != nil:
		sent.RevisionErr = fmt.Errorf("poll %s: %w", h.config, Classify(err))
	default:
		sent.Revision = revision
	}
	if err := stored.Err(); err != nil {
		return sent, fmt.Errorf("send heartbeat: %w", Classify(err))
	}
	return sent, nil
}

// Beat is a heartbeat as the manager reads it.
type Beat struct {
	// Heartbeat is nil when Err is set.
	Heartbeat *bucketconfig.Heartbeat
	// Age is by the clock of the Redis node that stores it, at least zero.
	Age time.Duration
	// Err says why what is stored is no heartbeat. A *bucketconfig.VersionError: a newer sidecar sent it.
	Err error
}

// Read reads the heartbeats of pods, by UID. A pod that sent none is absent: silence is unknown, never a count. The error
// is an ErrUnreachable, ErrDenied or ErrNoLibrary where it is one of these; then nothing is known.
func (h *Heartbeats) Read(ctx context.Context, podUIDs []string) (map[string]Beat, error) {
	beats := make(map[string]Beat, len(podUIDs))
	for pods := range slices.Chunk(podUIDs, readPods) {
		reply, err := h.client.FCall(ctx, heartbeatsFunction, []string{h.key}, anySlice(pods)...).Slice()
		if err != nil {
			return nil, fmt.Errorf("read heartbeats: %w", Classify(err))
		}
		if len(reply) != 1+len(pods) {
			return nil, fmt.Errorf("read heartbeats: %d values for %d pods", len(reply), len(pods))
		}
		now, ok := reply[0].(string)
		nowUS, err := strconv.ParseInt(now, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("read heartbeats: unexpected time %v", reply[0])
		}
		for i, pod := range pods {
			if value, ok := reply[1+i].(string); ok {
				beats[pod] = parseBeat(value, nowUS)
			}
		}
	}
	return beats, nil
}

func parseBeat(value string, nowUS int64) Beat {
	stamp, payload, _ := strings.Cut(value, " ")
	timeUS, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || timeUS < 0 {
		return Beat{Err: fmt.Errorf("no time before the heartbeat: %.40q", stamp)}
	}
	heartbeat, err := bucketconfig.DecodeHeartbeat([]byte(payload))
	// A failover to a node whose clock is behind must not make an age negative.
	age := min(max(0, nowUS-timeUS), int64(1<<62/time.Microsecond))
	return Beat{Heartbeat: heartbeat, Age: time.Duration(age) * time.Microsecond, Err: err}
}

// Prune removes the heartbeats of all pods but these, unless they came within the last minute: such a pod may be newer
// than the caller's list. It gives the number removed.
func (h *Heartbeats) Prune(ctx context.Context, livingPodUIDs []string) (int, error) {
	removed, err := h.client.FCall(ctx, pruneFunction, []string{h.key}, anySlice(livingPodUIDs)...).Int()
	if err != nil {
		return 0, fmt.Errorf("prune heartbeats: %w", Classify(err))
	}
	return removed, nil
}

func anySlice(values []string) []any {
	result := make([]any, len(values))
	for i, value := range values {
		result[i] = value
	}
	return result
}
