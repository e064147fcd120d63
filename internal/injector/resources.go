package injector

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sized are the resources of our two containers.
type sized struct {
	sidecar, redirect corev1.ResourceRequirements
	// memory is what the sidecar should stay within, also where it carries no limit of its own; zero: unbounded.
	memory resource.Quantity
}

var computeResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// size gives both of our containers the same resources: the redirect runs alone, before everything else, so its requests
// add nothing to the pod's, and what satisfies a namespace's LimitRange for one does for the other.
func size(pod *corev1.Pod, s settings, o Options) (sized, []string) {
	class := qosClass(pod)
	if class == corev1.PodQOSGuaranteed && pod.Spec.Resources == nil {
		return sizeGuaranteed(s, o.resources()), nil
	}
	sidecar, warnings := burstable(s, o.resources())
	if _, limited := sidecar.Limits[corev1.ResourceCPU]; !limited && othersLimitCPU(pod) {
		// A ResourceQuota on limits.cpu refuses pods in which one container has none.
		guaranteed := o.resources().GuaranteedCPU
		if request := sidecar.Requests[corev1.ResourceCPU]; request.Cmp(guaranteed) > 0 {
			guaranteed = request
		}
		sidecar.Limits[corev1.ResourceCPU] = guaranteed
	}
	z := sized{sidecar: sidecar, redirect: *sidecar.DeepCopy(), memory: sidecar.Limits[corev1.ResourceMemory].DeepCopy()}
	if pod.Spec.Resources != nil {
		warnings = append(warnings, z.fitInto(pod)...)
	} else if class == corev1.PodQOSBestEffort {
		warnings = append(warnings, "the pod was BestEffort; the sidecar's requests make it Burstable")
	}
	return z, warnings
}

// sizeGuaranteed sets requests and limits alike, so that the pod keeps its class.
func sizeGuaranteed(s settings, r Resources) sized {
	cpu := first(s.cpuLimit, s.cpuRequest, &r.CPULimit, &r.GuaranteedCPU)
	memory := first(s.memoryLimit, s.memoryRequest, &r.MemoryLimit, &r.MemoryRequest)
	sidecar := requirements(cpu, cpu, memory, memory)
	return sized{sidecar: sidecar, redirect: *sidecar.DeepCopy(), memory: memory}
}

// othersLimitCPU says whether every container but ours carries a CPU limit.
func othersLimitCPU(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if limit := c.Resources.Limits[corev1.ResourceCPU]; !isOurs(c.Name) && limit.IsZero() {
				return false
			}
		}
	}
	return true
}

func burstable(s settings, r Resources) (corev1.ResourceRequirements, []string) {
	var warnings []string
	pair := func(what string, request, limit *resource.Quantity, byDefault, limitByDefault resource.Quantity) (q, l resource.Quantity) {
		q, l = first(request, &byDefault), first(limit, &limitByDefault)
		switch {
		case !exceeds(q, l):
		case limit == nil: // the pod asks for more than the default limit
			l = q
		default:
			if request != nil {
				warnings = append(warnings, fmt.Sprintf(
					"the sidecar's %s request %s is above its limit %s: the limit is used for both", what, q.String(), l.String()))
			}
			q = l
		}
		return q, l
	}
	cpu, cpuLimit := pair("cpu", s.cpuRequest, s.cpuLimit, r.CPURequest, r.CPULimit)
	memory, memoryLimit := pair("memory", s.memoryRequest, s.memoryLimit, r.MemoryRequest, r.MemoryLimit)
	return requirements(cpu, cpuLimit, memory, memoryLimit), warnings
}

// fitInto adapts to resources that the user set on the pod as a whole. The API server refuses a pod whose containers
// request more than that, and fills in a missing request of the pod from the containers' sum or, where none has any,
// from the pod's limit: there the sidecar alone must not be what the pod requests.
func (z *sized) fitInto(pod *corev1.Pod) (warnings []string) {
	for _, name := range computeResources {
		podRequest, hasRequest := pod.Spec.Resources.Requests[name]
		podLimit, hasLimit := pod.Spec.Resources.Limits[name]
		if !hasRequest && !hasLimit {
			continue
		}
		others := requestsOfOthers(pod, name)
		total := others.DeepCopy()
		total.Add(z.sidecar.Requests[name])
		switch {
		case hasRequest && total.Cmp(podRequest) > 0:
			warnings = append(warnings, fmt.Sprintf(
				"the pod's own %s request %s leaves no room for the sidecar's: the sidecar shares what the pod has", name, podRequest.String()))
			z.omit(name)
		case !hasRequest && others.IsZero():
			z.omit(name)
		case hasLimit:
			for _, r := range []*corev1.ResourceRequirements{&z.sidecar, &z.redirect} {
				capAt(r, name, podLimit)
			}
		}
	}
	return warnings
}

// omit takes request and limit of one resource away: a limit alone would come back as a request.
func (z *sized) omit(name corev1.ResourceName) {
	for _, r := range []*corev1.ResourceRequirements{&z.sidecar, &z.redirect} {
		delete(r.Requests, name)
		delete(r.Limits, name)
	}
}

func capAt(r *corev1.ResourceRequirements, name corev1.ResourceName, bound resource.Quantity) {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if q, ok := list[name]; ok && q.Cmp(bound) > 0 {
			list[name] = bound
		}
	}
}

// requestsOfOthers sums what the containers that run together with the sidecar request.
func requestsOfOthers(pod *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	for c := range servingContainers(pod) {
		q, ok := c.Resources.Requests[name]
		if !ok {
			q = c.Resources.Limits[name]
		}
		sum.Add(q)
	}
	return sum
}

// qosClass computes the pod's class without our containers, by the rules of the API server.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Spec.Resources != nil {
		return qosOf(*pod.Spec.Resources)
	}
	var class corev1.PodQOSClass
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if isOurs(c.Name) {
				continue
			}
			switch q := qosOf(c.Resources); {
			case class == "":
				class = q
			case class != q:
				return corev1.PodQOSBurstable
			}
		}
	}
	return class
}

func qosOf(r corev1.ResourceRequirements) corev1.PodQOSClass {
	set, equal := 0, true
	for _, name := range computeResources {
		limit := r.Limits[name]
		request, ok := r.Requests[name]
		if !ok {
			request = limit
		}
		if !request.IsZero() || !limit.IsZero() {
			set++
		}
		equal = equal && request.Equal(limit)
	}
	switch {
	case set == 0:
		return corev1.PodQOSBestEffort
	case set == len(computeResources) && equal:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

func requirements(cpu, cpuLimit, memory, memoryLimit resource.Quantity) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{},
	}
	if !cpuLimit.IsZero() {
		r.Limits[corev1.ResourceCPU] = cpuLimit
	}
	if !memoryLimit.IsZero() {
		r.Limits[corev1.ResourceMemory] = memoryLimit
	}
	return r
}

// first returns the first quantity that is set.
func first(quantities ...*resource.Quantity) resource.Quantity {
	for _, q := range quantities {
		if q != nil && !q.IsZero() {
			return q.DeepCopy()
		}
	}
	return resource.Quantity{}
}
