package sidecars_test

import (
	"fmt"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	gibibyte = 1 << 30
	// maxGrowth is far less than a body, and more than the buffers of a few connections and the heap's slack.
	maxGrowth = 32 << 20
)

var _ = Describe("A body of 1 GiB", func() {
	for _, protocol := range []string{"--http1.1", "--http2-prior-knowledge"} {
		It("passes up and down in constant memory: curl "+protocol, func(ctx SpecContext) {
			key := keyHeader + ": " + unique("large")
			size := fmt.Sprint(gibibyte)
			before := shared.peak()
			var up, down, want strings.Builder
			pipe(ctx, &up, exec.CommandContext(ctx, app, "-pattern", size), curlCommand(ctx, protocol, "-H", key, "-T", "-", shared.url("/upload")))
			pipe(ctx, &down, curlCommand(ctx, protocol, "-H", key, shared.url("/download?bytes="+size)), exec.CommandContext(ctx, app, "-sum"))
			after := shared.peak()

			pipe(ctx, &want, exec.CommandContext(ctx, app, "-pattern", size), exec.CommandContext(ctx, app, "-sum"))
			Expect(want.String()).To(HavePrefix(size + " bytes, sum "))
			Expect(up.String()).To(Equal(want.String()))
			Expect(down.String()).To(Equal(want.String()))
			GinkgoWriter.Printf("peak memory: %d MiB before, %d MiB after\n", before>>20, after>>20)
			Expect(after - before).To(BeNumerically("<", maxGrowth))
		})
	}
})
