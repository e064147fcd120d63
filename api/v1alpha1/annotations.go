package v1alpha1

// Annotations that users write on a pod template. Values are strings, as all annotations are.
const (
	// InjectAnnotation opts a pod in ("true") or out ("false").
	InjectAnnotation = "portero.dev/inject"
	// InterceptionAnnotation says how traffic reaches the sidecar: Redirect, Port or None.
	InterceptionAnnotation = "portero.dev/interception"
	// PortsAnnotation lists the app's ports to protect, names or numbers, separated by commas.
	PortsAnnotation = "portero.dev/ports"
	// UpstreamHostAnnotation is where the app listens: "podIP" (default) or "127.0.0.1".
	UpstreamHostAnnotation = "portero.dev/upstream-host"
	// CPURequestAnnotation and its siblings size the sidecar; values are Kubernetes quantities.
	CPURequestAnnotation    = "portero.dev/cpu-request"
	CPULimitAnnotation      = "portero.dev/cpu-limit"
	MemoryRequestAnnotation = "portero.dev/memory-request"
	MemoryLimitAnnotation   = "portero.dev/memory-limit"
	// LogLevelAnnotation is the sidecar's log level: debug, info, warn or error.
	LogLevelAnnotation = "portero.dev/log-level"
	// DrainTimeoutAnnotation bounds how long open requests may take after the app has ended, such as "10s".
	DrainTimeoutAnnotation = "portero.dev/drain-timeout"
)

// StatusAnnotation is written by the webhook on each pod that asked for injection: a JSON object that tells the
// sidecar's version, the mode, the ports and warnings, or the reason why nothing was injected.
const StatusAnnotation = "portero.dev/status"
