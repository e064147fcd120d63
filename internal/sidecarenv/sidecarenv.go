// Package sidecarenv names what the injector writes into a pod and the sidecar reads: environment, ports, paths, names.
//
// The injector and the sidecar import it. It is a leaf: standard library only.
package sidecarenv

// Names of containers and volumes in an injected pod.
const (
	ContainerName         = "portero"
	RedirectContainerName = "portero-redirect"
	CredentialsVolume     = "portero-redis"
	PodInfoVolume         = "portero-podinfo"
	// NoTokenVolume shadows the service account token, which the sidecar does not need.
	NoTokenVolume = "portero-no-token"
)

// Environment variables. Required ones are written by the injector in every mode.
const (
	// Namespace, PodName, PodUID and PodIP come from the downward API. Required.
	Namespace = "PORTERO_NAMESPACE"
	PodName   = "PORTERO_POD_NAME"
	PodUID    = "PORTERO_POD_UID"
	PodIP     = "PORTERO_POD_IP"
	// Ports lists the protected ports: APP:LISTEN:SHADOW[:NAME], separated by commas ("8080:14080:14180:http"). SHADOW is the
	// port on which kubelet's probes reach the app; the redirect uses it, the proxy does not. NAME is what the pod calls the
	// app's port. Required.
	Ports = "PORTERO_PORTS"
	// Workload is what the pod belongs to: kind in lower case and name, such as deployment/web.
	Workload = "PORTERO_WORKLOAD"
	// HostIPs lists the node's addresses, separated by commas; read by the redirect only.
	HostIPs = "PORTERO_HOST_IPS"
	// UpstreamHost is where the app listens; default: the pod's IP.
	UpstreamHost = "PORTERO_UPSTREAM_HOST"
	// LogLevel is debug, info (default), warn or error.
	LogLevel = "PORTERO_LOG_LEVEL"
	// DrainTimeout bounds how long open requests may take after SIGTERM; default 10s.
	DrainTimeout = "PORTERO_DRAIN_TIMEOUT"
)

// Port numbers, below the ephemeral range, so that no outgoing connection can take one.
const (
	// ListenPortBase and ShadowPortBase number the listeners and shadow ports of the protected ports, in their order.
	ListenPortBase = 14080
	ShadowPortBase = 14180
	// MaxPorts bounds the protected ports of one pod.
	MaxPorts = 16
	// AdminPort serves probes and metrics on the pod's address; it changes nothing.
	AdminPort = 14900
	// ControlPort takes the drain command, on loopback only.
	ControlPort = 14901
	// AdminPortName is AdminPort's name in the pod.
	AdminPortName = "portero-admin"
)

// Paths of the admin listener.
const (
	StartupPath = "/startupz"
	ReadyPath   = "/readyz"
	LivePath    = "/livez"
	MetricsPath = "/metrics"
)

// SidecarBinary is the path of the binary in the sidecar image. Its subcommands: (none) runs the proxy, "redirect"
// programs nftables and exits, "drain" tells a running sidecar to drain, "version" prints the version.
const SidecarBinary = "/sidecar"

// Files that the sidecar reads.
const (
	PodInfoDir       = "/etc/portero/podinfo"
	LabelsFile       = "labels" // in PodInfoDir, as the downward API writes them
	CredentialsDir   = "/etc/portero/redis"
	CredentialsName  = "portero-redis" // the Secret
	ServiceTokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// Keys of the Secret, and so files in CredentialsDir.
const (
	SecretAddrs     = "addrs"      // host:port, separated by commas
	SecretUsername  = "username"   // of the namespace's ACL user
	SecretPassword  = "password"   // of the namespace's ACL user
	SecretInstance  = "instance"   // keyspace.Instance
	SecretKeySecret = "key-secret" // 32 random bytes that key the tags of buckets
	SecretCA        = "ca.crt"     // optional: PEM; its presence turns TLS on
	SecretCert      = "tls.crt"    // optional: PEM client certificate
	SecretKey       = "tls.key"    // optional: PEM client key
	SecretPolicies  = "policies"   // optional: the namespace's policies, a bundle of internal/bucketconfig
)
