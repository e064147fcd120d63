package expression_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/expression"
)

var _ = Describe("Compiling", func() {
	DescribeTable("refuses, and says what is wrong",
		func(text, message string) {
			_, err := expression.Compile(text, expression.Bool)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("nothing", "", "is empty: state an expression"),
		Entry("much", "true||"+strings.Repeat("true||", 170)+"true", "has 1030 bytes: must be at most 1024"),
		Entry("half of one", "request.method ==", "line 1, column 18: Syntax error"),
		Entry("deep nesting", strings.Repeat("(", 500)+"true"+strings.Repeat(")", 500), "is nested too deeply: use fewer parentheses"),
		Entry("a word of the author's that CEL uses too", "recursion == ''", "undeclared reference to 'recursion'"),
		Entry("deep lists", strings.Repeat("[", 500)+strings.Repeat("]", 500)+" == []", "is nested too deeply"),
		Entry("a long sum", strings.Repeat("1 + ", 250)+"1 == 1", "is nested too deeply"),
		Entry("a line's end in a string", "request.path == 'a\n'", `token recognition error at: ''a\n'`),
		Entry("a terminal's escape", "request.path == \x1b[31m''", `token recognition error at: '\x1b'`),
		Entry("a list", "[true]", "gives a value of type list(bool): must give a bool"),
		Entry("null", "null", "gives a value of type null_type: must give a bool"),
		Entry("an optional bool", "optional.of(true)", "gives a value of type optional_type(bool): must give a bool"),
		Entry("a number beyond 64 bits", "request.port < 9999999999999999999999", "invalid int literal"),
		Entry("an assignment", "request.method = 'GET'", "line 1, column 16: Syntax error"),
		Entry("a misspelled variable", "reqest.path == ''", "undeclared reference to 'reqest' (did you mean 'request'?)"),
		Entry("another variable", "object == ''", "undeclared reference to 'object'; the only variable is request"),
		Entry("an unknown field", "request.body == ''", "column 8: undefined field 'body'; request has claims, clientIP, cookies, grpc, headers,"),
		Entry("an unknown field of grpc", "request.grpc.status == ''", "undefined field 'status'"),
		Entry("an unknown function", "request.path.like('a')", "undeclared reference to 'like'"),
		Entry("types that don't compare", "request.port == '8080'", "found no matching overload for '_==_' applied to '(int, string)'"),
		Entry("a string", "request.method", "gives a value of type string: must give a bool"),
		Entry("a value of any type", "dyn(request.method)", "gives a value of type dyn: must give a bool"),
		Entry("a header in upper case", "request.headers['X-Plan'] == ''", "request.headers has its names in lower case: write 'x-plan' for 'X-Plan'"),
		Entry("a header in upper case, asked for", "'X-Plan' in request.headers", "write 'x-plan' for 'X-Plan'"),
		Entry("the host among headers", "request.headers.host == ''", "write request.host"),
		Entry("the request itself", "request == request", "request stands alone: must be followed by a field"),
		Entry("the request in a list", "[request].exists(r, r.path == '/')", "request stands alone"),
		Entry("the request by any type", "dyn(request).path == '/'", "request stands alone"),
		Entry("a pattern that is none", "request.path.matches('(')", "'(': must be a regular expression of RE2: error parsing regexp: missing closing )"),
		Entry("a pattern that the client chooses", "request.path.matches(request.headers['x'])", "matches needs a regular expression that is a literal"),
		Entry("a huge pattern", "request.path.matches('(a{500}){2}')", "compiles to 1006 instructions: must be at most 256"),
		Entry("time", "timestamp('2026-01-01T00:00:00Z') < timestamp(0)", "undeclared reference to 'timestamp'"),
		Entry("time zones", "request.path.getHours('Europe/Madrid') == 1", "undeclared reference to 'getHours'"),
		Entry("format", "'%s'.format([request.path]) == ''", "format is not available"),
		Entry("a message", "google.protobuf.Struct{} == null", "undeclared reference"),
		Entry("all headers with all headers", "request.headers.all(g, request.headers.all(h, request.headers[g] != request.headers[h]))", "of CEL's units for one request: must be at most 50000"),
		Entry("three loops in each other", "[1].all(a, [1].all(b, [1].all(c, a == b && b == c)))", "comprehension"),
		Entry("a text that grows", "request.path.replace('a', request.host).size() > 0", "of CEL's units for one request"),
		Entry("a string that adds up", "request.path"+strings.Repeat(" + request.path", 60)+" == ''", "of CEL's units for one request"),
		Entry("a string that doubles", "optional.of(request.path)"+strings.Repeat(".optMap(x, x + x)", 20)+".hasValue()", "of CEL's units for one request"),
	)

	It("wants a string of a key part", func() {
		_, err := expression.Compile("request.port", expression.String)
		Expect(err).To(MatchError("gives a value of type int: must give a string"))
	})

	It("finds what is asked for", func() {
		p := compile("request.headers['b'] == '' && 'a' in request.headers && request.headers[?'c'].hasValue() && request.headers.d == request.headers.?a.orValue('') && has(request.headers.e)", expression.Bool)
		Expect(p.Headers).To(Equal([]string{"a", "b", "c", "d", "e"}))
		Expect(p.AllHeaders).To(BeFalse())
		Expect(p.UsesClientIP).To(BeFalse())

		p = compile("request.headers.exists(h, h.startsWith('x-'))", expression.Bool)
		Expect(p.Headers).To(BeEmpty())
		Expect(p.AllHeaders).To(BeTrue())
		Expect(compile("request.headers[request.path] == ''", expression.Bool).AllHeaders).To(BeTrue())
		Expect(compile("[request.headers][0]['a'] == ''", expression.Bool).AllHeaders).To(BeTrue())
		Expect(compile("request.claims['sub'] == ''", expression.Bool).Headers).To(Equal([]string{"authorization"}))

		Expect(compile("has(request.clientIP)", expression.Bool).UsesClientIP).To(BeTrue())
		Expect(compile("request.?clientIP.orValue('') == ''", expression.Bool).UsesClientIP).To(BeTrue())
		Expect(compile("request.path.matches('a') && request.path.matches('b')", expression.Bool).RegexProgram).To(BeNumerically(">", 4))
	})
})
