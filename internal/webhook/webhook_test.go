package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/injector"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/webhook"
)

const enforce = "pod-security.kubernetes.io/enforce"

func initNames(pod *corev1.Pod) (names []string) {
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	return names
}

func statusOf(pod *corev1.Pod) injector.Status {
	GinkgoHelper()
	s, ok := injector.StatusOf(pod.Annotations)
	Expect(ok).To(BeTrue(), "no status annotation: %v", pod.Annotations)
	return s
}

func create(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	Expect(env.Client.Create(ctx, pod)).To(Succeed())
	return pod
}

var _ = Describe("The API server", func() {
	It("has an annotated pod injected", func(ctx SpecContext) {
		pod := create(ctx, asking(newNamespace(ctx, nil)))
		Expect(initNames(pod)).To(Equal([]string{sidecarenv.RedirectContainerName, sidecarenv.ContainerName}))
		Expect(statusOf(pod).Ports).To(Equal([]injector.Port{{Name: "http", App: 8080, Listen: 14080, Shadow: 14180}}))
		Expect(pod.Labels).To(HaveKeyWithValue(injector.InjectedLabel, "true"))
	})

	It("has the sidecar told what the pod belongs to", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		workload := func(pod *corev1.Pod) string {
			for _, c := range create(ctx, pod).Spec.InitContainers {
				for _, e := range c.Env {
					if e.Name == sidecarenv.Workload {
						return e.Value
					}
				}
			}
			return ""
		}
		Expect(workload(asking(namespace))).To(Equal("pod/$(PORTERO_POD_NAME)"))
		owned := asking(namespace)
		owned.Labels = map[string]string{"pod-template-hash": "5d9c7b8f6d"}
		owned.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d9c7b8f6d", UID: "uid", Controller: ptr.To(true),
		}}
		Expect(workload(owned)).To(Equal("deployment/web"))
	})

	It("gives the service account token to the app alone", func(ctx SpecContext) {
		pod := create(ctx, asking(newNamespace(ctx, nil)))
		mountOf := func(c corev1.Container) string {
			for _, m := range c.VolumeMounts {
				if m.MountPath == sidecarenv.ServiceTokenPath {
					return m.Name
				}
			}
			return ""
		}
		Expect(mountOf(pod.Spec.Containers[0])).To(HavePrefix("kube-api-access-"))
		for _, c := range pod.Spec.InitContainers {
			Expect(mountOf(c)).To(Equal(sidecarenv.NoTokenVolume))
		}
	})

	It("gets no change for a pod as it stored one, defaults and all", func(ctx SpecContext) {
		pod := create(ctx, asking(newNamespace(ctx, nil), func(pod *corev1.Pod) {
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")},
			}}
		}))
		raw, err := json.Marshal(pod)
		Expect(err).NotTo(HaveOccurred())
		r, err := injector.Inject(raw, injector.Options{Image: image, Version: "v0.1.0"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status.Injected).To(BeTrue())
		Expect(r.Patch).To(BeEmpty())
	})

	It("never calls for pods that did not ask", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		before := server.calls.Load()
		for _, value := range []string{"", "false", "yes"} {
			pod := asking(namespace)
			pod.Annotations[v1alpha1.InjectAnnotation] = value
			Expect(create(ctx, pod).Spec.InitContainers).To(BeEmpty())
		}
		pod := asking(namespace)
		pod.Annotations = nil
		Expect(create(ctx, pod).Spec.InitContainers).To(BeEmpty())
		Expect(server.calls.Load()).To(Equal(before))
	})

	It("never calls for pods of system namespaces, of the host's network or for mirror pods", func(ctx SpecContext) {
		before := server.calls.Load()
		Expect(env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-other"}})).To(Succeed())
		for _, namespace := range []string{"kube-other", systemNamespace} {
			createServiceAccount(ctx, namespace)
			Expect(create(ctx, asking(namespace)).Spec.InitContainers).To(BeEmpty())
		}
		namespace := newNamespace(ctx, nil)
		Expect(create(ctx, asking(namespace, func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })).Spec.InitContainers).To(BeEmpty())
		mirror := asking(namespace, func(pod *corev1.Pod) { pod.Spec.NodeName = "node" })
		mirror.Annotations[corev1.MirrorPodAnnotationKey] = "digest"
		Expect(create(ctx, mirror).Spec.InitContainers).To(BeEmpty())
		Expect(server.calls.Load()).To(Equal(before))
	})

	It("never calls for other operations", func(ctx SpecContext) {
		pod := create(ctx, asking(newNamespace(ctx, nil)))
		before := server.calls.Load()
		pod.Labels["changed"] = "yes"
		Expect(env.Client.Update(ctx, pod)).To(Succeed())
		pod.Status.Phase = corev1.PodRunning
		Expect(env.Client.Status().Update(ctx, pod)).To(Succeed())
		Expect(env.Client.Delete(ctx, pod)).To(Succeed())
		Expect(server.calls.Load()).To(Equal(before))
	})

	DescribeTable("has the reason written where Pod Security does not admit the redirect",
		func(ctx SpecContext, level string) {
			pod := create(ctx, asking(newNamespace(ctx, map[string]string{enforce: level}), conforming))
			Expect(pod.Spec.InitContainers).To(BeEmpty())
			Expect(statusOf(pod)).To(And(HaveField("Reason", injector.ReasonPodSecurity), HaveField("Injected", false)))
		},
		Entry("at level baseline", "baseline"), Entry("at level restricted", "restricted"),
	)

	It("has pods injected at level privileged", func(ctx SpecContext) {
		pod := create(ctx, asking(newNamespace(ctx, map[string]string{enforce: "privileged"})))
		Expect(statusOf(pod).Injected).To(BeTrue())
	})

	It("finds nothing in the sidecar that level restricted would not admit", func(ctx SpecContext) {
		warnings := &warnings{}
		config := rest.CopyConfig(env.Config)
		config.WarningHandler = warnings
		warned, err := client.New(config, client.Options{Scheme: env.Scheme})
		Expect(err).NotTo(HaveOccurred())
		namespace := newNamespace(ctx, map[string]string{"pod-security.kubernetes.io/warn": "restricted"})

		pod := asking(namespace, conforming)
		Expect(warned.Create(ctx, pod)).To(Succeed())
		Expect(warnings.text()).To(ContainSubstring(`container "portero-redirect" must not include "NET_ADMIN"`), "the check must be at work")
		Expect(warnings.text()).NotTo(ContainSubstring(`"portero"`))
	})

	It("tells warnings and reasons to whoever creates the pod", func(ctx SpecContext) {
		warnings := &warnings{}
		config := rest.CopyConfig(env.Config)
		config.WarningHandler = warnings
		warned, err := client.New(config, client.Options{Scheme: env.Scheme})
		Expect(err).NotTo(HaveOccurred())
		pod := asking(newNamespace(ctx, nil))
		pod.Annotations[v1alpha1.PortsAnnotation] = "nope"
		pod.Annotations["portero.dev/color"] = "red"
		Expect(warned.Create(ctx, pod)).To(Succeed())
		Expect(warnings.text()).To(And(
			ContainSubstring(`portero: no sidecar: portero.dev/ports names "nope"`),
			ContainSubstring(`portero: annotation "portero.dev/color" is not known`)))
		Expect(statusOf(pod).Reason).To(Equal(injector.ReasonInvalidAnnotation))
	})

	It("has probes rewritten of a container that a later webhook adds", func(ctx SpecContext) {
		namespace := newNamespace(ctx, map[string]string{"mesh": "yes"})
		mesh := configuration(server.address)
		mesh.Name = "zzz-mesh"
		mesh.Webhooks = mesh.Webhooks[:1]
		w := &mesh.Webhooks[0]
		w.Name, w.MatchConditions = "mesh.portero.dev", nil
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"mesh": "yes"}}
		w.ClientConfig.URL = ptr.To("https://" + server.address + "/add-container")
		w.FailurePolicy = ptr.To(admissionregistrationv1.Fail)
		ours := &admissionregistrationv1.MutatingWebhookConfiguration{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: webhook.ConfigurationName}, ours)).To(Succeed())
		w.ClientConfig.CABundle = ours.Webhooks[0].ClientConfig.CABundle
		Expect(env.Client.Create(ctx, mesh)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(env.Client.Delete(ctx, mesh)).To(Succeed()) })

		Eventually(func(g Gomega) {
			pod := asking(namespace)
			g.Expect(env.Client.Create(ctx, pod)).To(Succeed())
			g.Expect(pod.Spec.Containers).To(HaveLen(2))
			g.Expect(pod.Spec.Containers[1].LivenessProbe.TCPSocket.Port.IntValue()).To(Equal(14180))
			g.Expect(initNames(pod)).To(Equal([]string{sidecarenv.RedirectContainerName, sidecarenv.ContainerName}))
		}, timeout, poll).Should(Succeed())
	})
})

var _ = Describe("With the webhook down", Serial, func() {
	BeforeEach(func() {
		server.stop()
		DeferCleanup(func() { server.start() })
	})

	It("pods that did not ask start as always", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		started := time.Now()
		for range 10 {
			pod := asking(namespace)
			pod.Annotations = nil
			create(ctx, pod)
		}
		Expect(time.Since(started)).To(BeNumerically("<", 5*time.Second))
	})

	It("pods that asked start without a sidecar", func(ctx SpecContext) {
		pod := create(ctx, asking(newNamespace(ctx, nil)))
		Expect(pod.Spec.InitContainers).To(BeEmpty())
		Expect(pod.Annotations).NotTo(HaveKey(v1alpha1.StatusAnnotation))
	})
})

var _ = Describe("A request", func() {
	review := func(path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		GinkgoHelper()
		request.UID = "uid"
		body, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
		})
		Expect(err).NotTo(HaveOccurred())
		r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		server.mux.ServeHTTP(w, r)
		var answer admissionv1.AdmissionReview
		Expect(json.Unmarshal(w.Body.Bytes(), &answer)).To(Succeed())
		Expect(answer.Response.Allowed).To(BeTrue(), "every pod must be admitted")
		return answer.Response
	}
	pods := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	podRequest := func(raw string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
		r := &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "shop", Resource: pods, Object: runtime.RawExtension{Raw: []byte(raw)},
		}
		for _, c := range change {
			c(r)
		}
		return r
	}
	const good = `{"metadata":{"generateName":"x-","annotations":{"portero.dev/inject":"true"}},
		"spec":{"containers":[{"name":"a","ports":[{"containerPort":80}]}]}}`

	It("for a pod is answered with a patch", func() {
		Expect(review(webhook.RedirectPath, podRequest(good)).Patch).NotTo(BeEmpty())
	})

	DescribeTable("that concerns no pod of a user is answered without one",
		func(change func(*admissionv1.AdmissionRequest)) {
			Expect(review(webhook.RedirectPath, podRequest(good, change)).Patch).To(BeEmpty())
		},
		Entry("update", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }),
		Entry("subresource", func(r *admissionv1.AdmissionRequest) { r.SubResource = "eviction" }),
		Entry("other kind", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "secrets" }),
		Entry("other group", func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "x.example" }),
		Entry("Portero's namespace", func(r *admissionv1.AdmissionRequest) { r.Namespace = systemNamespace }),
		Entry("Kubernetes' namespace", func(r *admissionv1.AdmissionRequest) { r.Namespace = "kube-system" }),
	)

	It("for a pod that can't be read admits it and says why", func() {
		response := review(webhook.RedirectPath, podRequest(`{"metadata":{"annotations":{"a":"b"}},"spec":{"containers":"none"}}`))
		var ops []injector.Operation
		Expect(json.Unmarshal(response.Patch, &ops)).To(Succeed())
		Expect(ops).To(HaveLen(1))
		Expect(ops[0].Path).To(Equal("/metadata/annotations/portero.dev~1status"))
		status, ok := injector.StatusOf(map[string]string{v1alpha1.StatusAnnotation: ops[0].Value.(string)})
		Expect(ok).To(BeTrue())
		Expect(status.Reason).To(Equal(injector.ReasonInternalError))
		Expect(status.Message).To(ContainSubstring("decode pod"))
		Expect(response.Warnings).To(ConsistOf(ContainSubstring("decode pod")))
	})

	It("for what has no annotations at all admits it with a warning", func() {
		response := review(webhook.RestrictedPath, podRequest(`{"spec":7}`))
		Expect(response.Patch).To(BeEmpty())
		Expect(response.Warnings).To(ConsistOf(ContainSubstring("decode pod")))
	})
})

var _ = Describe("Register", func() {
	It("refuses options that would inject nonsense", func() {
		Expect(webhook.Register(nil, webhook.Options{})).To(MatchError(ContainSubstring("sidecar image is empty")))
	})
})

// conforming makes the app conform to Pod Security restricted.
func conforming(pod *corev1.Pod) {
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// warnings collects what the API server tells a client beside its answers.
type warnings struct {
	mu   sync.Mutex
	told []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, text)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b bytes.Buffer
	for _, t := range w.told {
		b.WriteString(t + "\n")
	}
	return b.String()
}

// addContainer is another project's webhook: it adds a container that probes the app's port.
func addContainer(_ context.Context, req admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == "mesh" {
			return admission.Allowed("")
		}
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
		Name: "mesh", Image: "mesh", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways,
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
	})
	changed, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, changed)
}
