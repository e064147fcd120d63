package sidecars_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// curl runs curl, and answers what it printed; its report of errors is in the spec's output.
func curl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	var out strings.Builder
	pipe(ctx, &out, curlCommand(ctx, args...))
	return out.String()
}

func curlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "curl", append([]string{"--silent", "--show-error", "--max-time", "120"}, args...)...)
}

// pipe runs commands of which each but the first reads what the one before writes. The last must succeed.
func pipe(ctx context.Context, out io.Writer, commands ...*exec.Cmd) {
	GinkgoHelper()
	last := commands[len(commands)-1]
	last.Stdout = out
	for i, command := range commands {
		command.Stderr = GinkgoWriter
		if i > 0 {
			reader, writer, err := os.Pipe()
			Expect(err).NotTo(HaveOccurred())
			commands[i-1].Stdout, command.Stdin = writer, reader
			defer reader.Close()
			defer writer.Close()
		}
	}
	for _, command := range commands {
		Expect(command.Start()).To(Succeed())
	}
	for _, command := range commands {
		for _, end := range []any{command.Stdin, command.Stdout} {
			if file, ok := end.(*os.File); ok {
				Expect(file.Close()).To(Succeed()) // the commands have their own
			}
		}
	}
	Expect(last.Wait()).To(Succeed(), "%q", last.Args)
	for _, command := range commands[:len(commands)-1] {
		_ = command.Wait() // one whose reader has left may fail
	}
}

// problem is the body of a refusal.
type problem struct {
	Status           int      `json:"status"`
	Title            string   `json:"title"`
	ViolatedPolicies []string `json:"violated-policies"`
}

func expectRefusal(body, limit string) {
	GinkgoHelper()
	var p problem
	Expect(json.Unmarshal([]byte(body), &p)).To(Succeed(), body)
	Expect(p.Status).To(Equal(429))
	Expect(p.Title).NotTo(BeEmpty())
	Expect(p.ViolatedPolicies).To(ConsistOf("clients/" + limit))
}

// spend takes all tokens of a new key.
func spend(ctx context.Context) (key string) {
	GinkgoHelper()
	key = keyHeader + ": " + unique("spent")
	for range hourlyCapacity {
		Expect(curl(ctx, "-o", "/dev/null", "-w", "%{http_code}", "-H", key, shared.url("/page"))).To(Equal("200"))
	}
	return key
}

var _ = Describe("curl", func() {
	for _, protocol := range []struct{ flag, version string }{{"--http1.1", "1.1"}, {"--http2-prior-knowledge", "2"}} {
		Describe("over HTTP/"+protocol.version, func() {
			It("gets what the app answers, early hints and trailers too, and the limit's fields", func(ctx SpecContext) {
				ask := func(addr string) (lines []string) {
					printed := curl(ctx, protocol.flag, "-i", "-H", keyHeader+": "+unique("page"), "http://"+addr+"/page?x=%zz;/../")
					for line := range strings.Lines(printed) {
						lines = append(lines, strings.ToLower(strings.TrimSpace(line)))
					}
					return lines
				}
				direct, through := ask(appAddr), ask(shared.addr)
				Expect(direct).To(ContainElements(ContainSubstring("103"), "link: </style.css>; rel=preload", "x-sum: 7", ContainSubstring("get /page?x=%zz;/../ of curl")))
				Expect(through).To(ConsistOf(append(direct,
					`ratelimit-policy: "clients/hourly";q=2;w=7200`, `ratelimit: "clients/hourly";r=1;t=3600`)))
			})

			It("reads why it is refused", func(ctx SpecContext) {
				head := filepath.Join(GinkgoT().TempDir(), "head")
				body := curl(ctx, protocol.flag, "-D", head, "-H", spend(ctx), shared.url("/page"))
				expectRefusal(body, "hourly")
				Expect(os.ReadFile(head)).To(SatisfyAll(
					ContainSubstring("HTTP/"+protocol.version+" 429"), WithTransform(func(b []byte) string { return strings.ToLower(string(b)) },
						ContainSubstring("content-type: application/problem+json")), MatchRegexp(`(?i)retry-after: 3[56]\d\d`)))
			})

			It("reads why an upload of 1 GiB is refused that it has begun", func(ctx SpecContext) {
				file := filepath.Join(GinkgoT().TempDir(), "sparse")
				Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
				Expect(os.Truncate(file, 1<<30)).To(Succeed())
				key := spend(ctx)
				for _, from := range []string{file, "-"} { // of known length, and in chunks
					var printed strings.Builder
					pipe(ctx, &printed, exec.CommandContext(ctx, app, "-pattern", "1073741824"),
						curlCommand(ctx, protocol.flag, "-H", "Expect:", "-H", key, "-T", from, "-w", "%{http_code}", shared.url("/upload")))
					body, status, _ := strings.Cut(printed.String(), "\n")
					Expect(status).To(Equal("429"))
					expectRefusal(body, "hourly")
				}
			})
		})
	}

	// Over HTTP/2 curl 7.88 fails to retry on a connection that it keeps, whoever answers.
	It("waits as long as Retry-After says when it retries, and then passes", func(ctx SpecContext) {
		key := pacedHeader + ": " + unique("paced")
		Expect(curl(ctx, "-o", "/dev/null", "-w", "%{http_code}", "-H", key, shared.url("/page"))).To(Equal("200"))
		begin := time.Now()
		printed := curl(ctx, "--http1.1", "--retry", "1", "-w", "%{http_code}", "-H", key, shared.url("/page"))
		Expect(printed).To(HaveSuffix("200"))
		Expect(time.Since(begin)).To(BeNumerically(">", pace/2), "it was refused first")
	})

	It("sends a body when the app asks for it, and none when the sidecar refuses", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "body")
		Expect(os.WriteFile(file, make([]byte, 1<<16), 0o600)).To(Succeed())
		ask := func(key string) (printed string) {
			return curl(ctx, "--http1.1", "-H", "Expect: 100-continue", "-H", key, "-T", file, "-w", "\n%{size_upload} %{http_code}", shared.url("/upload"))
		}
		key := keyHeader + ": " + unique("continue")
		Expect(ask(key)).To(SatisfyAll(HavePrefix("65536 bytes, sum "), HaveSuffix("\n65536 200")))
		Expect(ask(key)).To(HaveSuffix("\n65536 200"))
		refused := ask(key)
		Expect(refused).To(HaveSuffix("\n0 429"))
		expectRefusal(strings.TrimSuffix(refused, "\n0 429"), "hourly")
	})
})
