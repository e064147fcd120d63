package configstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
)

// Fence orders leaders: it grows with each change of the leader lease's holder, and with the lease's re-creation, which
// counts its transitions from the start again. Created is the lease's creation time.
func Fence(created time.Time, transitions int32) int64 {
	return max(0, created.Unix())<<21 + int64(min(max(transitions, 0), 1<<21-1))
}

// Writer publishes the records of namespaces. It is the manager's, and safe for concurrent use; but two publications of
// one namespace at a time may land in either order.
type Writer struct {
	client   redis.UniversalClient
	instance keyspace.Instance
	fence    int64
}

// NewWriter gives a writer for one term of a leader. fence is 0 or more and below 2^53 - 1; see Fence.
func NewWriter(client redis.UniversalClient, instance keyspace.Instance, fence int64) *Writer {
	return &Writer{client: client, instance: instance, fence: fence}
}

// Policy is what is to be stored for one policy.
type Policy struct {
	Name string
	// Record is the policy's state, in the newest schema version. Nil lets stay what is stored: the last good version of one
	// that can't be translated.
	Record *bucketconfig.Record
	Share  bucketconfig.Share
}

// Publication is the wanted state of a namespace.
type Publication struct {
	// Policies are all of the namespace. Those that are stored and not listed are removed; no policy at all leaves a
	// revision without any, which sidecars read as "none", not as "lost".
	Policies []Policy
	// Supersedes is an epoch above the writer's fence that may be overwritten, from a FencedError. Only who has made sure
	// that it is the leader may set it: it gets past an epoch that a hand or another lease left behind.
	Supersedes int64
	// Listed is true when the namespace is known to stand in the index, which is then not asked: its one key must not
	// decide whether anything can be published.
	Listed bool
}

// Published is the outcome of a publication.
type Published struct {
	Revision string
	// Changed is true when something differed and sidecars are told; then Revision is new.
	Changed bool
	// Refused holds the policies whose record can't be encoded. What was stored for them stays.
	Refused map[string]error
}

// Publish makes Redis hold exactly what is wanted for the namespace, in one step for all readers. It writes nothing when
// nothing differs, so it also is the repair after a FLUSHALL, a restored backup or a hand edit: call it again and again.
//
// The error is an ErrFenced, ErrUnreachable, ErrDenied or ErrNoLibrary where it is one of these.
func (w *Writer) Publish(ctx context.Context, namespace string, publication Publication) (Published, error) {
	fields, keep, refused := encodeFields(publication.Policies)
	args := make([]any, 0, 4+len(fields)+len(keep))
	args = append(args, w.fence, publication.Supersedes, w.instance.ConfigChannel(namespace), len(fields)/3)
	args = append(args, fields...)
	args = append(args, keep...)

	// The index first: the sweep must find whatever a crash leaves behind.
	if !publication.Listed {
		if err := w.client.SAdd(ctx, w.instance.Namespaces(), namespace).Err(); err != nil {
			return Published{}, fmt.Errorf("publish namespace %s: list it: %w", namespace, Classify(err))
		}
	}
	reply, err := w.client.FCall(ctx, publishFunction, []string{w.instance.Config(namespace)}, args...).Slice()
	if err != nil {
		if fenced := fencedBy(err, w.fence); fenced != nil {
			err = fenced
		}
		return Published{}, fmt.Errorf("publish namespace %s: %w", namespace, Classify(err))
	}
	revision, changed, err := parsePublished(reply)
	if err != nil {
		return Published{}, fmt.Errorf("publish namespace %s: %w", namespace, err)
	}
	return Published{Revision: revision, Changed: changed, Refused: refused}, nil
}

const publishFunction = keyspace.FunctionLibrary + "_publish"

// encodeFields gives field, value and digest of all that is known, and the fields that stay as they are stored.
func encodeFields(policies []Policy) (fields, keep []any, refused map[string]error) {
	add := func(field string, value []byte) {
		fields = append(fields, field, value, bucketconfig.Digest(value))
	}
	for _, policy := range policies {
		records, err := encodeRecords(policy)
		var share []byte
		if err == nil {
			share, err = bucketconfig.EncodeShare(policy.Share)
		}
		if err != nil {
			if refused == nil {
				refused = make(map[string]error)
			}
			refused[policy.Name] = err
			records = nil
			keep = append(keep, sharePrefix+policy.Name)
		} else {
			add(sharePrefix+policy.Name, share)
		}
		for _, field := range recordFields(policy.Name) {
			if record, ok := records[field]; ok {
				add(field, record)
			} else {
				keep = append(keep, field)
			}
		}
	}
	return fields, keep, refused
}

// encodeRecords gives the policy's record, by field, in each schema version that can express it. All are written whether a
// sidecar asks for them or not: one that is cut off sends no heartbeat, and must find its record when it comes back. A
// version that can't express the policy any more keeps what it had last.
func encodeRecords(policy Policy) (map[string][]byte, error) {
	if policy.Record == nil {
		return nil, nil
	}
	if policy.Record.Name != policy.Name {
		return nil, fmt.Errorf("the record is named %q", policy.Record.Name)
	}
	records := make(map[string][]byte, 2)
	encode := func(record *bucketconfig.Record) error {
		data, err := bucketconfig.Encode(record)
		records[recordField(record.Schema, policy.Name)] = data
		return err
	}
	if err := encode(policy.Record); err != nil {
		return nil, err
	}
	if older, ok := bucketconfig.Schema1(policy.Record); ok {
		if err := encode(older); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func parsePublished(reply []any) (revision string, changed bool, err error) {
	if len(reply) == 2 {
		revision, isString := reply[0].(string)
		flag, isInt := reply[1].(int64)
		if isString && isInt {
			return revision, flag == 1, nil
		}
	}
	return "", false, fmt.Errorf("unexpected reply %v", reply)
}

// Namespaces lists the namespaces that have anything in Redis, sorted: what the sweep compares with the API.
func (w *Writer) Namespaces(ctx context.Context) ([]string, error) {
	namespaces, err := w.client.SMembers(ctx, w.instance.Namespaces()).Result()
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", Classify(err))
	}
	slices.Sort(namespaces)
	return namespaces, nil
}

// Remove removes everything of a namespace but its buckets, which expire. It is for namespaces that are gone or hold
// neither policies nor sidecars: a sidecar that still lives reads "lost" and keeps what it has.
func (w *Writer) Remove(ctx context.Context, namespace string) error {
	keys := []string{w.instance.Config(namespace), w.instance.Heartbeats(namespace)}
	if err := w.client.Unlink(ctx, keys...).Err(); err != nil {
		return fmt.Errorf("remove namespace %s: %w", namespace, Classify(err))
	}
	// The index last: what a crash leaves behind must be found again.
	if err := w.client.SRem(ctx, w.instance.Namespaces(), namespace).Err(); err != nil {
		return fmt.Errorf("remove namespace %s: unlist it: %w", namespace, Classify(err))
	}
	return nil
}
