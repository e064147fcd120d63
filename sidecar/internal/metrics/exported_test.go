package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portero-dev/portero/sidecar/internal/failover"
	"github.com/portero-dev/portero/sidecar/internal/metrics"
)

// described are the parts of a Desc's text.
var described = regexp.MustCompile(`^Desc\{fqName: "(portero_\w+)", help: .*variableLabels: \{([\w,]*)\}\}$`)

var update = flag.Bool("update", false, "write testdata/exported.txt")

var _ = Describe("The list of what a sidecar exposes", func() {
	// hack/alerts holds alert rules against this list: it can't import the sidecar's packages.
	It("is that of testdata/exported.txt, with the kinds of the store's errors", func() {
		var lines []string
		descs := make(chan *prometheus.Desc, 256)
		metrics.New(metrics.Sources{}).Describe(descs)
		close(descs)
		for desc := range descs {
			if parts := described.FindStringSubmatch(desc.String()); parts != nil {
				lines = append(lines, fmt.Sprintf("%s{%s}", parts[1], parts[2]))
			}
		}
		for _, kind := range failover.Kinds {
			lines = append(lines, fmt.Sprintf("portero_store_errors_total{kind=%q}", string(kind)))
		}
		slices.Sort(lines)
		path := filepath.Join("testdata", "exported.txt")
		if *update {
			Expect(os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)).To(Succeed())
		}
		list, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Join(lines, "\n") + "\n").To(Equal(string(list)))
	})
})
