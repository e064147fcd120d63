package configstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/redis/go-redis/v9"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/keyspace"
)

// Reader follows the records of one namespace. It is a sidecar's, and safe for concurrent use.
type Reader struct {
	client   *redis.ClusterClient
	instance keyspace.Instance
	channel  string
	key      string
}

// NewReader gives a reader of a namespace's records.
func NewReader(client *redis.ClusterClient, instance keyspace.Instance, namespace string) *Reader {
	return &Reader{
		client:   client,
		instance: instance,
		channel:  instance.ConfigChannel(namespace),
		key:      instance.Config(namespace),
	}
}

// Snapshot is what is stored for a namespace at one instant. It and all it holds are not to be changed.
type Snapshot struct {
	Revision string
	// Policies are by name. A policy that is not here is deleted.
	Policies map[string]StoredPolicy
}

// StoredPolicy is what is known of one policy.
type StoredPolicy struct {
	// Record is the stored record; where that can't be used, the last good one, or nil. Records that did not change keep
	// their address from one snapshot to the next.
	Record *bucketconfig.Record
	// Share is the stored share; where that can't be used, the last good one, or one sidecar.
	Share bucketconfig.Share
	// Err says why the stored record can't be used. A *bucketconfig.VersionError: it was written for a newer sidecar.
	Err error
	// ShareErr says why the stored share can't be used.
	ShareErr error

	recordDigest, shareDigest string
}

// readAttempts bounds how often Update reads anew because a publication came in between.
const readAttempts = 5

// Update reads what changed since an older snapshot, which may be nil, and gives that one back when nothing did.
//
// The error is an ErrLost when nothing is stored, or an ErrUnreachable or ErrDenied where it is one of these. In all
// cases the caller keeps what it has.
func (r *Reader) Update(ctx context.Context, old *Snapshot) (*Snapshot, error) {
	head, err := r.read(ctx, nil)
	if err != nil {
		return nil, err
	}
	if old == nil {
		old = &Snapshot{}
	}
	if old.Revision == head.revision {
		return old, nil
	}
	for range readAttempts {
		wanted := head.changedSince(old)
		full := head
		if len(wanted) > 0 {
			if full, err = r.read(ctx, wanted); err != nil {
				return nil, err
			}
		}
		if maps.Equal(full.digests, head.digests) {
			return full.snapshot(old), nil
		}
		head = full
	}
	return nil, fmt.Errorf("read %s: it changed %d times meanwhile", r.key, readAttempts)
}

// Revision reads the revision alone. The error is one of Update's.
func (r *Reader) Revision(ctx context.Context) (string, error) {
	revision, err := r.client.HGet(ctx, r.key, revisionField).Result()
	if errors.Is(err, redis.Nil) || err == nil && revision == "" {
		return "", fmt.Errorf("read %s: %w", r.key, ErrLost)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", r.key, Classify(err))
	}
	return revision, nil
}

// content is what one HMGET gave: all of one instant.
type content struct {
	revision string
	digests  map[string]string
	values   map[string]string // of the fields asked for, where there is one
}

func (r *Reader) read(ctx context.Context, fields []string) (content, error) {
	reply, err := r.client.HMGet(ctx, r.key, append([]string{revisionField, digestsField}, fields...)...).Result()
	if err != nil {
		return content{}, fmt.Errorf("read %s: %w", r.key, Classify(err))
	}
	if len(reply) != 2+len(fields) {
		return content{}, fmt.Errorf("read %s: %d values for %d fields", r.key, len(reply), 2+len(fields))
	}
	revision, _ := reply[0].(string)
	digests, _ := reply[1].(string)
	if revision == "" || digests == "" {
		return content{}, fmt.Errorf("read %s: %w", r.key, ErrLost)
	}
	c := content{revision: revision, values: make(map[string]string, len(fields))}
	if err := json.Unmarshal([]byte(digests), &c.digests); err != nil || c.digests == nil {
		return content{}, fmt.Errorf("read %s: %w: digests %.100q", r.key, ErrLost, digests)
	}
	for i, field := range fields {
		if value, ok := reply[2+i].(string); ok {
			c.values[field] = value
		}
	}
	return c, nil
}

// versions are the schema versions that a policy's record is stored in.
type versions struct {
	newest   int
	readable int // the newest that this build reads, 0 when there is none
}

// policies gives the names of all policies that there are, in whatever schema version.
func (c content) policies() map[string]versions {
	names := make(map[string]versions)
	for field := range c.digests {
		version, name, ok := parseRecordField(field)
		if !ok {
			continue
		}
		known := names[name]
		known.newest = max(known.newest, version)
		if version <= bucketconfig.SchemaVersion {
			known.readable = max(known.readable, version)
		}
		names[name] = known
	}
	return names
}

// changedSince lists the fields to read: those with another digest than before, and those that could not be used.
func (c content) changedSince(old *Snapshot) []string {
	var fields []string
	for name, stored := range c.policies() {
		before := old.Policies[name]
		record, share := recordField(stored.readable, name), sharePrefix+name
		if digest, ok := c.digests[record]; ok && (digest != before.recordDigest || before.Err != nil) {
			fields = append(fields, record)
		}
		if digest, ok := c.digests[share]; ok && (digest != before.shareDigest || before.ShareErr != nil) {
			fields = append(fields, share)
		}
	}
	return fields
}

func (c content) snapshot(old *Snapshot) *Snapshot {
	names := c.policies()
	next := &Snapshot{Revision: c.revision, Policies: make(map[string]StoredPolicy, len(names))}
	for name, stored := range names {
		next.Policies[name] = c.policy(name, stored, old.Policies[name])
	}
	return next
}

// policy makes a policy of what was read of it, on top of what was known before.
func (c content) policy(name string, stored versions, before StoredPolicy) StoredPolicy {
	next := StoredPolicy{Record: before.Record, Share: before.Share, recordDigest: before.recordDigest, shareDigest: before.shareDigest}
	if next.Share.Sidecars == 0 {
		next.Share.Sidecars = 1
	}
	next.Err = next.takeRecord(c, name, stored)
	next.ShareErr = next.takeShare(c, name)
	return next
}

func (p *StoredPolicy) takeRecord(c content, name string, stored versions) error {
	if stored.readable == 0 {
		return &bucketconfig.VersionError{Version: stored.newest}
	}
	field := recordField(stored.readable, name)
	digest := c.digests[field]
	value, fresh := c.values[field]
	if !fresh && digest == p.recordDigest {
		return nil // unchanged, and so not read
	}
	if err := verify(value, digest); err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	record, err := bucketconfig.Decode([]byte(value))
	if err != nil {
		return err
	}
	if record.Name != name {
		return fmt.Errorf("read record: it is of policy %q", record.Name)
	}
	p.Record, p.recordDigest = record, digest
	return nil
}

func (p *StoredPolicy) takeShare(c content, name string) error {
	field := sharePrefix + name
	digest, listed := c.digests[field]
	value, fresh := c.values[field]
	if listed && !fresh && digest == p.shareDigest {
		return nil // unchanged, and so not read
	}
	if !listed {
		return errors.New("read share: none is stored")
	}
	if err := verify(value, digest); err != nil {
		return fmt.Errorf("read share: %w", err)
	}
	share, err := bucketconfig.DecodeShare([]byte(value))
	if err != nil {
		return err
	}
	p.Share, p.shareDigest = share, digest
	return nil
}

// verify finds what a hand has changed: then what is stored is not what the manager wrote.
func verify(value, digest string) error {
	if got := bucketconfig.Digest([]byte(value)); got != digest {
		return fmt.Errorf("stored with digest %q, published with %q", got, digest)
	}
	return nil
}
