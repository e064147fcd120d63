package beats

import (
	"maps"
	"slices"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// digest is what of a heartbeat decides conditions: not its counters and not its exact age.
type digest struct {
	fresh    bool
	unread   bool
	fallback bool
	applied  []applied
	refused  []bucketconfig.RefusedPolicy
}

type applied struct {
	uid        string
	generation int64
}

func digestOf(snapshot Snapshot) map[string]digest {
	out := make(map[string]digest, len(snapshot.Beats))
	for uid := range snapshot.Beats {
		beat := snapshot.Beats[uid]
		d := digest{fresh: beat.Fresh(), unread: beat.Err != nil, fallback: beat.Fallback, refused: beat.Refused}
		for i := range beat.Applied {
			d.applied = append(d.applied, applied{beat.Applied[i].UID, beat.Applied[i].Generation})
		}
		out[uid] = d
	}
	return out
}

func equal(a, b map[string]digest) bool {
	return maps.EqualFunc(a, b, func(x, y digest) bool {
		return x.fresh == y.fresh && x.unread == y.unread && x.fallback == y.fallback &&
			slices.Equal(x.applied, y.applied) && slices.Equal(x.refused, y.refused)
	})
}
