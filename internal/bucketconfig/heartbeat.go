package bucketconfig

import (
	"encoding/json"
	"fmt"
)

// EncodeHeartbeat makes a heartbeat what stands in Redis: JSON. One that is too long loses the counters of its limits
// first, as they serve only statistics, while the policies applied decide what the user is told.
func EncodeHeartbeat(heartbeat *Heartbeat) ([]byte, error) {
	if err := heartbeat.Validate(); err != nil {
		return nil, fmt.Errorf("encode heartbeat: %w", err)
	}
	text, err := json.Marshal(heartbeat)
	if err != nil {
		return nil, fmt.Errorf("encode heartbeat: %w", err)
	}
	if len(text) <= MaxHeartbeatSize {
		return text, nil
	}
	bare := *heartbeat
	bare.Applied = make([]AppliedPolicy, len(heartbeat.Applied))
	for i, policy := range heartbeat.Applied {
		policy.Limits = nil
		bare.Applied[i] = policy
	}
	if text, err = json.Marshal(&bare); err != nil {
		return nil, fmt.Errorf("encode heartbeat: %w", err)
	}
	if len(text) > MaxHeartbeatSize {
		return nil, fmt.Errorf("encode heartbeat: %d bytes without counters exceed %d: fewer policies must select the pod", len(text), MaxHeartbeatSize)
	}
	return text, nil
}

// DecodeHeartbeat reads and checks a heartbeat, also of a sidecar that is older. Its error is a *VersionError when the
// schema version is unknown.
func DecodeHeartbeat(data []byte) (*Heartbeat, error) {
	if len(data) > MaxHeartbeatSize {
		return nil, fmt.Errorf("decode heartbeat: %d bytes exceed %d", len(data), MaxHeartbeatSize)
	}
	if err := checkSchema(data); err != nil {
		return nil, fmt.Errorf("decode heartbeat: %w", err)
	}
	heartbeat := &Heartbeat{}
	if err := json.Unmarshal(data, heartbeat); err != nil {
		return nil, fmt.Errorf("decode heartbeat: %w", err)
	}
	if err := heartbeat.Validate(); err != nil {
		return nil, fmt.Errorf("decode heartbeat: %w", err)
	}
	return heartbeat, nil
}

// Validate checks every bound of a heartbeat; it says which field is wrong.
func (h *Heartbeat) Validate() error {
	return firstError(
		within("schema", knownVersion(h.Schema)),
		text("podName", h.PodName, 0, MaxName),
		text("startId", h.StartID, 1, MaxName),
		text("sidecarVersion", h.SidecarVersion, 0, MaxName),
		text("revision", h.Revision, 0, 32),
		count("applied", len(h.Applied), MaxHeartbeatPolicy),
		count("refused", len(h.Refused), MaxHeartbeatPolicy),
		each("applied", h.Applied, (*AppliedPolicy).validate),
		each("refused", h.Refused, (*RefusedPolicy).validate),
	)
}

func (p *AppliedPolicy) validate() error {
	return firstError(
		text("name", p.Name, 1, MaxName),
		text("uid", p.UID, 1, MaxName),
		atLeast("generation", p.Generation, 0),
		count("limits", len(p.Limits), MaxLimits),
		each("limits", p.Limits, func(c *LimitCounter) error { return text("name", c.Name, 1, MaxName) }),
	)
}

func (p *RefusedPolicy) validate() error {
	return firstError(
		text("name", p.Name, 1, MaxName),
		text("reason", p.Reason, 0, MaxReason),
	)
}
