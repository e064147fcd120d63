//go:build e2e

package faults_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	portero "github.com/portero-dev/portero/api/v1alpha1"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
)

// result holds the figures of one cell, as bin/faults/results.json has them. Goroutines is how many more there were than before the
// fault, RSS memory as a multiple of before, Local the share of local verdicts during the fault.
type result struct {
	Fault      string            `json:"fault"`
	Mode       portero.OnFailure `json:"mode"`
	Requests   int               `json:"requests"`
	Errors     int               `json:"errors"`
	Passed     int               `json:"passed"`
	Bound      float64           `json:"bound"`
	P99        float64           `json:"p99_ms"`
	Recovery   float64           `json:"recovery_s"`
	Local      float64           `json:"local"`
	Sockets    int               `json:"sockets"`
	Goroutines int               `json:"goroutines"`
	RSS        float64           `json:"rss"`
	OK         bool              `json:"ok"`
}

type table struct{ rows []result }

var results table

func (t *table) add(c *cell) { t.rows = append(t.rows, c.result) }

var _ = AfterSuite(func() {
	if len(results.rows) == 0 {
		return // a soak
	}
	folder := filepath.Join(testenv.Root(), "bin", "faults")
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	slices.SortStableFunc(results.rows, func(a, b result) int { return cmp.Compare(a.Fault, b.Fault) })
	data, err := json.MarshalIndent(results.rows, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(folder, "results.json"), append(data, '\n'), 0o644)).To(Succeed())
	fmt.Fprint(os.Stdout, "\n"+results.String())
})

// String is the table as Markdown.
func (t *table) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| Fault\t| Mode\t| Requests\t| Errors\t| Passed\t| Bound\t| p99 ms\t| Shared after s\t| Local %\t| Sockets\t| Goroutines\t| Memory\t| OK\t|")
	fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range t.rows {
		ok := "yes"
		if !r.OK {
			ok = "no"
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %d\t| %d\t| %d\t| %.0f\t| %.1f\t| %.2f\t| %.0f\t| %d\t| %+d\t| %.2f\t| %s\t|\n",
			r.Fault, r.Mode, r.Requests, r.Errors, r.Passed, r.Bound, r.P99, r.Recovery, 100*r.Local, r.Sockets, r.Goroutines, r.RSS, ok)
	}
	_ = w.Flush()
	return out.String()
}

// credentials are the sidecars' ACL user and its password.
func credentials(ctx context.Context) (user, password string) {
	GinkgoHelper()
	var secret corev1.Secret
	Expect(kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sidecarenv.CredentialsName}, &secret)).To(Succeed())
	return string(secret.Data[sidecarenv.SecretUsername]), string(secret.Data[sidecarenv.SecretPassword])
}
