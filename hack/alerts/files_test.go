package alerts_test

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/portero-dev/portero/internal/testenv"
)

// rule is an alert rule.
type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

type groups struct {
	Groups []struct{ Rules []rule }
}

func (g *groups) rules() []rule {
	var all []rule
	for _, group := range g.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// unitTest is one of promtool's.
type unitTest struct {
	Name            string
	PromqlExprTests []struct {
		Expr       string
		ExpSamples []struct{ Labels string } `json:"exp_samples"`
	} `json:"promql_expr_test"`
}

func read(path ...string) []byte {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{testenv.Root()}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	return content
}

func readRules() []rule {
	GinkgoHelper()
	var file groups
	Expect(yaml.Unmarshal(read("config", "prometheus", "alerts.yaml"), &file)).To(Succeed())
	rules := file.rules()
	Expect(rules).NotTo(BeEmpty())
	return rules
}

func readTests() map[string]unitTest {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "prometheus", "tests", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	all := map[string]unitTest{}
	for _, path := range files {
		var file struct{ Tests []unitTest }
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.Unmarshal(content, &file)).To(Succeed())
		for _, test := range file.Tests {
			Expect(all).NotTo(HaveKey(test.Name))
			all[test.Name] = test
		}
	}
	return all
}

// headings are the anchors of the runbook's sections.
func headings() []string {
	GinkgoHelper()
	var anchors []string
	lines := bufio.NewScanner(strings.NewReader(string(read("config", "prometheus", "README.md"))))
	for lines.Scan() {
		if title, ok := strings.CutPrefix(lines.Text(), "## "); ok {
			anchors = append(anchors, strings.ToLower(title))
		}
	}
	return anchors
}

// constants are the values of the API's constants of a type.
func constants(kind string) []string {
	GinkgoHelper()
	var values []string
	for _, match := range regexp.MustCompile(kind+` = "(\w+)"`).FindAllStringSubmatch(string(read("api", "v1alpha1", "conditions.go")), -1) {
		values = append(values, match[1])
	}
	slices.Sort(values)
	Expect(values).NotTo(BeEmpty())
	return values
}
