package expression_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/expression"
)

func TestExpression(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/expression")
}

// request is a request of which a test states what matters to it.
type request struct {
	texts  map[expression.Attribute]string
	port   uint16
	values map[expression.Collection]map[string]string
	query  map[string][]string
}

var _ expression.Request = request{}

func (r request) Text(a expression.Attribute) (string, bool) {
	text, ok := r.texts[a]
	return text, ok
}

func (r request) Port() uint16 { return r.port }

func (r request) Value(c expression.Collection, name string) (string, bool) {
	value, ok := r.values[c][name]
	return value, ok
}

func (r request) Values(c expression.Collection) map[string]string { return r.values[c] }

func (r request) Query() map[string][]string { return r.query }

// plain has something of everything.
func plain() request {
	return request{
		texts: map[expression.Attribute]string{
			expression.Method: "POST", expression.Path: "/api/v2/carts", expression.Host: "shop.example.com",
			expression.ClientIP: "203.0.113.7", expression.PortName: "http", expression.Workload: "deployment/web",
			expression.GRPCService: "shop.v1.Cart", expression.GRPCMethod: "Add",
		},
		port: 8080,
		values: map[expression.Collection]map[string]string{
			expression.Headers: {"x-plan": "gold", "x-n": "7", "x-ip": "203.0.113.7"},
			expression.Cookies: {"session": "s-1"},
			expression.Claims:  {"sub": "jane"},
		},
		query: map[string][]string{"tag": {"a", "b"}, "debug": {""}},
	}
}

func compile(text string, result expression.ResultType) *expression.Program {
	GinkgoHelper()
	program, err := expression.Compile(text, result)
	Expect(err).NotTo(HaveOccurred(), text)
	return program
}
