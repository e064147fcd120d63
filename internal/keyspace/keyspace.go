// Package keyspace is the only place that spells a Redis key or channel of Portero.
//
// Both planes import it. It is a leaf: standard library only.
package keyspace

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"regexp"
	"strings"
	"sync"
)

const prefix = "portero:v1:"

// FunctionLibrary is the name of the Redis Function library. It carries the version, so that two versions of the manager
// can serve their sidecars at once.
const FunctionLibrary = "portero_v1"

// Instance tells the keys of one Portero from those of another on the same Redis: 1 to 63 lower-case letters, digits and dashes.
type Instance string

var instancePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseInstance checks an instance's name.
func ParseInstance(s string) (Instance, error) {
	if !instancePattern.MatchString(s) {
		return "", fmt.Errorf("instance %q: must be 1 to 63 lower-case letters, digits or dashes, and start and end with a letter or digit", s)
	}
	return Instance(s), nil
}

// Config is the hash that holds a namespace's records, digests, epoch and revision.
func (i Instance) Config(namespace string) string {
	return prefix + string(i) + ":{ns:" + namespace + "}:cfg"
}

// Heartbeats is the hash that holds a namespace's heartbeats, by pod UID. It shares Config's slot.
func (i Instance) Heartbeats(namespace string) string {
	return prefix + string(i) + ":{ns:" + namespace + "}:hb"
}

// Namespaces is the set of namespaces that have anything in Redis.
func (i Instance) Namespaces() string { return prefix + string(i) + ":namespaces" }

// ConfigChannel is the channel that tells of a namespace's new revisions.
func (i Instance) ConfigChannel(namespace string) string {
	return prefix + string(i) + ":cfg:" + namespace
}

// BucketPattern matches the keys of all buckets of a namespace, as an ACL rule spells it.
func (i Instance) BucketPattern(namespace string) string {
	return prefix + string(i) + ":b:" + namespace + ":*"
}

// Bucket is the key of the buckets of one policy for one set of key values.
func (i Instance) Bucket(namespace string, tag string) string {
	return prefix + string(i) + ":b:" + namespace + ":{" + tag + "}"
}

// userPrefix begins the names of our ACL users. Colons, which neither an instance nor a namespace can hold, separate: with
// dashes the namespace "b-c" of instance "a" would share a user with "c" of "a-b".
const userPrefix = "portero:"

// User is the name of the ACL user of a namespace's sidecars.
func (i Instance) User(namespace string) string { return userPrefix + string(i) + ":" + namespace }

// UserNamespace is the namespace whose sidecars an ACL user of this instance serves; false for anybody else's user.
func (i Instance) UserNamespace(user string) (string, bool) {
	namespace, ours := strings.CutPrefix(user, i.User(""))
	return namespace, ours && namespace != ""
}

// tagSize is how much of the MAC is kept: 128 bits make an accidental collision as unlikely as a guess.
const (
	tagSize       = 16
	base64TagSize = (tagSize*8 + 5) / 6
)

// Tagger names sets of key values under one secret of a namespace. It is safe for concurrent use.
type Tagger struct{ macs sync.Pool }

// tagging is the scratch space of one tag.
type tagging struct {
	mac     hash.Hash
	message []byte
	sum     [sha256.Size]byte
}

// maxMessage is the largest scratch space that is kept: values are as long as clients make them.
const maxMessage = 16 << 10

// NewTagger makes a Tagger. It keeps no reference to the secret.
func NewTagger(secret []byte) *Tagger {
	secret = bytes.Clone(secret)
	return &Tagger{macs: sync.Pool{New: func() any { return &tagging{mac: hmac.New(sha256.New, secret)} }}}
}

// Tag names one set of key values without telling them: HMAC-SHA-256 over the length-prefixed parts. Length prefixes make
// it injective: no separator can collide. The result holds no braces or colons.
func (t *Tagger) Tag(parts ...string) string {
	state := t.macs.Get().(*tagging)
	message := state.message[:0]
	for _, part := range parts {
		message = binary.BigEndian.AppendUint64(message, uint64(len(part)))
		message = append(message, part...)
	}
	state.mac.Reset()
	state.mac.Write(message)
	sum := state.mac.Sum(state.sum[:0])
	var text [base64TagSize]byte
	base64.RawURLEncoding.Encode(text[:], sum[:tagSize])
	if state.message = message; cap(message) > maxMessage {
		state.message = nil
	}
	t.macs.Put(state)
	return string(text[:])
}
