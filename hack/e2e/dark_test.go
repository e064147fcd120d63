//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

var _ = Describe("In the dark", Serial, func() {
	It("a new pod and a restarted sidecar enforce the Secret's policies locally, and share when Redis is back", func(ctx SpecContext) {
		w := startWorkload(ctx, 2)
		policy := perKey(w.namespace, 20, 1, "1h")
		policy.Spec.Store = portero.Store{}
		enforce(ctx, policy)
		expectKept(ctx, policy, 1, 2)

		By("stopping all of Redis, and changing the policy")
		redisControl(ctx, "stop")
		DeferCleanup(func(ctx SpecContext) {
			redisControl(ctx, "start")
			expectClusterOK(ctx)
		})
		expectCondition(ctx, policy, portero.ConditionDegraded, "True", portero.ReasonRedisUnreachable)
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		policy.Spec.Limits[0].Bucket.Capacity = 40
		Expect(kube.Update(ctx, policy)).To(Succeed())
		expectKept(ctx, policy, 2, 2)

		By("making a pod")
		before := w.pods(ctx)
		Expect(kube.Delete(ctx, &before[0])).To(Succeed())
		began := time.Now()
		fresh := w.podBeside(ctx, before)
		AddReportEntry("pod ready without Redis", time.Since(began).String())
		expectSource(ctx, fresh, "secret")
		Expect(burst(ctx, "new", 60, podURL(fresh)).Passed).To(Equal(20), "half of the capacity that was set in the outage")

		By("restarting its sidecar")
		killSidecar(fresh)
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(&fresh), &fresh)).To(Succeed())
			for _, c := range fresh.Status.InitContainerStatuses {
				if c.Name == sidecarenv.ContainerName {
					g.Expect(c.RestartCount).To(BeEquivalentTo(1))
					g.Expect(c.Ready).To(BeTrue())
				}
			}
		}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
		expectSource(ctx, fresh, "secret")
		Expect(burst(ctx, "restarted", 60, podURL(fresh)).Passed).To(Equal(20))

		By("starting Redis again, empty")
		redisControl(ctx, "start")
		expectClusterOK(ctx)
		since := time.Now()
		attempt := 0
		Eventually(func(g Gomega) {
			attempt++
			key := fmt.Sprintf("back-%d", attempt)
			urls := w.podURLs(ctx)
			g.Expect(burst(ctx, key, 60, urls[0]).Passed).To(Equal(40))
			g.Expect(burst(ctx, key, 20, urls[1:]...).Passed).To(BeZero())
		}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
		AddReportEntry("shared again after cluster_state:ok", time.Since(since).String())
		expectSource(ctx, fresh, "redis")
		expectCondition(ctx, policy, portero.ConditionEnforced, "True", portero.ReasonEnforced)
	})
})

// expectKept waits until the namespace's Secret holds the policy at a generation, for a number of sidecars.
func expectKept(ctx context.Context, policy *portero.RateLimitPolicy, generation int64, sidecars int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var secret corev1.Secret
		g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: policy.Namespace, Name: sidecarenv.CredentialsName}, &secret)).To(Succeed())
		kept, err := bucketconfig.DecodeBundle(secret.Data[sidecarenv.SecretPolicies])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kept).To(HaveLen(1))
		g.Expect(kept[0].Record.Generation).To(Equal(generation))
		g.Expect(kept[0].Share.Sidecars).To(Equal(sidecars))
	}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
}

// podBeside waits until the workload is ready again, and answers the pod that was not there before.
func (w *workload) podBeside(ctx context.Context, before []corev1.Pod) (fresh corev1.Pod) {
	GinkgoHelper()
	known := map[string]bool{}
	for _, p := range before {
		known[p.Name] = true
	}
	Eventually(func(g Gomega) {
		pods := w.pods(ctx)
		g.Expect(pods).To(HaveLen(int(w.replicas)))
		for _, p := range pods {
			if !known[p.Name] {
				fresh = p
			}
		}
		g.Expect(fresh.Name).NotTo(BeEmpty())
		for _, c := range fresh.Status.Conditions {
			if c.Type == corev1.PodReady {
				g.Expect(c.Status).To(Equal(corev1.ConditionTrue))
			}
		}
	}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
	return fresh
}

func podURL(p corev1.Pod) string { return fmt.Sprintf("http://%s:%d/", p.Status.PodIP, appPort) }

// expectSource waits until the pod's sidecar says where its policies are from.
func expectSource(ctx context.Context, p corev1.Pod, want string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		family := metrics(ctx, p)["portero_config_source"]
		g.Expect(family.GetMetric()).To(HaveLen(1))
		g.Expect(family.GetMetric()[0].GetLabel()[0].GetValue()).To(Equal(want))
	}).WithContext(ctx).WithTimeout(settled).WithPolling(poll).Should(Succeed())
}

// killSidecar kills the process of the pod's sidecar, which is one of this machine's.
func killSidecar(p corev1.Pod) {
	GinkgoHelper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	Expect(err).NotTo(HaveOccurred())
	mark := []byte(sidecarenv.PodUID + "=" + string(p.UID) + "\x00")
	killed := 0
	for _, environment := range environments {
		dir := filepath.Dir(environment)
		content, _ := os.ReadFile(environment) // a process may end at any time
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if bytes.Contains(content, mark) && strings.HasPrefix(string(command), sidecarenv.SidecarBinary) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			Expect(err).NotTo(HaveOccurred())
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
			killed++
		}
	}
	Expect(killed).To(Equal(1))
}
