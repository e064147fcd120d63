package ratelimit

import (
	"net/http"
	"strings"

	"github.com/portero-dev/portero/internal/expression"
)

// evaluated is what an expression gives for a request.
type evaluated struct {
	text         string // of a key part; empty when it failed
	holds        bool   // of a condition
	done, failed bool
}

// condition evaluates one of the policy's conditions, once per request.
func (v *view) condition(place uint16) fit {
	e := &v.evaluated[v.expressions+int(place)]
	if !e.done {
		holds, err := v.policy.expressions[place].Bool(v)
		e.holds, e.done, e.failed = holds, true, err != nil
	}
	switch {
	case e.failed:
		v.failed = true
		return fitsPerhaps
	case e.holds:
		return fitsSurely
	}
	return fitsNot
}

// expressed evaluates one of the policy's key parts, once per request. Empty means missing, as it is after a failure.
func (v *view) expressed(place uint16) (text string, failed bool) {
	e := &v.evaluated[v.expressions+int(place)]
	if !e.done {
		text, err := v.policy.expressions[place].Text(v)
		e.text, e.done, e.failed = text, true, err != nil
	}
	return e.text, e.failed
}

// failures notes that expressions failed which were asked since it was called last.
func (v *view) failures(d *Description, p *Policy, limit *Limit) {
	if v.failed {
		v.failed = false
		d.Failures = append(d.Failures, Failure{Policy: p, Limit: limit})
	}
}

var _ expression.Request = (*view)(nil)

// Text implements expression.Request.
func (v *view) Text(attribute expression.Attribute) (string, bool) {
	switch attribute {
	case expression.Method:
		return v.req.Method, true
	case expression.Path:
		return v.normalPath(), true
	case expression.Host:
		host := v.normalHost()
		return host, host != ""
	case expression.ClientIP:
		if addr := v.clientAddr(); addr.IsValid() {
			return addr.String(), true
		}
	case expression.PortName:
		return v.req.PortName, v.req.PortName != ""
	case expression.Workload:
		return v.req.Workload, v.req.Workload != ""
	case expression.GRPCService:
		service, _, ok := v.call()
		return service, ok
	case expression.GRPCMethod:
		_, method, ok := v.call()
		return method, ok
	}
	return "", false
}

// Port implements expression.Request.
func (v *view) Port() uint16 { return v.req.Port }

// Value implements expression.Request. Names of headers are in lower case.
func (v *view) Value(c expression.Collection, name string) (string, bool) {
	var value string
	switch c {
	case expression.Headers:
		if strings.ToLower(name) == name {
			value = headerValue(v.req.Header, http.CanonicalHeaderKey(name))
		}
	case expression.Cookies:
		value, ok := v.allCookies()[name]
		return value, ok
	case expression.Claims:
		value = v.claim(name)
	}
	return value, value != ""
}

// Values implements expression.Request. Of claims it holds those that are no objects.
func (v *view) Values(c expression.Collection) map[string]string {
	if c == expression.Cookies {
		return v.allCookies()
	}
	values := map[string]string{}
	note := func(name, value string) {
		if value != "" {
			values[name] = value
		}
	}
	if c == expression.Headers {
		for name := range v.req.Header {
			note(strings.ToLower(name), headerValue(v.req.Header, name))
		}
		return values
	}
	v.readClaims()
	for name, claim := range v.claims {
		note(name, claimText(claim))
	}
	return values
}

// Query implements expression.Request.
func (v *view) Query() map[string][]string {
	if v.query == nil {
		v.query = map[string][]string{}
		eachParameter(v.req.Query, func(name, text string) {
			name = unescape(name, true)
			v.query[name] = append(v.query[name], unescape(text, true))
		})
	}
	return v.query
}

func (v *view) allCookies() map[string]string {
	if v.cookies == nil {
		v.cookies = map[string]string{}
		eachCookie(v.req.Header, func(name, text string) {
			if _, known := v.cookies[name]; !known {
				v.cookies[name] = cookieValue(text)
			}
		})
	}
	return v.cookies
}
