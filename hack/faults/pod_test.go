//go:build e2e

package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/portero-dev/portero/hack/faults/link"
	"github.com/portero-dev/portero/internal/sidecarenv"
	"github.com/portero-dev/portero/internal/testenv"
)

// pod is a pod of the API server whose sidecar is a process here.
type pod struct {
	name       string
	url, admin string
	process    *os.Process
}

func startPod(ctx context.Context, binary, secrets, upstream, name string) *pod {
	GinkgoHelper()
	object := testenv.NewPod(namespace, name, testenv.Asked, testenv.WithLabel("app", "web"),
		testenv.WithSidecar(sidecarenv.ContainerName), testenv.Ready)
	status := object.Status.DeepCopy()
	Expect(kube.Create(ctx, object)).To(Succeed())
	object.Status = *status
	Expect(kube.Status().Update(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(kube.Delete(ctx, object))).To(Succeed())
	})

	labels := filepath.Join(GinkgoT().TempDir(), "labels")
	Expect(os.WriteFile(labels, []byte("app=\"web\"\n"), 0o600)).To(Succeed())
	command := exec.Command(binary, "-upstream="+upstream, "-namespace="+namespace, "-pod="+name, "-uid="+string(object.UID),
		"-credentials="+secrets, "-labels="+labels)
	command.Stderr = GinkgoWriter
	// As a container with a CPU limit of one core would.
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	stdin, err := command.StdinPipe() // its end ends the process, also when this one dies
	Expect(err).NotTo(HaveOccurred())
	stdout, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = stdin.Close()
		Expect(command.Wait()).To(Succeed())
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	proxy, admin, _ := strings.Cut(strings.TrimSpace(line), " ")
	return &pod{name: name, url: "http://" + proxy, admin: "http://" + admin, process: command.Process}
}

// sample is what a sidecar tells at a moment. Counters are since its start.
type sample struct {
	at time.Time
	// verdicts are those that took at most so many seconds, from either source.
	verdicts map[float64]uint64
	// redis and local are verdicts by source.
	redis, local uint64
	// open are the masters whose breaker is open.
	open       []string
	goroutines float64
	rss        float64
	// sockets are connections to Redis, in one of socketsEvery samples.
	sockets int
}

var scraper = &http.Client{Timeout: 2 * time.Second}

func (p *pod) sample() (sample, error) {
	response, err := scraper.Get(p.admin + sidecarenv.MetricsPath)
	if err != nil {
		return sample{}, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return sample{}, fmt.Errorf("metrics of %s: %w", p.name, err)
	}
	s := sample{at: time.Now(), verdicts: map[float64]uint64{}}
	for _, metric := range families["portero_verdict_duration_seconds"].GetMetric() {
		histogram := metric.GetHistogram()
		switch label(metric, "source") {
		case "redis":
			s.redis = histogram.GetSampleCount()
		case "local":
			s.local = histogram.GetSampleCount()
		}
		for _, bucket := range histogram.GetBucket() {
			s.verdicts[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	for _, metric := range families["portero_breaker_open"].GetMetric() {
		s.open = append(s.open, label(metric, "master"))
	}
	s.goroutines = families["go_goroutines"].GetMetric()[0].GetGauge().GetValue()
	s.rss = families["process_resident_memory_bytes"].GetMetric()[0].GetGauge().GetValue()
	return s, nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// sockets counts the process's connections to the links, established or being so. The kernel walks a large table for it, and keeps others
// from it meanwhile: the count is not for every sample.
func (p *pod) sockets() (int, error) {
	own := map[string]bool{}
	folder := fmt.Sprintf("/proc/%d/fd", p.process.Pid)
	files, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		// A descriptor may be gone by now.
		if target, err := os.Readlink(filepath.Join(folder, file.Name())); err == nil && strings.HasPrefix(target, "socket:[") {
			own[strings.Trim(target, "socket:[]")] = true
		}
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", p.process.Pid))
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range strings.Lines(string(table)) {
		const remote, inode = 2, 9
		fields := strings.Fields(line)
		if len(fields) > inode && own[fields[inode]] && toLink(fields[remote]) {
			count++
		}
	}
	return count, nil
}

// toLink tells whether an address of /proc/net/tcp, such as 0100007F:1F90, is a link's.
func toLink(addr string) bool {
	_, hex, _ := strings.Cut(addr, ":")
	port, err := strconv.ParseUint(hex, 16, 16)
	return err == nil && slices.ContainsFunc(links, func(l *link.Link) bool { return l.Port() == int(port) })
}
