package sidecars_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

// build builds a command of a tree, without the race detector, which would cost the memory that specs measure.
func build(ctx context.Context, tree, command, name string) string {
	GinkgoHelper()
	binary := filepath.Join(GinkgoT().TempDir(), name)
	built := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, command)
	built.Dir = tree
	printed, err := built.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(printed))
	return binary
}

// launch starts a command that prints a line once it is up, and answers that. It ends with the spec or the suite.
func launch(ctx context.Context, binary string, args ...string) (*os.Process, string) {
	GinkgoHelper()
	// The context would end it with BeforeSuite.
	command := exec.CommandContext(context.WithoutCancel(ctx), binary, args...)
	command.Stderr = GinkgoWriter
	stdout, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	stdin, err := command.StdinPipe() // stays open as long as this process lives
	Expect(err).NotTo(HaveOccurred())
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(stdin.Close()).To(Succeed())
		Expect(command.Wait()).To(Succeed(), "it ends by itself")
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	return command.Process, line
}

// pod is a sidecar's process beside an app.
type pod struct {
	uid     string
	process *os.Process
	// credentials is the folder of the Secret's files.
	credentials string
	// addr is the protected port, and admin where its probes and metrics are.
	addr, admin string
}

// start starts a sidecar of a binary before an app, and ends it with the spec or the suite.
func start(ctx context.Context, binary string, t *tenant, upstream string) *pod {
	GinkgoHelper()
	p := &pod{uid: unique("uid"), credentials: GinkgoT().TempDir()}
	p.mount(t.secret)
	labels := filepath.Join(GinkgoT().TempDir(), "labels")
	Expect(os.WriteFile(labels, []byte("app=\"checkout\"\n"), 0o600)).To(Succeed())
	process, line := launch(ctx, binary,
		"-namespace", t.name, "-pod", p.uid, "-uid", p.uid, "-upstream", upstream, "-credentials", p.credentials, "-labels", labels)
	// A connection that the client opened and never used would hold up the drain.
	DeferCleanup(http.DefaultClient.CloseIdleConnections)
	p.process = process
	p.addr, p.admin, _ = strings.Cut(strings.TrimSpace(line), " ")
	return p
}

// mount writes a version of the Secret as kubelet does: into a folder of its own, to which a link is then swapped.
func (p *pod) mount(secret map[string]string) {
	GinkgoHelper()
	version, err := os.MkdirTemp(p.credentials, "..version")
	Expect(err).NotTo(HaveOccurred())
	for name, content := range secret {
		Expect(os.WriteFile(filepath.Join(version, name), []byte(content), 0o600)).To(Succeed())
	}
	link := version + ".link"
	Expect(os.Symlink(filepath.Base(version), link)).To(Succeed())
	Expect(os.Rename(link, filepath.Join(p.credentials, "..data"))).To(Succeed())
}

func (p *pod) url(path string) string { return "http://" + p.addr + path }

// send asks the app with a header, reads the answer to its end and tells its status.
func (p *pod) send(ctx context.Context, path string, header map[string]string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url(path), nil)
	if err != nil {
		return 0, err
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// scrape reads the metrics.
func (p *pod) scrape(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+sidecarenv.MetricsPath, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// applies waits until the pod enforces a policy's generation, as its metrics tell.
func (p *pod) applies(ctx context.Context, policy string, generation int64) {
	GinkgoHelper()
	Eventually(p.scrape, patience, "10ms").WithContext(ctx).Should(ContainSubstring(`portero_config_generation{policy="%s"} %d`+"\n", policy, generation))
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak is the most memory that the process ever had, in bytes.
func (p *pod) peak() int64 {
	GinkgoHelper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Pid))
	Expect(err).NotTo(HaveOccurred())
	found := peakLine.FindSubmatch(status)
	Expect(found).NotTo(BeNil())
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	Expect(err).NotTo(HaveOccurred())
	return kib << 10
}
