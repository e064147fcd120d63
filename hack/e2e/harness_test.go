//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/hack/testapp/load"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

const appPort = 8080

// workload is a Deployment of the test app with Services of each kind, in a namespace of its own.
type workload struct {
	namespace string
	replicas  int32
}

// newNamespace makes a namespace that goes with the spec.
func newNamespace(ctx context.Context, labels map[string]string) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: labels}}
	Expect(kube.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(kube.Delete(ctx, ns))).To(Succeed())
	})
	return ns.Name
}

// appDeployment is the test app, annotated for injection.
func appDeployment(namespace string, replicas int32) *appsv1.Deployment {
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}},
		PeriodSeconds: 1, FailureThreshold: 3,
	}
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      labels,
					Annotations: map[string]string{portero.InjectAnnotation: "true", portero.PortsAnnotation: "http"},
				},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(15)),
					Containers: []corev1.Container{{
						Name: "app", Image: "portero.dev/testapp:dev",
						Ports: []corev1.ContainerPort{
							{Name: "http", ContainerPort: appPort},
							{Name: "control", ContainerPort: 8081},
						},
						Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
							FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
						ReadinessProbe: probe,
						LivenessProbe: &corev1.Probe{
							ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(appPort)}},
							PeriodSeconds: 1,
						},
					}},
				},
			},
		},
	}
}

// startWorkload deploys the app with its Services and waits until all pods are ready.
func startWorkload(ctx context.Context, replicas int32) *workload {
	GinkgoHelper()
	w := &workload{namespace: newNamespace(ctx, nil), replicas: replicas}
	Expect(kube.Create(ctx, appDeployment(w.namespace, replicas))).To(Succeed())
	for name, port := range map[string]corev1.ServicePort{
		"by-number": {Port: 80, TargetPort: intstr.FromInt32(appPort)},
		"by-name":   {Port: 80, TargetPort: intstr.FromString("http")},
		"headless":  {Port: appPort},
	} {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{port}},
		}
		if name == "headless" {
			service.Spec.ClusterIP = corev1.ClusterIPNone
		}
		Expect(kube.Create(ctx, service)).To(Succeed())
	}
	w.expectReady(ctx)
	return w
}

func (w *workload) expectReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var d appsv1.Deployment
		g.Expect(kube.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: "web"}, &d)).To(Succeed())
		g.Expect(d.Status.ReadyReplicas).To(Equal(w.replicas))
		g.Expect(d.Status.UpdatedReplicas).To(Equal(w.replicas))
	}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
}

// pods are the workload's running pods.
func (w *workload) pods(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(kube.List(ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels{"app": "web"})).To(Succeed())
	var running []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Status.PodIP != "" {
			running = append(running, p)
		}
	}
	return running
}

// podURLs reach each pod by its own address, as a headless Service's clients do.
func (w *workload) podURLs(ctx context.Context) []string {
	GinkgoHelper()
	var urls []string
	for _, p := range w.pods(ctx) {
		urls = append(urls, fmt.Sprintf("http://%s:%d/", p.Status.PodIP, appPort))
	}
	Expect(urls).NotTo(BeEmpty())
	return urls
}

// serviceURL reaches the pods through a Service's cluster address.
func (w *workload) serviceURL(ctx context.Context, name string) string {
	GinkgoHelper()
	var s corev1.Service
	Expect(kube.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: name}, &s)).To(Succeed())
	return fmt.Sprintf("http://%s/", s.Spec.ClusterIP)
}

// perKey is a policy with one bucket per X-Api-Key. Its budget is patient, so that a stall of a busy machine fails no spec that
// counts tokens; specs about failing Redis set the default again.
func perKey(namespace string, capacity, tokens int64, interval portero.Duration) *portero.RateLimitPolicy {
	return &portero.RateLimitPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "per-key", Namespace: namespace},
		Spec: portero.RateLimitPolicySpec{
			Selector: portero.LabelSelector{MatchLabels: map[string]portero.LabelValue{"app": "web"}},
			Store:    portero.Store{Timeout: "250ms"},
			Limits: []portero.Limit{{
				Name:     "key",
				KeyParts: []portero.KeyPart{{Type: portero.KeyPartHeader, Header: &portero.HeaderKeyPart{Name: "X-Api-Key"}}},
				Bucket:   portero.Bucket{Capacity: capacity, Refill: portero.Refill{Tokens: tokens, Interval: interval}},
			}},
		},
	}
}

// condition is a policy's condition as status, reason and message.
func condition(ctx context.Context, p *portero.RateLimitPolicy, kind portero.ConditionType) (metav1.ConditionStatus, string, string) {
	var current portero.RateLimitPolicy
	if err := kube.Get(ctx, client.ObjectKeyFromObject(p), &current); err != nil {
		return "", err.Error(), ""
	}
	c := meta.FindStatusCondition(current.Status.Conditions, string(kind))
	if c == nil || c.ObservedGeneration != current.Generation {
		return "", "not observed yet", ""
	}
	return c.Status, c.Reason, c.Message
}

// expectCondition waits for a condition's status and reason.
func expectCondition(ctx context.Context, p *portero.RateLimitPolicy, kind portero.ConditionType, status metav1.ConditionStatus, reason portero.ConditionReason) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		s, r, message := condition(ctx, p, kind)
		g.Expect(r).To(Equal(string(reason)), message)
		g.Expect(s).To(Equal(status), message)
	}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
}

// enforce applies a policy and waits until every sidecar acknowledged it.
func enforce(ctx context.Context, p *portero.RateLimitPolicy) {
	GinkgoHelper()
	Expect(kube.Create(ctx, p)).To(Succeed())
	expectCondition(ctx, p, portero.ConditionEnforced, metav1.ConditionTrue, portero.ReasonEnforced)
}

// client is a load's sender with an API key.
func apiClient(key string) load.Client {
	return load.Client{Name: key, Headers: http.Header{"X-Api-Key": {key}}}
}

// burst sends n requests of one key over urls, as fast as they come back, and returns what came back.
func burst(ctx context.Context, key string, n int, urls ...string) load.Tally {
	GinkgoHelper()
	report := load.Run(ctx, load.Options{
		URLs: urls, Clients: []load.Client{apiClient(key)}, Concurrency: 4, Requests: n,
		Duration: time.Minute, Timeout: 10 * time.Second, Method: http.MethodGet,
	})
	Expect(report.Total.Failed).To(BeZero(), "errors %v, statuses %v", report.Total.Errors, report.Total.Statuses)
	return report.Total
}

// background runs a load while the caller does something else; the returned function waits for its end.
func background(ctx context.Context, o load.Options) func() load.Report {
	result := make(chan load.Report, 1)
	go func() { result <- load.Run(ctx, o) }()
	return func() load.Report {
		GinkgoHelper()
		var report load.Report
		Eventually(ctx, result).WithTimeout(o.Duration + time.Minute).Should(Receive(&report))
		return report
	}
}

// redisControl runs hack/cluster/redis.
func redisControl(ctx context.Context, args ...string) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "../cluster/redis", args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "redis %v: %s", args, out)
}

// kubectl runs the built kubectl and returns what it printed.
func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "kubectl %v: %s", args, out)
	return string(out)
}

// expectManagerReady waits until n replicas of the manager are ready, and until the API server reaches their webhook: a pod made
// before kube-proxy routes to the new replicas starts without a sidecar.
func expectManagerReady(ctx context.Context, n int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		d := managerDeployment(ctx, g)
		g.Expect(d.Status.ReadyReplicas).To(Equal(n))
		g.Expect(d.Status.Replicas).To(Equal(n))
	}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
	if n == 0 {
		return
	}
	Eventually(func(g Gomega) {
		template := appDeployment("", 1).Spec.Template
		probe := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		probe.GenerateName, probe.Namespace = "webhook-probe-", metav1.NamespaceDefault
		g.Expect(kube.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations).To(HaveKey(portero.StatusAnnotation))
	}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
}

func managerDeployment(ctx context.Context, g Gomega) *appsv1.Deployment {
	var list appsv1.DeploymentList
	g.Expect(kube.List(ctx, &list, client.InNamespace(systemNamespace))).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
	return &list.Items[0]
}

// scaleManager sets the number of the manager's replicas and waits for it.
func scaleManager(ctx context.Context, n int32) {
	GinkgoHelper()
	d := managerDeployment(ctx, NewWithT(GinkgoT()))
	patch := client.MergeFrom(d.DeepCopy())
	d.Spec.Replicas = &n
	Expect(kube.Patch(ctx, d, patch)).To(Succeed())
	expectManagerReady(ctx, n)
	if n == 0 {
		Eventually(func(g Gomega) {
			var pods corev1.PodList
			g.Expect(kube.List(ctx, &pods, client.InNamespace(systemNamespace))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty())
		}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
	}
}

// adminURL is a path of a sidecar's admin listener.
func adminURL(p corev1.Pod, path string) string {
	return fmt.Sprintf("http://%s:%d%s", p.Status.PodIP, sidecarenv.AdminPort, path)
}
