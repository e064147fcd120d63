//go:build e2e

package e2e_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

var _ = Describe("The truth", func() {
	It("is NotInjected when pods match and none asked", func(ctx SpecContext) {
		d := appDeployment(newNamespace(ctx, nil), 1)
		d.Spec.Template.Annotations = nil
		Expect(kube.Create(ctx, d)).To(Succeed())
		policy := perKey(d.Namespace, 1, 1, "1h")
		Expect(kube.Create(ctx, policy)).To(Succeed())
		expectCondition(ctx, policy, portero.ConditionEnforced, metav1.ConditionFalse, portero.ReasonNotInjected)
	})

	It("is NoPods when nothing matches, and still Ready", func(ctx SpecContext) {
		policy := perKey(newNamespace(ctx, nil), 1, 1, "1h")
		Expect(kube.Create(ctx, policy)).To(Succeed())
		expectCondition(ctx, policy, portero.ConditionEnforced, metav1.ConditionFalse, portero.ReasonNoPods)
		expectCondition(ctx, policy, portero.ConditionReady, metav1.ConditionTrue, portero.ReasonReady)
	})

	It("is SidecarMissing with the cause in the pod's annotation when an annotation is wrong", func(ctx SpecContext) {
		d := appDeployment(newNamespace(ctx, nil), 1)
		d.Spec.Template.Annotations[portero.PortsAnnotation] = "no-such-port"
		Expect(kube.Create(ctx, d)).To(Succeed())
		w := &workload{namespace: d.Namespace, replicas: 1}
		w.expectReady(ctx)
		policy := perKey(d.Namespace, 1, 1, "1h")
		Expect(kube.Create(ctx, policy)).To(Succeed())
		expectCondition(ctx, policy, portero.ConditionEnforced, metav1.ConditionFalse, portero.ReasonSidecarMissing)
		Expect(w.pods(ctx)[0].Annotations[portero.StatusAnnotation]).To(ContainSubstring("no-such-port"))
	})

	DescribeTable("says why a pod is not injected in a namespace that enforces Pod Security", func(ctx SpecContext, level string) {
		d := appDeployment(newNamespace(ctx, map[string]string{"pod-security.kubernetes.io/enforce": level}), 1)
		d.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		d.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		Expect(kube.Create(ctx, d)).To(Succeed())
		w := &workload{namespace: d.Namespace, replicas: 1}
		w.expectReady(ctx)
		pod := w.pods(ctx)[0]
		Expect(pod.Annotations[portero.StatusAnnotation]).To(ContainSubstring("reason"))
		Expect(pod.Spec.InitContainers).To(BeEmpty())
	}, Entry(nil, "baseline"), Entry(nil, "restricted"))

	It("names a Secret that isn't ours and leaves it alone", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		foreign := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: sidecarenv.CredentialsName, Namespace: namespace},
			StringData: map[string]string{"mine": "yes"},
		}
		Expect(kube.Create(ctx, foreign)).To(Succeed())
		policy := perKey(namespace, 1, 1, "1h")
		Expect(kube.Create(ctx, policy)).To(Succeed())
		expectCondition(ctx, policy, portero.ConditionDegraded, metav1.ConditionTrue, portero.ReasonSecretConflict)
		var kept corev1.Secret
		Expect(kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: foreign.Name}, &kept)).To(Succeed())
		Expect(kept.Data).To(HaveLen(1))
	})

	It("makes a Secret again that was deleted", func(ctx SpecContext) {
		w := startWorkload(ctx, 1)
		enforce(ctx, perKey(w.namespace, 5, 1, "1h"))
		Expect(kube.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: sidecarenv.CredentialsName, Namespace: w.namespace}})).To(Succeed())
		Eventually(func() error {
			return kube.Get(ctx, types.NamespacedName{Namespace: w.namespace, Name: sidecarenv.CredentialsName}, &corev1.Secret{})
		}).WithContext(ctx).WithTimeout(20 * time.Second).WithPolling(poll).Should(Succeed())
		Expect(burst(ctx, "k", 10, w.podURLs(ctx)...).Passed).To(Equal(5))
	})

	It("is told by the API server when a regular expression is wrong", func(ctx SpecContext) {
		policy := perKey(newNamespace(ctx, nil), 1, 1, "1h")
		policy.Spec.Limits[0].Matches = []portero.RequestMatch{{Path: &portero.PathMatch{Type: portero.PathMatchRegularExpression, Value: "/a("}}}
		err := kube.Create(ctx, policy)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err.Error()).To(ContainSubstring("/a("))
	})
})
