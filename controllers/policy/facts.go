package policy

import (
	"github.com/portero-dev/portero/controllers/problem"
)

// Facts is all that a policy's conditions are decided from. It is gathered by the phases and holds no clock: two equal
// Facts give the same status.
type Facts struct {
	Generation int64
	// Shadow is true when all limits are in Shadow.
	Shadow bool
	// Schema is the oldest schema version of records that can express the policy.
	Schema int
	// Invalid says why the spec can't be translated; nil when it can.
	Invalid *problem.Problem
	// Publish says why the record isn't known to lie in Redis; nil when it does.
	Publish *problem.Problem
	// StoredBefore is true when this generation was seen in Redis earlier. It keeps Published while Redis can't be asked.
	StoredBefore bool
	// Redis and Credentials say what is wrong with the store and with the namespace's credentials; nil when nothing is.
	Redis       *problem.Problem
	Credentials *problem.Problem
	// RedisWarning tells which settings of Redis should be others; empty when none.
	RedisWarning string
	// Pods are those that the policy selects; nil with PodsUnknown when the selector can't be read.
	Pods        []PodFacts
	PodsUnknown bool
	// BeatsUnreadable says why heartbeats can't be read; nil when they can.
	BeatsUnreadable *problem.Problem
}

// PodFacts is what is known of one pod that the policy selects.
type PodFacts struct {
	Name     string
	UID      string
	Asked    bool
	Injected bool
	Ready    bool
	// Fresh is true when the pod's sidecar sent a heartbeat at most FreshFor ago, by Redis' time.
	Fresh bool
	// Applied is the generation of this very policy (by UID) that the sidecar applies; 0 when it applies none.
	Applied int64
	// Schema is the newest schema version of records that the sidecar reads.
	Schema int
	// Refused is why the sidecar could not use the policy's record; empty when it could.
	Refused string
	// Fallback is true while the sidecar decides locally.
	Fallback bool
	// Others are the names of the other policies that the sidecar applies.
	Others []string
}

// concerned are the pods whose sidecars the policy needs: ready, and they asked.
func (f *Facts) concerned() []*PodFacts {
	var out []*PodFacts
	for i := range f.Pods {
		if p := &f.Pods[i]; p.Asked && p.Ready {
			out = append(out, p)
		}
	}
	return out
}

func (f *Facts) asked() int {
	n := 0
	for i := range f.Pods {
		if f.Pods[i].Asked {
			n++
		}
	}
	return n
}
