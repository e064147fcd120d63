package expression_test

import (
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/expression"
)

var _ = Describe("Evaluating a condition", func() {
	DescribeTable("reads the request",
		func(text string, want bool) {
			Expect(compile(text, expression.Bool).Bool(plain())).To(Equal(want))
		},
		Entry("method", "request.method in ['POST', 'PUT']", true),
		Entry("path", "request.path.startsWith('/api/') && request.path.matches('^/api/v[0-9]+/')", true),
		Entry("an element of the path", "request.path.split('/')[2] == 'v2'", true),
		Entry("host", "request.host.endsWith('.example.com')", true),
		Entry("port", "request.port == 8080 && request.portName == 'http'", true),
		Entry("workload", "request.workload == 'deployment/web'", true),
		Entry("client", "cidr('203.0.113.0/24').containsIP(request.clientIP)", true),
		Entry("client, elsewhere", "cidr('198.51.100.0/24').containsIP(request.clientIP)", false),
		Entry("gRPC", "request.grpc.service == 'shop.v1.Cart' && request.grpc.method == 'Add'", true),
		Entry("header", "request.headers['x-plan'] == 'gold'", true),
		Entry("header, as a field", "request.headers.?etag.orValue('none') == 'none'", true),
		Entry("header that is missing", "'x-other' in request.headers", false),
		Entry("header that is missing, by default", "request.headers[?'x-other'].orValue('free') == 'free'", true),
		Entry("a number in a header", "int(request.headers['x-n']) > 5", true),
		Entry("two headers", "request.headers['x-ip'] == request.clientIP", true),
		Entry("number of headers", "size(request.headers) == 3", true),
		Entry("all headers", "request.headers.exists(h, h.startsWith('x-p') && request.headers[h] == 'gold')", true),
		Entry("all headers as a map", "request.headers == {'x-plan': 'gold', 'x-n': '7', 'x-ip': '203.0.113.7'}", true),
		Entry("cookie", "request.cookies.session.startsWith('s-')", true),
		Entry("claim", "request.claims.sub == 'jane'", true),
		Entry("query", "request.query['tag'] == ['a', 'b'] && 'b' in request.query.tag", true),
		Entry("query, present and empty", "'debug' in request.query && request.query.debug[0] == ''", true),
		Entry("query, missing", "request.query[?'x'][?0].orValue('') == ''", true),
		Entry("all of the query", "request.query.all(q, request.query[q].size() == 1)", false),
		Entry("case", "request.method.lowerAscii() == 'post'", true),
	)

	DescribeTable("goes through a map in the order of the names, or a key would be another one each time",
		func(text, want string) {
			req, program := plain(), compile(text, expression.String)
			many := map[string]string{}
			req.query = map[string][]string{}
			for _, name := range []string{"f", "b", "h", "a", "d", "g", "c", "e"} {
				many[name], req.query[name] = strings.ToUpper(name), []string{"1"}
			}
			req.values = map[expression.Collection]map[string]string{expression.Headers: many, expression.Cookies: many, expression.Claims: many}
			for range 50 {
				Expect(program.Text(req)).To(Equal(want))
			}
		},
		Entry("headers, the first", "request.headers.filter(h, h != 'a')[0]", "b"),
		Entry("cookies, their values", "request.cookies.map(c, request.cookies[c])[7]", "H"),
		Entry("claims, the last", "request.claims.map(c, c)[7]", "h"),
		Entry("query, the third", "request.query.map(q, q)[2]", "c"),
	)

	DescribeTable("tells of presence",
		func(text string) {
			program := compile(text, expression.Bool)
			Expect(program.Bool(plain())).To(BeTrue())
			Expect(program.Bool(request{})).To(BeFalse())
		},
		Entry("client", "has(request.clientIP)"),
		Entry("host", "has(request.host)"),
		Entry("name of the port", "has(request.portName)"),
		Entry("workload", "has(request.workload)"),
		Entry("gRPC", "has(request.grpc)"),
		Entry("header", "has(request.headers.x) || 'x-plan' in request.headers"),
	)

	DescribeTable("fails where it can't be told",
		func(text, message string) {
			_, err := compile(text, expression.Bool).Bool(request{values: map[expression.Collection]map[string]string{
				expression.Headers: {"long": strings.Repeat("a", expression.MaxValue+1), "n": "many"},
			}, query: map[string][]string{"long": {"", strings.Repeat("a", expression.MaxValue+1)}}})
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("a client that is not known", "request.clientIP == '203.0.113.7'", "the request lacks request.clientIP: ask has(request.clientIP) first"),
		Entry("no call of gRPC", "request.grpc.service == 'a'", "the request lacks request.grpc"),
		Entry("a missing header", "request.headers['x-plan'] == 'gold'", "no such key: x-plan"),
		Entry("a missing parameter", "request.query.tag[0] == 'a'", "no such key: tag"),
		Entry("a value that does not convert", "int(request.headers.n) > 1", "type conversion error"),
		Entry("a long value", "request.headers.long == 'a'", "a value has more than 8192 bytes"),
		Entry("a long parameter", "request.query.long[0] == 'a'", "a value has more than 8192 bytes"),
		Entry("a division by zero", "1 / size(request.cookies) == 1", "division by zero"),
	)

	It("needs not what the rest decides", func() {
		Expect(compile("request.headers.x == 'a' || true", expression.Bool).Bool(request{})).To(BeTrue())
		Expect(compile("request.headers.x == 'a' && false", expression.Bool).Bool(request{})).To(BeFalse())
	})

	It("ends where a request makes it cost more than was estimated", func() {
		many := map[string]string{}
		for i := range 20_000 {
			many[strings.Repeat("a", i%40)+string(rune('a'+i%26))+strings.Repeat("b", i%300)] = "v"
		}
		_, err := compile("request.headers.all(h, request.headers[h] != 'w')", expression.Bool).Bool(request{values: map[expression.Collection]map[string]string{expression.Headers: many}})
		Expect(err).To(MatchError(ContainSubstring("actual cost limit exceeded")))
	})

	It("is safe for concurrent use", func() {
		program := compile("request.headers.exists(h, request.headers[h] == 'gold')", expression.Bool)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				defer GinkgoRecover()
				for range 200 {
					Expect(program.Bool(plain())).To(BeTrue())
					Expect(program.Bool(request{})).To(BeFalse())
				}
			})
		}
		all.Wait()
	})
})

var _ = Describe("Evaluating a part of a key", func() {
	It("gives a string", func() {
		Expect(compile("request.path.split('/')[2] + ':' + request.headers['x-plan']", expression.String).Text(plain())).To(Equal("v2:gold"))
	})

	It("fails where there is none", func() {
		_, err := compile("request.path.split('/')[9]", expression.String).Text(plain())
		Expect(err).To(MatchError(ContainSubstring("index out of bounds")))
	})
})
