package expression_test

import (
	"strings"
	"testing"
	"time"

	"github.com/portero-dev/portero/internal/expression"
)

// FuzzEvaluate compiles whatever an author can write and evaluates what compiles on whatever a client can send: neither
// panics, both end soon, and the same request gives the same again.
func FuzzEvaluate(f *testing.F) {
	for _, text := range []string{
		"request.method == 'GET'", "request.headers[?'x'].orValue('') == request.path", "request.query.exists(q, request.query[q][0] == q)",
		"has(request.clientIP) && cidr('10.0.0.0/8').containsIP(request.clientIP)", "request.path.matches('^/a(b|c)*$')",
		"request.path.split('/')[1].replace('a', 'b')", "[1, 2].map(x, x * 2).filter(x, x > 2)[0] / request.port", "{'a': 1}[request.host] in [1]",
		"request.claims.sub.substring(1, 3) + request.cookies.c", "string(bytes(request.path)) + type(request.port) + b'a'", "request.grpc.service",
		"optional.of(request.path).optMap(p, p + p).orValue('')", "double(request.headers.x) > 1.5 || uint(request.path) < 3u", "9223372036854775807 + request.port",
	} {
		f.Add(text, "a", "10.1.2.3")
	}
	f.Fuzz(func(t *testing.T, text, value, client string) {
		for _, result := range []expression.ResultType{expression.Bool, expression.String} {
			start := time.Now()
			program, err := expression.Compile(text, result)
			if err != nil {
				if strings.Contains(err.Error(), "internal error") {
					t.Fatalf("%q: %v", text, err)
				}
				continue
			}
			if program.Cost > expression.MaxCost {
				t.Fatalf("%q may cost %d", text, program.Cost)
			}
			r := request{port: 80, query: map[string][]string{"x": {value, client}, value: nil}}
			r.texts = map[expression.Attribute]string{expression.Path: "/" + value, expression.Host: value, expression.Method: value}
			if client != "" {
				r.texts[expression.ClientIP] = client
			}
			r.values = map[expression.Collection]map[string]string{
				expression.Headers: {"x": value, value: client}, expression.Cookies: {"c": value}, expression.Claims: {"sub": value},
			}
			if first, second := evaluate(t, program, result, r), evaluate(t, program, result, r); first != second {
				t.Fatalf("%q gives %q, then %q", text, first, second)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Fatalf("%q took %s", text, took)
			}
		}
	})
}

// evaluate gives the result as text.
func evaluate(t *testing.T, program *expression.Program, result expression.ResultType, r request) string {
	text, err := "", error(nil)
	if result == expression.Bool {
		var holds bool
		if holds, err = program.Bool(r); holds {
			text = "true"
		}
	} else {
		text, err = program.Text(r)
	}
	if err == nil {
		return text
	}
	if strings.Contains(err.Error(), "internal error") {
		t.Fatal(err)
	}
	return "failed"
}
