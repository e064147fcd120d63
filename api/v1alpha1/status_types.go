package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RateLimitPolicyStatus tells what is really enforced.
type RateLimitPolicyStatus struct {
	// observedGeneration is the generation that this status speaks of.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// enforcedGeneration is the newest generation that every pod that asked enforces (in Shadow: applies). Absent: none.
	// +kubebuilder:validation:Minimum=0
	// +optional
	EnforcedGeneration int64 `json:"enforcedGeneration,omitempty"`
	// conditions are Ready, Accepted, Published, Enforced, Degraded and TrafficBypass, always all six.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// limitsSummary names the limits for a table's column, at most 64 characters: "per-key,burst", "per-key,burst,+3".
	// +kubebuilder:validation:MaxLength=64
	// +optional
	LimitsSummary string `json:"limitsSummary,omitempty"`
	// pods counts the pods that the policy selects. Absent: not counted yet.
	// +optional
	Pods *PodCounts `json:"pods,omitempty"`
	// limits counts the verdicts of each limit over the window of traffic, at most 16.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Limits []LimitStatus `json:"limits,omitempty"`
	// overlaps are the other policies that sidecars of this policy's pods enforce too: all limits of all of them apply to a request, within
	// the smallest store.timeout, and where Redis fails the strictest result wins. Absent while nobody tells.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=policy
	// +optional
	Overlaps []Overlap `json:"overlaps,omitempty"`
	// traffic counts the verdicts of the whole policy over a window. Written at most once a minute.
	// +optional
	Traffic *Traffic `json:"traffic,omitempty"`
}

// PodCounts counts the pods that the policy selects. What can't be read is absent, never 0.
type PodCounts struct {
	// summary is enforcing (in Shadow: applied) over asked, "3/3"; "?/3" when heartbeats can't be read.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Summary string `json:"summary,omitempty"`
	// matched counts the pods that the selector matches, finished ones left out.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Matched *int32 `json:"matched,omitempty"`
	// unprotected counts the matched pods that never asked for injection.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Unprotected *int32 `json:"unprotected,omitempty"`
	// injected counts the matched pods that have a sidecar.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Injected *int32 `json:"injected,omitempty"`
	// enforcing counts the pods whose fresh heartbeat names this generation and no fallback.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Enforcing *int32 `json:"enforcing,omitempty"`
	// fallback counts the pods that decide locally because Redis can't answer them.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Fallback *int32 `json:"fallback,omitempty"`
	// unknown counts the pods with a sidecar and no fresh heartbeat.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Unknown *int32 `json:"unknown,omitempty"`
}

// LimitStatus counts the verdicts of one limit.
type LimitStatus struct {
	// name is the limit's name in the spec.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`
	// mode is the limit's effective mode.
	// +required
	Mode Mode `json:"mode"`
	// allowed counts the requests that the limit admitted.
	// +kubebuilder:validation:Minimum=0
	// +required
	Allowed int64 `json:"allowed"`
	// denied counts the requests that the limit refused.
	// +kubebuilder:validation:Minimum=0
	// +required
	Denied int64 `json:"denied"`
	// shadowDenied counts the requests that the limit would have refused.
	// +kubebuilder:validation:Minimum=0
	// +required
	ShadowDenied int64 `json:"shadowDenied"`
}

// Overlap is another policy of the namespace on the same pods.
type Overlap struct {
	// policy is the other policy's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Policy string `json:"policy"`
	// pods counts the pods whose sidecars say that they enforce both.
	// +kubebuilder:validation:Minimum=1
	// +required
	Pods int32 `json:"pods"`
}

// Traffic counts the verdicts of the whole policy over a window.
type Traffic struct {
	// allowed counts the governed requests that passed.
	// +kubebuilder:validation:Minimum=0
	// +required
	Allowed int64 `json:"allowed"`
	// denied counts the requests that were refused.
	// +kubebuilder:validation:Minimum=0
	// +required
	Denied int64 `json:"denied"`
	// shadowDenied counts the requests that would have been refused.
	// +kubebuilder:validation:Minimum=0
	// +required
	ShadowDenied int64 `json:"shadowDenied"`
	// window is the time that the counts cover, up to an hour: "3m" soon after the manager began to watch, then "1h".
	// +required
	Window Duration `json:"window"`
	// observedTime is when the counts were read.
	// +required
	ObservedTime metav1.Time `json:"observedTime"`
}
