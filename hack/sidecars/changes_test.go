package sidecars_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/translator"
)

// baseSpec is what each change starts from and goes back to.
const baseSpec = `
selector: {matchLabels: {app: checkout}}
limits:
- name: hourly
  matches: [{path: {type: PathPrefix, value: /page}}]
  keyParts: [{type: Header, header: {name: X-Api-Key}}]
  bucket: {capacity: 20, refill: {tokens: 1, interval: 1h}}
store: {timeout: 1s}
`

// change is a live change of a policy. Before it, 14 of a client's 20 tokens were spent.
type change struct {
	// spec replaces fields of the spec, and limit of its only limit.
	spec, limit string
	// during are how many of 8 requests pass once it is in force, and after are how many of 30 pass once it was taken back.
	during, after int
}

// kept changes nothing of the bucket: what was spent stays spent.
func kept(c change) change { c.during, c.after = 6, 0; return c }

// renewed makes it another bucket, which starts full.
func renewed(limit string) change { return change{limit: limit, during: 8, after: 6} }

// changes say of each field what changing it does to a bucket. The API's documentation states the same.
var changes = map[string]change{
	"labels of the selector":      kept(change{spec: `selector: {matchExpressions: [{key: app, operator: Exists}]}`}),
	"expressions of the selector": kept(change{spec: `selector: {matchLabels: {app: checkout}, matchExpressions: [{key: tier, operator: NotIn, values: [gold]}]}`}),
	"mode of the policy":          {spec: `mode: Shadow`, during: 8, after: 0},
	"what is exempt":              {spec: `exempt: [{path: {type: Exact, value: /page}}]`, during: 8, after: 6},
	"clientIP":                    kept(change{spec: `clientIP: {type: XForwardedFor, xForwardedFor: {trustedProxies: [127.0.0.0/8]}, ipv4PrefixLength: 24, ipv6PrefixLength: 48}`}),

	"timeout of the store":        kept(change{spec: `store: {timeout: 500ms}`}),
	"onFailure of the store":      kept(change{spec: `store: {timeout: 1s, onFailure: Closed}`}),
	"fields of the response":      kept(change{spec: `response: {rateLimitHeaders: None}`}),
	"status of the response":      kept(change{spec: `response: {statusCode: 430}`}),
	"body of the response":        kept(change{spec: `response: {body: {contentType: text/plain, template: "wait {retryAfter} s"}}`}),
	"mode of the limit":           {limit: `mode: Shadow`, during: 8, after: 0},
	"name of the limit":           renewed(`name: renamed`),
	"lower capacity":              {limit: `bucket: {capacity: 3, refill: {tokens: 1, interval: 1h}}`, during: 3, after: 0},
	"higher capacity":             kept(change{limit: `bucket: {capacity: 40, refill: {tokens: 1, interval: 1h}}`}),
	"tokens of the refill":        kept(change{limit: `bucket: {capacity: 20, refill: {tokens: 2, interval: 1h}}`}),
	"interval of the refill":      kept(change{limit: `bucket: {capacity: 20, refill: {tokens: 1, interval: 30m}}`}),
	"fixed cost":                  {limit: `cost: {type: Fixed, fixed: {tokens: 2}}`, during: 3, after: 0},
	"rules of the cost":           {limit: `cost: {type: Fixed, fixed: {tokens: 1, rules: [{matches: [{methods: [GET]}], tokens: 3}]}}`, during: 2, after: 0},
	"cost of a request header":    {limit: `cost: {type: RequestHeader, requestHeader: {name: X-Cost, default: 1, maximum: 5}}`, during: 3, after: 0},
	"cost of a response's header": kept(change{limit: `cost: {type: ResponseHeader, responseHeader: {name: X-Cost, default: 1, maximum: 5}}`}),
	"override to a bucket":        renewed(`overrides: [{name: gold, type: Bucket, bucket: {capacity: 20, refill: {tokens: 1, interval: 1h}}, matches: [{methods: [GET]}]}]`),
	"override to no limit":        {limit: `overrides: [{name: free, type: Unlimited}]`, during: 8, after: 6},
	"override to refusal":         {limit: `overrides: [{name: stolen, type: Deny}]`, during: 0, after: 6},
	"no matches":                  kept(change{limit: `matches: []`}),
	"match of methods":            kept(change{limit: `matches: [{methods: [GET, POST]}]`}),
	"match of an exact path":      kept(change{limit: `matches: [{path: {type: Exact, value: /page}}]`}),
	"match of headers":            kept(change{limit: `matches: [{headers: [{type: Prefix, name: X-Tenant, value: a}]}]`}),
	"match of listed headers":     kept(change{limit: `matches: [{headers: [{type: In, name: X-Tenant, values: [b, acme]}]}]`}),
	"match of hashed headers":     kept(change{limit: `matches: [{headers: [{type: InSHA256, name: X-Tenant, hashes: [` + sha256OfAcme + `]}]}]`}),
	"match of hosts":              kept(change{limit: `matches: [{hosts: [127.0.0.1]}]`}),
	"match of query parameters":   kept(change{limit: `matches: [{queryParams: [{name: rows, value: "5"}]}]`}),
	"match of cookies":            kept(change{limit: `matches: [{cookies: [{name: session, value: s}]}]`}),
	"match of ports":              kept(change{limit: `matches: [{ports: [http]}, {methods: [GET]}]`}),
	"match of client CIDRs":       kept(change{spec: `clientIP: {type: Peer}`, limit: `matches: [{clientCIDRs: [127.0.0.0/8]}]`}),
	"match of gRPC":               kept(change{limit: `matches: [{grpc: {service: shop.Orders, method: Place}}, {methods: [GET]}]`}),
	"match of an expression":      kept(change{limit: `matches: [{when: request.method == "GET"}]`}),
	"match that nothing fits":     {limit: `matches: [{path: {type: Exact, value: /other}}]`, during: 8, after: 6},

	"whenMissing of a key part":      kept(change{limit: `keyParts: [{type: Header, header: {name: X-Api-Key, whenMissing: Skip}}]`}),
	"key by another header":          renewed(`keyParts: [{type: Header, header: {name: X-Other-Key}}]`),
	"key by address, too":            {spec: `clientIP: {type: Peer}`, limit: `keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: ClientIP, clientIP: {whenMissing: Deny}}]`, during: 8, after: 6},
	"key by host, too":               renewed(`keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: Host, host: {whenMissing: Deny}}]`),
	"key by a variable, too":         renewed(`{keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: PathVariable, pathVariable: {name: page}}], matches: [{path: {type: Template, value: "/{page}"}}]}`),
	"key by a query parameter, too":  renewed(`keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: Query, query: {name: rows, whenMissing: Deny}}]`),
	"key by a cookie, too":           renewed(`keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: Cookie, cookie: {name: session, whenMissing: Deny}}]`),
	"key by a claim, too":            renewed(`keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: Claim, claim: {name: sub, whenMissing: Deny}}]`),
	"key by an expression, too":      renewed(`keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: Expression, expression: {value: request.method, whenMissing: Deny}}]`),
	"key by method and workload too": renewed(`keyParts: [{type: Header, header: {name: X-Api-Key}}, {type: Method}, {type: Workload}]`),
}

// Values that requests have beside the key.
const (
	sha256OfAcme = "822b33ad87c148a0a20a5ba7cd5ebcaa68d36a18e7aad165554903f52ca82757"
	// claimed is a JWT of {"sub":"me"}; nobody checks its signature.
	claimed = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9."
)

// changed is the base with a change.
func changed(c change) v1alpha1.RateLimitPolicySpec {
	GinkgoHelper()
	base, spec, limit := map[string]any{}, map[string]any{}, map[string]any{}
	for text, into := range map[string]*map[string]any{baseSpec: &base, c.spec: &spec, c.limit: &limit} {
		Expect(yaml.Unmarshal([]byte(text), into)).To(Succeed(), text)
	}
	maps.Copy(base, spec)
	maps.Copy(base["limits"].([]any)[0].(map[string]any), limit)
	text, err := yaml.Marshal(base)
	Expect(err).NotTo(HaveOccurred())
	var result v1alpha1.RateLimitPolicySpec
	Expect(yaml.UnmarshalStrict(text, &result)).To(Succeed(), string(text))
	return result
}

// translated is the record of a policy's generation.
func translated(name string, generation int64, spec v1alpha1.RateLimitPolicySpec) *bucketconfig.Record {
	GinkgoHelper()
	record, err := translator.Translate(&v1alpha1.RateLimitPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid-of-" + name), Generation: generation},
		Spec:       spec,
	})
	Expect(err).NotTo(HaveOccurred())
	return record
}

// rich asks as a client with something for every match and key part, and answers the status.
func (p *pod) rich(ctx context.Context, key string) (int, error) {
	return p.send(ctx, "/page?rows=5", map[string]string{
		keyHeader: key, "X-Other-Key": key, "X-Cost": "2", "X-Tenant": "acme", "Cookie": "session=s", "Authorization": "Bearer " + claimed,
	})
}

// traffic asks pods in turn by four clients until it is told to stop, and then answers how often it got which status; 0 is none.
func traffic(ctx context.Context, key string, pods ...*pod) (stop func() map[int]int) {
	var (
		clients sync.WaitGroup
		ended   atomic.Bool
		lock    sync.Mutex
		counts  = map[int]int{}
	)
	for i := range 4 {
		clients.Go(func() {
			for n := i; !ended.Load() && ctx.Err() == nil; n++ {
				status, err := pods[n%len(pods)].rich(ctx, key)
				if err != nil {
					status = 0
				}
				lock.Lock()
				counts[status]++
				lock.Unlock()
			}
		})
	}
	return func() map[int]int {
		ended.Store(true)
		clients.Wait()
		return counts
	}
}

var _ = Describe("A live change of a policy", Ordered, func() {
	var (
		t    *tenant
		pods []*pod
	)
	BeforeAll(func(ctx SpecContext) {
		t = common.newTenant(ctx)
		pods = []*pod{start(ctx, binary, t, appAddr), start(ctx, binary, t, appAddr)}
	})
	apply := func(ctx context.Context, name string, generation int64, spec v1alpha1.RateLimitPolicySpec) {
		GinkgoHelper()
		t.publish(ctx, translated(name, generation, spec))
		for _, p := range pods {
			p.applies(ctx, name, generation)
		}
	}
	// pass is how many of n requests by pods in turn pass.
	pass := func(ctx context.Context, n int, key string) (count int) {
		GinkgoHelper()
		for i := range n {
			status, err := pods[i%len(pods)].rich(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			if status == http.StatusOK {
				count++
			}
		}
		return count
	}

	It("is tried for every field that a policy has", func() {
		base, tried := fields(changed(change{})), map[string]bool{}
		for _, c := range changes {
			now := fields(changed(c))
			for _, name := range slices.Concat(slices.Collect(maps.Keys(base)), slices.Collect(maps.Keys(now))) {
				tried[name] = tried[name] || !reflect.DeepEqual(base[name], now[name])
			}
		}
		untried := slices.DeleteFunc(fieldsOf(reflect.TypeFor[v1alpha1.RateLimitPolicySpec](), nil), func(name string) bool { return tried[name] })
		Expect(untried).To(BeEmpty(), "a field without an entry in the table of changes")
	})

	for _, name := range slices.Sorted(maps.Keys(changes)) {
		c := changes[name]
		It("keeps what was spent unless the bucket is another, fails nobody and loses no verdict: "+name, func(ctx SpecContext) {
			policy, key := unique("changed"), unique("key")
			apply(ctx, policy, 1, changed(change{}))
			Expect(pass(ctx, 14, key)).To(Equal(14))
			stop := traffic(ctx, unique("busy"), pods...)
			DeferCleanup(func() { stop() })
			apply(ctx, policy, 2, changed(c))
			during := pass(ctx, 8, key)
			apply(ctx, policy, 3, changed(change{}))
			statuses := stop()
			Expect(during).To(Equal(c.during), "while it is in force")
			Expect(pass(ctx, 30, key)).To(Equal(c.after), "after it was taken back")

			Expect(statuses).To(HaveKey(http.StatusTooManyRequests), "there was traffic")
			Expect(slices.Collect(maps.Keys(statuses))).To(HaveEach(BeElementOf(
				http.StatusOK, http.StatusTooManyRequests, http.StatusForbidden, 430)), "%v", statuses)
			for _, p := range pods {
				Expect(p.scrape(ctx)).To(ContainSubstring(`portero_verdict_duration_seconds_count{source="local"} 0`))
			}
		}, NodeTimeout(patience*3))
	}
})

// fields are the values that each field of each type has in a value, wherever it stands.
func fields(value any) map[string][]string {
	found := map[string][]string{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if !v.Field(i).IsZero() {
					name := fieldName(v.Type(), i)
					text, err := json.Marshal(v.Field(i).Interface())
					Expect(err).NotTo(HaveOccurred())
					found[name] = append(found[name], string(text))
					walk(v.Field(i))
				}
			}
		default: // its text was taken with the field's
		}
	}
	walk(reflect.ValueOf(value))
	return found
}

// fieldsOf are all that a type has, and the types within it.
func fieldsOf(t reflect.Type, known []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return known
	}
	for i := range t.NumField() {
		if name := fieldName(t, i); !slices.Contains(known, name) {
			known = fieldsOf(t.Field(i).Type, append(known, name))
		}
	}
	return known
}

func fieldName(t reflect.Type, i int) string {
	return strings.Join([]string{t.Name(), t.Field(i).Name}, ".")
}
