package app_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/cmd/manager/app"
	"github.com/portero-dev/portero/controllers/redislink"
	"github.com/portero-dev/portero/internal/testenv"
)

// system is the namespace of the managers; the manifests' roles are bound in it.
const system = "portero-system"

// manager is a running manager, as the service account and with the rights of the manifests.
type manager struct {
	stop context.CancelFunc
	done chan error
}

// start starts a manager of the instance on an API server. It ends with the spec.
func start(environment *testenv.Environment, instance string, flags ...string) *manager {
	GinkgoHelper()
	flags = append([]string{
		"--instance=" + instance, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-port=0",
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms",
	}, flags...)
	options, err := app.ParseOptions(flags, func(string) string { return "" }, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	config := rest.CopyConfig(environment.Config)
	config.Impersonate.UserName = "system:serviceaccount:" + system + ":portero-manager"
	config.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + system, "system:authenticated"}
	ctx, cancel := context.WithCancel(context.Background())
	m := &manager{stop: cancel, done: make(chan error, 1)}
	go func() { m.done <- app.Run(ctx, config, options) }()
	DeferCleanup(m.end)
	return m
}

// end stops the manager, as SIGTERM would, and waits until it is gone.
func (m *manager) end() {
	GinkgoHelper()
	if m.done == nil {
		return
	}
	m.stop()
	Eventually(m.done).WithTimeout(status).Should(Receive(BeNil()))
	m.done = nil
}

// install applies the manager's namespace and rights as config/ has them.
func install(ctx context.Context, environment *testenv.Environment) {
	GinkgoHelper()
	create(ctx, environment, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	for _, file := range []string{"role.yaml", "role_binding.yaml", "service_account.yaml"} {
		data, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "rbac", file))
		Expect(err).NotTo(HaveOccurred())
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			create(ctx, environment, decode(document))
		}
	}
}

func decode(document []byte) client.Object {
	GinkgoHelper()
	var kind metav1.TypeMeta
	Expect(yaml.Unmarshal(document, &kind)).To(Succeed())
	object, ok := map[string]client.Object{
		"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
		"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}, "ServiceAccount": &corev1.ServiceAccount{},
	}[kind.Kind]
	Expect(ok).To(BeTrue(), "unexpected kind %q", kind.Kind)
	Expect(yaml.UnmarshalStrict(document, object)).To(Succeed())
	return object
}

func create(ctx context.Context, environment *testenv.Environment, object client.Object) {
	GinkgoHelper()
	Expect(environment.Client.Create(ctx, object)).To(Succeed())
}

// connectRedis writes the admin Secret, and removes it after the spec.
func connectRedis(ctx context.Context, environment *testenv.Environment, password string) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: redislink.AdminSecret},
		StringData: map[string]string{
			redislink.AddrsKey: strings.Join(redis.Addrs(), ","), redislink.UsernameKey: "default", redislink.PasswordKey: password,
		},
	}
	create(ctx, environment, secret)
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(environment.Client.Delete(ctx, secret))).To(Succeed())
	})
	return secret
}

// createPolicy creates a policy, and removes it after the spec.
func createPolicy(ctx context.Context, namespace, name string, changes ...func(*portero.RateLimitPolicy)) *portero.RateLimitPolicy {
	GinkgoHelper()
	policy := testenv.NewPolicy(namespace, name, changes...)
	create(ctx, api, policy)
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(api.Client.Delete(ctx, policy))).To(Succeed())
	})
	return policy
}

// conditions reads a policy's conditions as Type=Status/Reason.
func conditions(ctx context.Context, policy *portero.RateLimitPolicy) func(Gomega) map[portero.ConditionType]string {
	return func(g Gomega) map[portero.ConditionType]string {
		g.Expect(api.Client.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		out := map[portero.ConditionType]string{}
		for _, c := range policy.Status.Conditions {
			g.Expect(c.ObservedGeneration).To(Equal(policy.Generation))
			out[portero.ConditionType(c.Type)] = fmt.Sprintf("%s/%s", c.Status, c.Reason)
		}
		return out
	}
}

func message(policy *portero.RateLimitPolicy, conditionType portero.ConditionType) string {
	if c := meta.FindStatusCondition(policy.Status.Conditions, string(conditionType)); c != nil {
		return c.Message
	}
	return ""
}
