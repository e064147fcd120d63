package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/expression"
)

// addToKeySet checks a limit's key parts and puts it beside the limits with the same ones.
func (c *compiler) addToKeySet(limit *Limit) error {
	p := c.policy
	if len(limit.Config.KeyParts) > bucketconfig.MaxKeyParts {
		return tooMany("keyParts", len(limit.Config.KeyParts), bucketconfig.MaxKeyParts)
	}
	var parts []keyPart
	for i := range limit.Config.KeyParts {
		part, err := c.keyPart(fmt.Sprintf("keyParts[%d]", i), limit, limit.Config.KeyParts[i])
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	slices.SortFunc(parts, compareParts)
	set := keySet{parts: parts, limits: []*Limit{limit}}
	for i := range parts {
		if i > 0 && compareParts(parts[i-1], parts[i]) == 0 {
			return invalid("keyParts", fmt.Errorf("%s stands twice: key parts must differ", strings.TrimSpace(parts[i].Type+" "+parts[i].Name)))
		}
		switch parts[i].WhenMissing {
		case whenMissingSkip:
			limit.skip |= 1 << i
		case whenMissingDeny:
			limit.deny |= 1 << i
		}
		set.byPath = set.byPath || parts[i].ofPath()
	}
	for i := range p.keySets {
		if slices.EqualFunc(p.keySets[i].parts, parts, func(a, b keyPart) bool { return compareParts(a, b) == 0 }) {
			p.keySets[i].limits = append(p.keySets[i].limits, limit)
			return nil
		}
	}
	if len(parts) == 0 {
		set.tag = p.tagger.Tag(p.Record.Kind, p.Record.Name)
	}
	p.keySets = append(p.keySets, set)
	return nil
}

func compareParts(a, b keyPart) int {
	if c := strings.Compare(a.Type, b.Type); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

func (c *compiler) keyPart(field string, limit *Limit, part bucketconfig.KeyPart) (keyPart, error) {
	compiled := keyPart{KeyPart: part}
	switch part.WhenMissing {
	case whenMissingShare, whenMissingSkip, whenMissingDeny:
	default:
		return compiled, invalid(field+".whenMissing", fmt.Errorf("%q: must be Share, Skip or Deny", part.WhenMissing))
	}
	switch part.Type {
	case keyPartHeader:
		compiled.Name = http.CanonicalHeaderKey(part.Name)
		compiled.attribute = c.attribute(headerAttribute, compiled.Name)
		return compiled, checkHeaderName(field+".header.name", part.Name)
	case keyPartQuery:
		compiled.attribute = c.attribute(queryAttribute, part.Name)
		return compiled, checkName(field+".query.name", part.Name)
	case keyPartCookie:
		compiled.attribute = c.attribute(cookieAttribute, part.Name)
		return compiled, checkCookieName(field+".cookie.name", part.Name)
	case keyPartClaim:
		// Asked for as a header too, so that the app gets no other token than the one that is read here.
		c.attribute(headerAttribute, "Authorization")
		return compiled, checkName(field+".claim.name", part.Name)
	case keyPartExpression:
		var err error
		compiled.expression, err = c.expression(field+".expression.value", part.Name, expression.String)
		return compiled, err
	case keyPartPathVariable:
		if err := checkName(field+".pathVariable.name", part.Name); err != nil {
			return compiled, err
		}
		return compiled, checkTemplates(field, limit, &part)
	}
	if part.Name != "" {
		return compiled, invalid(field, fmt.Errorf("type %s takes no name, has %q", part.Type, part.Name))
	}
	switch part.Type {
	case keyPartMethod, keyPartHost, keyPartWorkload:
		return compiled, nil
	case keyPartPathTemplate:
		return compiled, checkTemplates(field, limit, &part)
	case keyPartClientIP:
		if c.policy.clientIP == nil {
			return compiled, invalid(field, errors.New("type ClientIP needs the policy's clientIP stated: who is the client behind your ingress?"))
		}
		return compiled, nil
	}
	return compiled, invalid(field+".type", fmt.Errorf("%q: must be Header, ClientIP, Method, Host, PathTemplate, PathVariable, Query, Cookie, Claim, Workload or Expression", part.Type))
}

// checkTemplates wants a part of the path to have a value in every request that the limit matches.
func checkTemplates(field string, limit *Limit, part *bucketconfig.KeyPart) error {
	if len(limit.matches) == 0 {
		return invalid(field, fmt.Errorf("type %s needs matches, each with a path of type Template", part.Type))
	}
	for i := range limit.matches {
		path := limit.matches[i].path
		if path == nil || path.template == nil {
			return invalid(field, fmt.Errorf("type %s needs a path of type Template in every match, matches[%d] has none", part.Type, i))
		}
		if part.Type == keyPartPathVariable && path.template.indexOf(part.Name) < 0 {
			return invalid(field+".pathVariable.name", fmt.Errorf("%q: must be a variable of every match's template, matches[%d] has %s", part.Name, i, path.template.text))
		}
	}
	return nil
}

func checkName(field, name string) error {
	if name == "" {
		return invalid(field, errors.New("is empty"))
	}
	return tooLong(field, name)
}

// checkCookieName wants a name that can be found among a request's cookies.
func checkCookieName(field, name string) error {
	if err := checkName(field, name); err != nil {
		return err
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= ' ' || c == '=' || c == ';' || c == 0x7f {
			return invalid(field, fmt.Errorf("%q: must be a cookie's name, without spaces, = and ;", name))
		}
	}
	return nil
}
