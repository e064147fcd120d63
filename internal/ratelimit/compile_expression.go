package ratelimit

import (
	"fmt"
	"net/http"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/expression"
)

// expressionText tells expressions apart: the same text is compiled once, and evaluated once per request.
type expressionText struct {
	text   string
	result expression.ResultType
}

// expression compiles an expression of CEL and gives its place among the policy's. A short expression can cost much, and
// many little ones too, so all of a policy share one budget.
func (c *compiler) expression(field, text string, result expression.ResultType) (uint16, error) {
	key := expressionText{text, result}
	if place, known := c.expressions[key]; known {
		return place, nil
	}
	p := c.policy
	if len(p.expressions) == bucketconfig.MaxExpressions {
		return 0, invalid(field, fmt.Errorf("%q: the policy has more than %d different expressions: state what methods, path, headers and the like can say without them", text, bucketconfig.MaxExpressions))
	}
	program, err := expression.Compile(text, result)
	if err != nil {
		return 0, invalid(field, fmt.Errorf("%q: %w", text, err))
	}
	if program.Cost > c.costBudget {
		return 0, invalid(field, fmt.Errorf("%q: the policy's expressions together may cost more than %d of CEL's units for one request: use fewer or simpler ones", text, bucketconfig.MaxExpressionCost))
	}
	c.costBudget -= program.Cost
	if c.regexBudget -= program.RegexProgram; c.regexBudget < 0 {
		return 0, invalid(field, fmt.Errorf("%q: the policy's regular expressions together compile to more than %d instructions: use fewer or smaller repetitions", text, bucketconfig.MaxRegexProgram))
	}
	if program.UsesClientIP && p.clientIP == nil {
		return 0, invalid(field, fmt.Errorf("%q: request.clientIP needs the policy's clientIP stated: who is the client behind your ingress?", text))
	}
	for _, name := range program.Headers {
		if err := checkHeaderName(field, name); err != nil {
			return 0, err
		}
		c.attribute(headerAttribute, http.CanonicalHeaderKey(name))
	}
	p.anyHeader = p.anyHeader || program.AllHeaders
	place := uint16(len(p.expressions))
	c.expressions[key] = place
	p.expressions = append(p.expressions, program)
	return place, nil
}
