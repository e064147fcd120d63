package injector

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

// rendered is what the injection puts into a pod.
type rendered struct {
	sidecar  corev1.Container
	redirect *corev1.Container // nil unless the mode is Redirect
	volumes  []corev1.Volume
}

func render(pod *corev1.Pod, s settings, ports []Port, z sized, o Options) rendered {
	r := rendered{sidecar: sidecarContainer(pod, s, ports, z, o), volumes: volumes()}
	if s.mode == ModeRedirect {
		c := redirectContainer(ports, z, o)
		r.redirect = &c
	}
	return r
}

// digest names what was rendered. It has no other use than to be compared.
func (r rendered) digest() (string, error) {
	raw, err := json.Marshal([]any{r.sidecar, r.redirect, r.volumes})
	if err != nil {
		return "", fmt.Errorf("encode containers: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8]), nil
}

func sidecarContainer(pod *corev1.Pod, s settings, ports []Port, z sized, o Options) corev1.Container {
	c := corev1.Container{
		Name:            sidecarenv.ContainerName,
		Image:           o.Image,
		ImagePullPolicy: o.pullPolicy(),
		Command:         []string{sidecarenv.SidecarBinary},
		Env: []corev1.EnvVar{
			fromField(sidecarenv.Namespace, "metadata.namespace"),
			fromField(sidecarenv.PodName, "metadata.name"),
			fromField(sidecarenv.PodUID, "metadata.uid"),
			fromField(sidecarenv.PodIP, "status.podIP"),
			{Name: sidecarenv.Ports, Value: portsEnv(ports)},
			{Name: sidecarenv.Workload, Value: workload(pod)},
		},
		Ports: []corev1.ContainerPort{
			{Name: sidecarenv.AdminPortName, ContainerPort: sidecarenv.AdminPort, Protocol: corev1.ProtocolTCP},
		},
		Resources:     z.sidecar,
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		VolumeMounts: []corev1.VolumeMount{
			{Name: sidecarenv.PodInfoVolume, MountPath: sidecarenv.PodInfoDir, ReadOnly: true},
			{Name: sidecarenv.CredentialsVolume, MountPath: sidecarenv.CredentialsDir, ReadOnly: true},
			noTokenMount(),
		},
		// The listeners are up within milliseconds; the first period of one second is what a pod's start waits for.
		StartupProbe:   adminProbe(sidecarenv.StartupPath, 1, 60, 3),
		ReadinessProbe: adminProbe(sidecarenv.ReadyPath, 5, 3, 3),
		LivenessProbe:  adminProbe(sidecarenv.LivePath, 10, 6, 5),
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{sidecarenv.SidecarBinary, "drain"}},
		}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          confined(),
	}
	// The image names a numeric user of its own, and platforms that assign users may choose another. Only a pod that says
	// uid 0 for all of its containers needs to be overruled: kubelet would refuse to start ours.
	if sc := pod.Spec.SecurityContext; sc != nil && sc.RunAsUser != nil && *sc.RunAsUser == 0 {
		c.SecurityContext.RunAsUser = ptr.To[int64](nonRootUser)
	}
	for _, e := range []corev1.EnvVar{
		{Name: sidecarenv.UpstreamHost, Value: s.upstreamHost},
		{Name: sidecarenv.LogLevel, Value: s.logLevel},
		{Name: sidecarenv.DrainTimeout, Value: s.drainTimeout},
	} {
		if e.Value != "" {
			c.Env = append(c.Env, e)
		}
	}
	if m := z.memory.Value(); m > 0 {
		c.Env = append(c.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(m/100*memoryLimitPercent, 10)})
	}
	return c
}

const (
	nonRootUser = 65532
	// memoryLimitPercent of the limit is the Go runtime's; the rest is for what the runtime does not count.
	memoryLimitPercent = 90
)

// redirectContainer programs the pod's network namespace. Without ambient capabilities in Kubernetes, NET_ADMIN takes
// effect for uid 0 only.
func redirectContainer(ports []Port, z sized, o Options) corev1.Container {
	sc := confined()
	sc.RunAsUser = ptr.To[int64](0)
	sc.RunAsNonRoot = ptr.To(false)
	sc.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	return corev1.Container{
		Name:            sidecarenv.RedirectContainerName,
		Image:           o.Image,
		ImagePullPolicy: o.pullPolicy(),
		Command:         []string{sidecarenv.SidecarBinary, "redirect"},
		Env: []corev1.EnvVar{
			{Name: sidecarenv.Ports, Value: portsEnv(ports)},
			fromField(sidecarenv.HostIPs, "status.hostIPs"),
		},
		Resources:                z.redirect,
		VolumeMounts:             []corev1.VolumeMount{noTokenMount()},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          sc,
	}
}

// volumes are all of kinds that pin no pod to its node. The Secret may come later than the pod.
func volumes() []corev1.Volume {
	return []corev1.Volume{
		{Name: sidecarenv.PodInfoVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{
				{Path: sidecarenv.LabelsFile, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			},
		}}},
		{Name: sidecarenv.CredentialsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: sidecarenv.CredentialsName, Optional: ptr.To(true), DefaultMode: ptr.To[int32](0o444),
		}}},
		{Name: sidecarenv.NoTokenVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}},
	}
}

// noTokenMount takes the place where the API server would mount the app's service account token.
func noTokenMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: sidecarenv.NoTokenVolume, MountPath: sidecarenv.ServiceTokenPath, ReadOnly: true}
}

// confined conforms to the Pod Security level restricted.
func confined() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsNonRoot:             ptr.To(true),
		AllowPrivilegeEscalation: ptr.To(false),
		Privileged:               ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// adminProbe never names a host: Pod Security baseline does not admit that.
func adminProbe(path string, period, failures, timeout int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(sidecarenv.AdminPort),
		}},
		PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: timeout,
	}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: path},
	}}
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

const maxLabelValue = 63

// labelValue makes a version fit a label: "v0.1.0+dirty" has a character that labels do not.
func labelValue(version string) string {
	v := notInLabels.ReplaceAllString(version, "-")
	return strings.Trim(v[:min(len(v), maxLabelValue)], "-._")
}
