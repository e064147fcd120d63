package injector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/portero-dev/portero/api/v1alpha1"
)

const (
	annotationPrefix = "portero.dev/"
	requested        = "true"
	// requiredAnnotation asks the API server to refuse the pod without a sidecar; it needs nothing from the injector.
	requiredAnnotation = annotationPrefix + "required"

	upstreamPodIP    = "podIP"
	upstreamLoopback = "127.0.0.1"

	// defaultDrain is the sidecar's own default; it stands here for the warning about the grace period.
	defaultDrain = 10 * time.Second
	maxDrain     = time.Hour
	// drainMargin is what the end of a pod takes beside draining: the app's own end and the sidecar's exit.
	drainMargin        = 5 * time.Second
	defaultGracePeriod = 30 * time.Second
)

var knownAnnotations = []string{
	v1alpha1.InjectAnnotation, v1alpha1.InterceptionAnnotation, v1alpha1.PortsAnnotation, v1alpha1.UpstreamHostAnnotation,
	v1alpha1.CPURequestAnnotation, v1alpha1.CPULimitAnnotation, v1alpha1.MemoryRequestAnnotation,
	v1alpha1.MemoryLimitAnnotation, v1alpha1.LogLevelAnnotation, v1alpha1.DrainTimeoutAnnotation,
	v1alpha1.StatusAnnotation, requiredAnnotation,
}

var logLevels = []string{"debug", "info", "warn", "error"}

// settings are the annotations of a pod, read.
type settings struct {
	mode         Mode
	upstreamHost string // empty: the sidecar's default
	logLevel     string // empty: the sidecar's default
	drainTimeout string // empty: the sidecar's default
	// cpuRequest and its siblings are nil where the pod does not set them.
	cpuRequest, cpuLimit, memoryRequest, memoryLimit *resource.Quantity
}

// readSettings reads all annotations but that of the ports. A value that decides how the pod is wired must be right; one
// that only tunes falls back to its default with a warning. Warnings are told with a refusal too: a misspelled key is often
// why the pod is refused.
func readSettings(pod *corev1.Pod, o Options) (settings, []string, *refusal) {
	a := pod.Annotations
	s := settings{mode: ModeRedirect}
	warnings := s.readTuning(pod)
	if o.RestrictedNamespace {
		s.mode = ModePort
	}
	if v, ok := a[v1alpha1.InterceptionAnnotation]; ok {
		s.mode = Mode(v)
	}
	switch {
	case s.mode != ModeRedirect && s.mode != ModePort && s.mode != ModeNone:
		return s, warnings, refuse(ReasonInvalidAnnotation, "%s is %s: use Redirect, Port or None",
			v1alpha1.InterceptionAnnotation, quote(string(s.mode)))
	case o.RestrictedNamespace && s.mode != ModeNone:
		return s, warnings, refuse(ReasonPodSecurity, "the namespace enforces Pod Security baseline or restricted, which does not "+
			"admit interception Redirect, and interception Port is not available in this version: "+
			"run the workload in a namespace with level privileged, or use None and send traffic to the sidecar's own port")
	case s.mode == ModePort:
		return s, warnings, refuse(ReasonInterceptionUnavailable,
			"interception Port is not available in this version: use Redirect or None")
	}
	switch v, ok := a[v1alpha1.UpstreamHostAnnotation]; {
	case !ok || v == upstreamPodIP:
	case v == upstreamLoopback:
		s.upstreamHost = v
	default:
		return s, warnings, refuse(ReasonInvalidAnnotation, "%s is %s: use %s or %s",
			v1alpha1.UpstreamHostAnnotation, quote(v), upstreamPodIP, upstreamLoopback)
	}
	return s, warnings, nil
}

func (s *settings) readTuning(pod *corev1.Pod) (warnings []string) {
	a := pod.Annotations
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if strings.HasPrefix(k, annotationPrefix) && !slices.Contains(knownAnnotations, k) {
			warn("annotation %s is not known and was ignored", quote(k))
		}
	}
	for _, q := range []struct {
		key  string
		into **resource.Quantity
	}{
		{v1alpha1.CPURequestAnnotation, &s.cpuRequest}, {v1alpha1.CPULimitAnnotation, &s.cpuLimit},
		{v1alpha1.MemoryRequestAnnotation, &s.memoryRequest}, {v1alpha1.MemoryLimitAnnotation, &s.memoryLimit},
	} {
		text, ok := a[q.key]
		if !ok {
			continue
		}
		if v, err := resource.ParseQuantity(text); err != nil || v.Sign() <= 0 {
			warn("%s is %s, which is no positive quantity: the default is used", q.key, quote(text))
		} else {
			*q.into = &v
		}
	}
	if v, ok := a[v1alpha1.LogLevelAnnotation]; ok {
		if slices.Contains(logLevels, v) {
			s.logLevel = v
		} else {
			warn("%s is %s, not one of %s: the default is used",
				v1alpha1.LogLevelAnnotation, quote(v), strings.Join(logLevels, ", "))
		}
	}
	drain := defaultDrain
	if v, ok := a[v1alpha1.DrainTimeoutAnnotation]; ok {
		if d, err := time.ParseDuration(v); err != nil || d <= 0 || d > maxDrain {
			warn("%s is %s, not a duration up to %s such as 10s: the default is used",
				v1alpha1.DrainTimeoutAnnotation, quote(v), maxDrain)
		} else {
			s.drainTimeout, drain = v, d
		}
	}
	grace := defaultGracePeriod
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = time.Duration(min(*g, int64(2*maxDrain/time.Second))) * time.Second
	}
	if grace < drain+drainMargin {
		warn("terminationGracePeriodSeconds %d leaves too little time to drain: %s and %s for the app's own end are wanted",
			int64(grace/time.Second), drain, drainMargin)
	}
	return warnings
}
