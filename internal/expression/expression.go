// Package expression compiles and evaluates the CEL expressions of policies: match entries' when, and key parts of type
// Expression.
//
// internal/ratelimit compiles with it and gives it the attributes of requests. It stays free of Kubernetes, of Redis and of
// HTTP. What it admits is deterministic and bounded: an expression's worst case is known before it is published, and no
// evaluation exceeds it, whatever a client sends.
package expression

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/types"
)

// Bounds. Costs are in CEL's units: one for a step, one for ten bytes looked at.
const (
	// MaxLength is how many bytes an expression may have.
	MaxLength = 1024
	// MaxCost is what one evaluation may cost, by the estimate for the worst request and by what is counted.
	MaxCost = 50_000
	// MaxValue is the longest value that can be read, in bytes. A longer one is an error, so that the estimate holds.
	MaxValue = 8 << 10
	// MaxRegexProgram bounds a regular expression, in instructions.
	MaxRegexProgram = 256

	maxNodes = 2_000
)

// ResultType is what an expression must give.
type ResultType uint8

const (
	// Bool is the type of a condition.
	Bool ResultType = iota
	// String is the type of a part of a key.
	String
)

func (t ResultType) cel() *cel.Type {
	if t == String {
		return cel.StringType
	}
	return cel.BoolType
}

// Program is a compiled expression. It is immutable and safe for concurrent use.
type Program struct {
	program cel.Program
	// Cost is what an evaluation costs at most, by estimate.
	Cost uint64
	// RegexProgram is the size of all its regular expressions, in instructions.
	RegexProgram int
	// UsesClientIP says that it asks for the client's address.
	UsesClientIP bool
	// Headers are the names of the headers that it asks for, in lower case; AllHeaders says that it may ask for any.
	Headers    []string
	AllHeaders bool
}

// Compile checks an expression. The error tells what is wrong and the way out, but not the expression itself.
func Compile(text string, result ResultType) (*Program, error) {
	if text == "" {
		return nil, errors.New("is empty: state an expression, such as request.method == 'POST'")
	}
	if len(text) > MaxLength {
		return nil, fmt.Errorf("has %d bytes: must be at most %d", len(text), MaxLength)
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, complaint(issues)
	}
	if got := ast.OutputType(); !got.IsExactType(result.cel()) {
		return nil, fmt.Errorf("gives a value of type %s: must give a %s", got, result.cel())
	}
	p := &Program{}
	if err := p.inspect(ast); err != nil {
		return nil, err
	}
	estimate, err := env.EstimateCost(ast, sizes{})
	if err != nil {
		return nil, fmt.Errorf("estimate the cost: %w", err)
	}
	if p.Cost = estimate.Max; p.Cost > MaxCost {
		return nil, fmt.Errorf("may cost up to %d of CEL's units for one request: must be at most %d; look at single values instead of all headers or parameters, and use shorter regular expressions", p.Cost, MaxCost)
	}
	p.program, err = env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(MaxCost))
	if err != nil {
		return nil, fmt.Errorf("plan the evaluation: %w", err)
	}
	return p, nil
}

// complaint is what CEL says, each point on its place in the expression.
func complaint(issues *cel.Issues) error {
	var points []string
	for _, issue := range issues.Errors() {
		points = append(points, point(issue))
		if len(points) == 3 {
			break // what follows is mostly a consequence
		}
	}
	return fmt.Errorf("must be a CEL expression on request: %s", strings.Join(points, "; "))
}

func point(e *common.Error) string {
	message := strings.ReplaceAll(e.Message, " (in container '')", "")
	switch {
	case strings.HasPrefix(message, "undefined field"):
		message += "; request has " + strings.Join(slices.Sorted(maps.Keys(fields[requestType])), ", ") + ", and request.grpc has service and method"
	case strings.HasPrefix(message, "undeclared reference") && !strings.Contains(message, "did you mean"):
		message += "; the only variable is request"
	}
	if e.Location.Line() < 0 && strings.Contains(message, "recursion") { // elsewhere the word is the author's
		return "is nested too deeply: use fewer parentheses, or fewer operators in a row"
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1, printable(message))
}

// printable spells control characters, of which CEL repeats those that it stumbles over, as Go does: what it says reaches
// terminals, logs and conditions.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
	}
	return b.String()
}

// Bool evaluates a condition. An error says that it can't be told: an attribute is missing, a value does not convert, or
// the evaluation exceeds its bounds.
func (p *Program) Bool(request Request) (bool, error) {
	out, _, err := p.program.Eval(activation{request})
	if err != nil {
		return false, err
	}
	holds, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("gives a value of type %s: must give a bool", out.Type().TypeName())
	}
	return bool(holds), nil
}

// Text evaluates a part of a key. An error says that there is none.
func (p *Program) Text(request Request) (string, error) {
	out, _, err := p.program.Eval(activation{request})
	if err != nil {
		return "", err
	}
	text, ok := out.(types.String)
	if !ok {
		return "", fmt.Errorf("gives a value of type %s: must give a string", out.Type().TypeName())
	}
	return string(text), nil
}

// activation gives an evaluation its only variable.
type activation struct{ request Request }

// ResolveName finds the variable.
func (a activation) ResolveName(name string) (any, bool) {
	if name == variable {
		return a.request, true
	}
	return nil, false
}

// Parent is none.
func (activation) Parent() cel.Activation { return nil }
