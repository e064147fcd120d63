package injector

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

// workload names what a pod belongs to, by its controller: statefulset/db, job/report-1. A ReplicaSet is a Deployment's when
// its name ends with the pod's template hash, and then the Deployment is named, so that all of its revisions are one. A
// pod of nobody stands for itself; kubelet fills in its name, which the API server may not have made up yet.
func workload(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return "pod/$(" + sidecarenv.PodName + ")"
	}
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if name, found := strings.CutSuffix(owner.Name, "-"+hash); owner.Kind == "ReplicaSet" && hash != "" && found {
		return "deployment/" + name
	}
	return strings.ToLower(owner.Kind) + "/" + owner.Name
}
