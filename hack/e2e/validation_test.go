//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// expression is a policy with one condition.
const expression = `
apiVersion: portero.dev/v1alpha1
kind: RateLimitPolicy
metadata: {name: guarded}
spec:
  selector: {}
  limits:
  - name: all
    matches: [{when: "WHEN"}]
    bucket: {capacity: 10, refill: {tokens: 1, interval: 1s}}
`

// apply gives what kubectl says of a policy with that condition, and whether it was content.
func apply(ctx context.Context, namespace, when string) (string, error) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "kubectl", "-n", namespace, "apply", "-f", "-")
	command.Stdin = strings.NewReader(strings.Replace(expression, "WHEN", when, 1))
	out, err := command.CombinedOutput()
	var failed *exec.ExitError
	if err != nil {
		Expect(errors.As(err, &failed)).To(BeTrue(), "%v", err)
	}
	return string(out), err
}

var _ = Describe("A policy with a bad expression", Serial, func() {
	const bad, told = "request.body == ''", `spec.limits[0].matches[0].when: "request.body == ''": must be a CEL expression on request: line 1, column 8: ` +
		`undefined field 'body'; request has claims, clientIP, cookies,`

	It("is refused when it is applied, and says what is wrong and what there is", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		out, err := apply(ctx, namespace, bad)
		Expect(err).To(HaveOccurred())
		Expect(out).To(HavePrefix(`The RateLimitPolicy "guarded" is invalid: ` + told))

		out, err = apply(ctx, namespace, "request.method == 'POST'")
		Expect(err).NotTo(HaveOccurred(), out)
		out, err = apply(ctx, namespace, bad)
		Expect(err).To(HaveOccurred(), "an update is looked at too")
		Expect(out).To(ContainSubstring(told))
	})

	It("is stored while the manager is away, told of later, and can be labeled and deleted all the time", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		DeferCleanup(func(ctx SpecContext) { scaleManager(ctx, 2) })
		scaleManager(ctx, 0)
		for range 2 {
			out, err := apply(ctx, namespace, bad)
			Expect(err).NotTo(HaveOccurred(), out)
			kubectl(ctx, "-n", namespace, "delete", "rlp", "guarded", "--timeout=5s")
		}
		out, err := apply(ctx, namespace, bad)
		Expect(err).NotTo(HaveOccurred(), out)
		kubectl(ctx, "-n", namespace, "label", "rlp", "guarded", "team=shop")

		scaleManager(ctx, 2)
		policy := &portero.RateLimitPolicy{}
		policy.Namespace, policy.Name = namespace, "guarded"
		expectCondition(ctx, policy, portero.ConditionAccepted, "False", portero.ReasonInvalid)
		_, _, message := condition(ctx, policy, portero.ConditionAccepted)
		Expect(message).To(ContainSubstring(told))
		kubectl(ctx, "-n", namespace, "label", "rlp", "guarded", "team=web", "--overwrite")
		kubectl(ctx, "-n", namespace, "delete", "rlp", "guarded", "--timeout=5s")
		Expect(apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(policy), policy))).To(BeTrue())
	})
})
