package alerts_test

import (
	"bufio"
	"context"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	_ "github.com/portero-dev/portero/cmd/manager/app" // registers the manager's metrics
)

// exported is what can be asked for: the labels of each metric, and the values of those labels whose values are few.
type exported struct {
	labels map[string][]string
	values map[string][]string // by metric and label
}

// described are the parts of a Desc's text.
var described = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: .*variableLabels: \{([\w,]*)\}\}$`)

func (e *exported) add(desc string) {
	if parts := described.FindStringSubmatch(desc); parts != nil {
		e.labels[parts[1]] = strings.Split(parts[2], ",")
	}
}

// readExported asks the manager's registry, the sidecar's list, and the API server's own code.
func readExported(ctx context.Context) *exported {
	GinkgoHelper()
	e := &exported{labels: map[string][]string{}, values: map[string][]string{
		"portero_policy_condition type":   constants("ConditionType"),
		"portero_policy_condition reason": constants("ConditionReason"),
		"portero_policy_condition status": {"True", "False", "Unknown"},
	}}
	descs := make(chan *prometheus.Desc, 1024)
	metrics.Registry.(*prometheus.Registry).Describe(descs)
	close(descs)
	for desc := range descs {
		e.add(desc.String())
	}
	e.readSidecars()
	e.readAPIServers(ctx)
	return e
}

func (e *exported) readSidecars() {
	GinkgoHelper()
	lines := bufio.NewScanner(strings.NewReader(string(read("sidecar", "internal", "metrics", "testdata", "exported.txt"))))
	for lines.Scan() {
		metric, labels, found := strings.Cut(strings.TrimSuffix(lines.Text(), "}"), "{")
		Expect(found).To(BeTrue(), lines.Text())
		if label, value, preset := strings.Cut(labels, "="); preset {
			key := metric + " " + label
			e.values[key] = append(e.values[key], strings.Trim(value, `"`))
		} else {
			e.labels[metric] = strings.Split(labels, ",")
		}
	}
}

// readAPIServers counts a call of a webhook that failed, as an API server does.
func (e *exported) readAPIServers(ctx context.Context) {
	GinkgoHelper()
	admissionmetrics.Metrics.ObserveWebhookFailOpen(ctx, "inject.portero.dev", "admit")
	families, err := legacyregistry.DefaultGatherer.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if name := family.GetName(); strings.HasPrefix(name, "apiserver_admission_webhook_") {
					e.labels[name] = append(e.labels[name], label.GetName())
				}
			}
		}
	}
}
