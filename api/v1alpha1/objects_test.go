package v1alpha1_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/translator"
)

// valid states every field that a user can set. It is text and not a Go value, so that a mutation can also be what Go's
// types can't say.
const valid = `
apiVersion: portero.dev/v1alpha1
kind: RateLimitPolicy
metadata: {name: checkout, namespace: default}
spec:
  selector:
    matchLabels: {app: checkout, app.kubernetes.io/part-of: shop}
    matchExpressions:
    - {key: tier, operator: In, values: [front, back]}
    - {key: legacy, operator: DoesNotExist}
  mode: Enforce
  clientIP:
    type: XForwardedFor
    xForwardedFor: {trustedProxies: [10.42.7.0/24, "2001:db8::/64"]}
    ipv4PrefixLength: 24
    ipv6PrefixLength: 56
  exempt:
  - path: {type: Exact, value: /healthz}
  - clientCIDRs: [10.1.0.0/16, "2001:db8::/64"]
    ports: [admin, "8081"]
  - grpc: {service: grpc.health.v1.Health, method: Check}
  - when: request.method == "GET" && request.headers[?"x-probe"].hasValue()
  limits:
  - name: per-key
    mode: Enforce
    matches:
    - methods: [GET, POST]
      path: {type: PathPrefix, value: /api}
      headers:
      - {type: Exact, name: X-Plan, value: free}
      - {type: RegularExpression, name: User-Agent, value: "curl/.*"}
    - path: {type: RegularExpression, value: "/v[0-9]+/.*"}
    keyParts:
    - {type: Header, header: {name: X-Api-Key, whenMissing: Deny}}
    - {type: ClientIP, clientIP: {whenMissing: Skip}}
    bucket: {capacity: 100, refill: {tokens: 10, interval: 1s}}
    cost:
      type: Fixed
      fixed:
        tokens: 5
        rules:
        - {matches: [{path: {type: PathPrefix, value: /api/search}}], tokens: 10}
    overrides:
    - {name: stolen, type: Deny, matches: [{headers: [{type: InSHA256, name: X-Api-Key, hashes: [e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855]}]}]}
    - {name: inside, type: Unlimited, matches: [{clientCIDRs: [10.2.0.0/16]}]}
    - {name: gold, type: Bucket, bucket: {capacity: 50, refill: {tokens: 100, interval: 1s}}}
  - name: rich
    mode: Shadow
    matches:
    - path: {type: Template, value: "/users/{id}/orders"}
      hosts: [shop.example.com, "*.example.org"]
      headers:
      - {type: Present, name: X-A}
      - {type: In, name: X-B, values: [free, trial]}
      queryParams:
      - {type: Absent, name: debug}
      - {name: q, value: a}
      cookies:
      - {type: Prefix, name: session, value: s-}
    keyParts:
    - {type: Method}
    - {type: Host, host: {whenMissing: Skip}}
    - {type: PathTemplate}
    - {type: PathVariable, pathVariable: {name: id}}
    - {type: Query, query: {name: tenant, whenMissing: Skip}}
    - {type: Cookie, cookie: {name: session, whenMissing: Deny}}
    - {type: Claim, claim: {name: sub, whenMissing: Skip}}
    - {type: Workload}
    bucket: {capacity: 100, refill: {tokens: 10, interval: 1s}}
    cost: {type: RequestHeader, requestHeader: {name: X-Cost, default: 2, maximum: 1000}}
  - name: tokens
    keyParts:
    - {type: Expression, expression: {value: "request.path.split('/')[1]", whenMissing: Skip}}
    bucket: {capacity: 1000, refill: {tokens: 10, interval: 1s}}
    cost: {type: RequestHeader, requestHeader: {name: X-Cost, default: 10, maximum: 1000}}
  - name: work
    bucket: {capacity: 1000, refill: {tokens: 10, interval: 1s}}
    cost: {type: ResponseHeader, responseHeader: {name: X-Cost, default: 2, maximum: 500}}
  store: {timeout: 20ms, onFailure: Closed}
  response:
    rateLimitHeaders: Both
    statusCode: 503
    body: {contentType: application/json, template: '{"wait": {retryAfter}, "limit": "{policy}/{limit}"}'}
`

// change alters an object.
type change func(object map[string]any)

// parse reads a policy.
func parse(text string) *unstructured.Unstructured {
	GinkgoHelper()
	object := map[string]any{}
	Expect(yaml.Unmarshal([]byte(text), &object)).To(Succeed())
	return &unstructured.Unstructured{Object: object}
}

// step goes into a map or a list.
func step(node any, element string) any {
	GinkgoHelper()
	switch node := node.(type) {
	case map[string]any:
		Expect(node).To(HaveKey(element))
		return node[element]
	case []any:
		index := int(element[0] - '0')
		Expect(len(node)).To(BeNumerically(">", index))
		return node[index]
	}
	Fail("no way to " + element)
	return nil
}

// set gives the field at path, such as spec.limits.0.name, a value written in YAML.
func set(path, value string) change {
	return func(object map[string]any) {
		GinkgoHelper()
		var parsed any
		Expect(yaml.Unmarshal([]byte(value), &parsed)).To(Succeed())
		elements := strings.Split(path, ".")
		var node any = object
		for _, element := range elements[:len(elements)-1] {
			node = step(node, element)
		}
		last := elements[len(elements)-1]
		if list, ok := node.([]any); ok {
			list[int(last[0]-'0')] = parsed
			return
		}
		node.(map[string]any)[last] = parsed
	}
}

// unset removes the field at path.
func unset(path string) change {
	return func(object map[string]any) {
		GinkgoHelper()
		elements := strings.Split(path, ".")
		var node any = object
		for _, element := range elements[:len(elements)-1] {
			node = step(node, element)
		}
		delete(node.(map[string]any), elements[len(elements)-1])
	}
}

// all makes several changes in their order.
func all(changes ...change) change {
	return func(object map[string]any) {
		for _, change := range changes {
			change(object)
		}
	}
}

// repeat is a YAML list of n entries, in each of which % stands for a letter pair of its own.
func repeat(n int, entry string) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = strings.ReplaceAll(entry, "%", string([]byte{'a' + byte(i/26), 'a' + byte(i%26)}))
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

// cidrs is a YAML list of n CIDRs.
func cidrs(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf("10.0.%d.0/24", i)
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

// causes is what the API server has against the valid policy with a change: "field: message", one for each cause.
func causes(ctx SpecContext, change change) []string {
	GinkgoHelper()
	policy := parse(valid)
	change(policy.Object)
	err := server.Client.Create(ctx, policy, client.DryRunAll)
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	Expect(errors.As(err, &status)).To(BeTrue(), "%v", err)
	Expect(status.Status().Reason).To(Equal(metav1.StatusReasonInvalid), "%v", err)
	var causes []string
	for _, cause := range status.Status().Details.Causes {
		// The API server tells that it skipped rules where the plain schema is broken already.
		if !strings.Contains(cause.Message, "some validation rules were not checked") {
			causes = append(causes, cause.Field+": "+cause.Message)
		}
	}
	return causes
}

// translate tells what the translator has against the valid policy with a change, had it been stored.
func translate(change change) error {
	GinkgoHelper()
	policy := parse(valid)
	policy.SetUID("5c3f")
	policy.SetGeneration(1)
	policy.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
	change(policy.Object)
	text, err := policy.MarshalJSON()
	Expect(err).NotTo(HaveOccurred())
	typed := &v1alpha1.RateLimitPolicy{}
	if err := json.Unmarshal(text, typed); err != nil {
		return err // the client could not have read it
	}
	_, err = translator.Translate(typed)
	return err
}
