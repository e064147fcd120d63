package ratelimit

import (
	"github.com/portero-dev/portero/internal/bucketconfig"
)

// Types of key parts.
const (
	keyPartHeader       = "Header"
	keyPartClientIP     = "ClientIP"
	keyPartMethod       = "Method"
	keyPartHost         = "Host"
	keyPartPathTemplate = "PathTemplate"
	keyPartPathVariable = "PathVariable"
	keyPartQuery        = "Query"
	keyPartCookie       = "Cookie"
	keyPartClaim        = "Claim"
	keyPartWorkload     = "Workload"
	keyPartExpression   = "Expression" // whose name is its text
)

// keyPart is a compiled KeyPart. WhenMissing is each limit's own and means nothing here.
type keyPart struct {
	bucketconfig.KeyPart
	attribute  uint16 // of Header, Query and Cookie
	expression uint16 // the place of that of Expression
}

// ofPath says whether the value depends on which of a limit's matches fits.
func (p *keyPart) ofPath() bool {
	return p.Type == keyPartPathTemplate || p.Type == keyPartPathVariable
}

// keySet is the limits of a policy that share the definition of their key: the same attributes, in whatever order they
// were written. Those whose values are the same too lie in one Redis key.
type keySet struct {
	parts  []keyPart // ordered by type and name
	limits []*Limit
	// byPath says that values may differ from limit to limit.
	byPath bool
	tag    string // of a key set without parts, whose tag never changes
}

// keyValues are the values of a key set's parts in one request.
type keyValues struct {
	read    bool
	failed  bool   // an expression among them did
	missing uint16 // bit i: part i is missing, and value[i] empty
	value   [bucketconfig.MaxKeyParts]string
}

// fill reads, once, all parts but those of the path, which are never missing.
func (k *keyValues) fill(parts []keyPart, v *view) {
	if k.read {
		v.failed = v.failed || k.failed
		return
	}
	k.read = true
	for i := range parts {
		part := &parts[i]
		switch part.Type {
		case keyPartHeader, keyPartQuery, keyPartCookie:
			k.value[i] = v.value(part.attribute).text
		case keyPartClientIP:
			k.value[i] = v.policy.clientIP.identity(v.clientAddr())
		case keyPartMethod:
			k.value[i] = v.req.Method
		case keyPartHost:
			k.value[i] = v.normalHost()
		case keyPartClaim:
			k.value[i] = v.claim(part.Name)
		case keyPartWorkload:
			k.value[i] = v.req.Workload
		case keyPartExpression:
			var failed bool
			k.value[i], failed = v.expressed(part.expression)
			k.failed = k.failed || failed
		default:
			continue
		}
		if k.value[i] == "" {
			k.missing |= 1 << i
		}
	}
	v.failed = v.failed || k.failed
}

// fillPath reads the parts of the path, by the template that fits.
func (k *keyValues) fillPath(parts []keyPart, t *template, path string) {
	for i := range parts {
		if parts[i].ofPath() {
			k.value[i] = parts[i].pathValue(t, path)
		}
	}
}

// samePath says whether the template that fits gives the parts of the path the same values.
func (k *keyValues) samePath(parts []keyPart, t *template, path string) bool {
	for i := range parts {
		if parts[i].ofPath() && k.value[i] != parts[i].pathValue(t, path) {
			return false
		}
	}
	return true
}

func (p *keyPart) pathValue(t *template, path string) string {
	if p.Type == keyPartPathTemplate {
		return t.text
	}
	return t.variable(p.Name, path)
}

// firstPart is the part of the lowest bit.
func (s *keySet) firstPart(bits uint16) *bucketconfig.KeyPart {
	for i := range s.parts {
		if bits&(1<<i) != 0 {
			return &s.parts[i].KeyPart
		}
	}
	return nil
}

// Presence flags in a tag: a part that is missing and shared can't collide with any value.
const (
	absent  = "0"
	present = "1"
)

func (s *keySet) tagOf(p *Policy, values *keyValues) string {
	if len(s.parts) == 0 {
		return s.tag
	}
	var array [2 + 4*bucketconfig.MaxKeyParts]string
	parts := append(array[:0], p.Record.Kind, p.Record.Name)
	for i := range s.parts {
		flag := present
		if values.missing&(1<<i) != 0 {
			flag = absent
		}
		parts = append(parts, s.parts[i].Type, s.parts[i].Name, flag, values.value[i])
	}
	return p.tagger.Tag(parts...)
}
