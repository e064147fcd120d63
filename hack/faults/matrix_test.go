//go:build e2e

package faults_test

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	portero "github.com/portero-dev/portero/api/v1alpha1"
)

// attempts is how often a fault is run at most: latencies are of a machine that others share, so a cell that misses nothing but a latency is
// run twice more before it counts.
const attempts = 3

var _ = Describe("The matrix", func() {
	for _, f := range allFaults() {
		labels := Label("matrix")
		if f.ci {
			labels = Label("matrix", "ci")
		}
		Describe(f.name, Ordered, labels, func() {
			var seen *observation
			var cells map[portero.OnFailure]*cell

			BeforeAll(func(ctx SpecContext) {
				user, userPassword = credentials(ctx)
				for range attempts {
					seen = observe(ctx, f)
					cells = judge(f, seen)
					if !onlyLate(cells) {
						break
					}
				}
				for _, mode := range modes {
					results.add(cells[mode])
				}
			}, NodeTimeout(4*time.Minute))

			for _, mode := range modes {
				It(string(mode), func() {
					c := cells[mode]
					AddReportEntry("seen", fmt.Sprintf("%+v", c.result))
					Expect(slices.Concat(c.wrong, c.late)).To(BeEmpty(), "%s", seen)
				})
			}
		})
	}
})

// onlyLate tells whether something is wrong, and that is latencies alone.
func onlyLate(cells map[portero.OnFailure]*cell) bool {
	late := false
	for _, c := range cells {
		if len(c.wrong) > 0 {
			return false
		}
		late = late || len(c.late) > 0
	}
	return late
}
