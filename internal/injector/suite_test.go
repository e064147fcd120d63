package injector_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/portero-dev/portero/internal/injector"
)

var update = flag.Bool("update", false, "write the golden files from what the code gives")

func TestInjector(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Injector")
}

func options() injector.Options {
	return injector.Options{Image: "portero.example/sidecar:v0.1.0", Version: "v0.1.0"}
}

// podJSON turns YAML into the JSON that the API server would send.
func podJSON(text string) []byte {
	GinkgoHelper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	Expect(err).NotTo(HaveOccurred())
	return raw
}

// inject injects, and checks what holds for every result: the patch leads to it, and doing it again changes nothing.
func inject(raw []byte, o injector.Options) injector.Result {
	GinkgoHelper()
	r, err := injector.Inject(raw, o)
	Expect(err).NotTo(HaveOccurred())
	Expect(applied(raw, r.Patch)).To(MatchJSON(r.Pod), "the patch leads to another pod")
	again, err := injector.Inject(r.Pod, o)
	Expect(err).NotTo(HaveOccurred())
	Expect(again.Patch).To(BeEmpty(), "a second injection changes the pod")
	Expect(string(again.Pod)).To(Equal(string(r.Pod)))
	Expect(again.Status).To(Equal(r.Status))
	return r
}

func applied(raw []byte, ops []injector.Operation) []byte {
	GinkgoHelper()
	text, err := json.Marshal(ops)
	Expect(err).NotTo(HaveOccurred())
	if len(ops) == 0 {
		return raw
	}
	patch, err := jsonpatch.DecodePatch(text)
	Expect(err).NotTo(HaveOccurred())
	out, err := patch.Apply(raw)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func podOf(raw []byte) *corev1.Pod {
	GinkgoHelper()
	d := json.NewDecoder(bytes.NewReader(raw))
	pod := &corev1.Pod{}
	Expect(d.Decode(pod)).To(Succeed())
	return pod
}

func marshal(pod *corev1.Pod) []byte {
	GinkgoHelper()
	raw, err := json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	return raw
}

func initContainer(pod *corev1.Pod, name string) *corev1.Container {
	GinkgoHelper()
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i]
		}
	}
	Fail("no init container " + name)
	return nil
}

func initNames(pod *corev1.Pod) (names []string) {
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	return names
}

func envOf(c *corev1.Container) map[string]string {
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	return env
}
