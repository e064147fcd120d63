package alerts_test

import (
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// target are the labels that the scrape gives every series (config/prometheus/README.md).
var target = []string{"namespace", "pod"}

// alternatives are the words of a matcher's value: a|b|c.
var alternatives = regexp.MustCompile(`^[\w]+(\|\w+)*$`)

var templated = regexp.MustCompile(`\$labels\.(\w+)`)

var _ = Describe("Each alert", func() {
	It("asks only for metrics, labels and values that the binaries expose", func(ctx SpecContext) {
		known := readExported(ctx)
		for _, rule := range readRules() {
			parsed := parse(rule.Expr)
			Expect(parsed.selectors).NotTo(BeEmpty(), rule.Alert)
			labels := slices.Clone(target)
			for _, selector := range parsed.selectors {
				metric := selector.metric
				if _, plain := known.labels[metric]; !plain {
					metric = strings.TrimSuffix(metric, "_count")
				}
				Expect(known.labels[metric]).NotTo(BeNil(), "%s asks for %s", rule.Alert, metric)
				labels = append(labels, known.labels[metric]...)
				for _, matcher := range selector.matchers {
					Expect(known.labels[metric]).To(ContainElement(matcher.label), "%s: %s", rule.Alert, metric)
					if values := known.values[metric+" "+matcher.label]; values != nil {
						Expect(matcher.value).To(MatchRegexp(alternatives.String()), rule.Alert)
						Expect(values).To(ContainElements(strings.Split(matcher.value, "|")), "%s: %s", rule.Alert, metric)
					}
				}
			}
			for _, label := range parsed.grouped {
				Expect(labels).To(ContainElement(label), rule.Alert)
			}
		}
	})

	It("says how urgent it is, what users see, and where the runbook tells what to do", func() {
		anchors := headings()
		for _, rule := range readRules() {
			Expect(rule.Labels).To(HaveKeyWithValue("severity", BeElementOf("critical", "warning")), rule.Alert)
			Expect(rule.Annotations).To(And(HaveKey("summary"), HaveKey("description"), HaveKey("runbook_url"), HaveLen(3)), rule.Alert)
			page, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
			Expect(page).To(HaveSuffix("/portero-dev/portero/blob/main/config/prometheus/README.md"), rule.Alert)
			Expect(anchor).To(Equal(strings.ToLower(rule.Alert)))
			Expect(anchors).To(ContainElement(anchor))
		}
	})

	It("names in its text only labels that it has", func() {
		for _, rule := range readRules() {
			parsed := parse(rule.Expr)
			if !regexp.MustCompile(`\bby \(`).MatchString(rule.Expr) {
				parsed.grouped = target
			}
			for _, match := range templated.FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1) {
				Expect(parsed.grouped).To(ContainElement(match[1]), rule.Alert)
			}
		}
	})

	It("has a unit test in which it fires, and one in which it keeps quiet", func() {
		tests := readTests()
		rules := readRules()
		for _, rule := range rules {
			fires, quiet := tests[rule.Alert+" fires"], tests[rule.Alert+" keeps quiet"]
			Expect(fires.PromqlExprTests).To(HaveLen(1), rule.Alert)
			Expect(fires.PromqlExprTests[0].ExpSamples).NotTo(BeEmpty(), rule.Alert)
			for _, sample := range fires.PromqlExprTests[0].ExpSamples {
				Expect(sample.Labels).To(And(ContainSubstring(`alertname=%q`, rule.Alert), ContainSubstring(`alertstate="firing"`)))
			}
			Expect(quiet.PromqlExprTests).To(HaveLen(1), rule.Alert)
			Expect(quiet.PromqlExprTests[0].Expr).To(ContainSubstring(`ALERTS{alertstate="firing", alertname=%q}`, rule.Alert))
			Expect(quiet.PromqlExprTests[0].ExpSamples).To(BeEmpty(), rule.Alert)
		}
		Expect(tests).To(HaveLen(2 * len(rules)))
	})

	It("has a name of its own", func() {
		var names []string
		for _, rule := range readRules() {
			names = append(names, rule.Alert)
		}
		Expect(slices.Compact(slices.Sorted(slices.Values(names)))).To(HaveLen(len(names)))
	})
})

var _ = Describe("The alert on skipped webhooks", func() {
	It("asks for the webhooks that are installed", func() {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		first, _, _ := strings.Cut(string(read("config", "webhook", "configuration.yaml")), "\n---")
		Expect(yaml.Unmarshal([]byte(first), &configuration)).To(Succeed())
		Expect(configuration.Webhooks).NotTo(BeEmpty())
		for _, rule := range readRules() {
			for _, selector := range parse(rule.Expr).selectors {
				if !strings.HasPrefix(selector.metric, "apiserver_") || len(selector.matchers) == 0 {
					continue
				}
				for i := range configuration.Webhooks {
					Expect(configuration.Webhooks[i].Name).To(MatchRegexp("^" + selector.matchers[0].value + "$"))
				}
			}
		}
	})
})
