package expression

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// inspect finds what a checked expression asks for, and refuses what could not be known before a request is there.
func (p *Program) inspect(ast *cel.Ast) error {
	root := celast.NavigateAST(ast.NativeRep())
	for _, e := range celast.MatchDescendants(root, celast.AllMatcher()) {
		switch e.Kind() {
		case celast.IdentKind:
			if err := p.ident(e); err != nil {
				return err
			}
		case celast.CallKind:
			if err := p.call(e.AsCall()); err != nil {
				return err
			}
		}
	}
	slices.Sort(p.Headers)
	p.Headers = slices.Compact(p.Headers)
	return nil
}

// ident looks at a use of the request: one of its fields, and nothing else of it.
func (p *Program) ident(e celast.NavigableExpr) error {
	if e.AsIdent() != variable {
		return nil
	}
	parent, ok := e.Parent()
	if !ok {
		return errWhole
	}
	var name string
	switch parent.Kind() {
	case celast.SelectKind:
		name = parent.AsSelect().FieldName()
	case celast.CallKind: // request.?field
		name, ok = literal(parent.AsCall(), e, operators.OptSelect)
		if !ok {
			return errWhole
		}
	default:
		return errWhole
	}
	switch name {
	case "clientIP":
		p.UsesClientIP = true
	case "claims":
		p.Headers = append(p.Headers, "authorization") // where they stand
	case "headers":
		return p.header(parent)
	}
	return nil
}

var errWhole = errors.New("request stands alone: must be followed by a field, such as request.path")

// header notes which header is looked up in request.headers, where that can be known.
func (p *Program) header(headers celast.NavigableExpr) error {
	name, ok := "", false
	if parent, inside := headers.Parent(); inside {
		switch parent.Kind() {
		case celast.SelectKind: // request.headers.name
			name, ok = parent.AsSelect().FieldName(), true
		case celast.CallKind:
			name, ok = literal(parent.AsCall(), headers, operators.Index, operators.OptIndex, operators.OptSelect, operators.In)
		}
	}
	if !ok {
		p.AllHeaders = true
		return nil
	}
	if lower := strings.ToLower(name); lower != name {
		return fmt.Errorf("request.headers has its names in lower case: write '%s' for '%s'", lower, name)
	}
	if name == "host" {
		return errors.New("request.headers has no 'host': write request.host")
	}
	p.Headers = append(p.Headers, name)
	return nil
}

// literal is the string that one of the operators combines with an operand.
func literal(call celast.CallExpr, operand celast.Expr, functions ...string) (string, bool) {
	args := call.Args()
	if !slices.Contains(functions, call.FunctionName()) || len(args) != 2 {
		return "", false
	}
	of, other := args[0], args[1]
	if call.FunctionName() == operators.In {
		of, other = other, of
	}
	if of.ID() != operand.ID() {
		return "", false
	}
	return stringLiteral(other)
}

func stringLiteral(e celast.Expr) (string, bool) {
	if e.Kind() != celast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// call wants regular expressions to be literals: a client must not choose what is compiled for each request. CEL counts
// nothing for the functions that it refuses.
func (p *Program) call(call celast.CallExpr) error {
	switch call.FunctionName() {
	case "format", "strings.quote":
		return fmt.Errorf("%s is not available: put strings together with +", call.FunctionName())
	case overloads.Matches:
	default:
		return nil
	}
	args := call.Args()
	pattern, ok := stringLiteral(args[len(args)-1])
	if !ok {
		return errors.New("matches needs a regular expression that is a literal, such as request.path.matches('^/v[0-9]+/')")
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fmt.Errorf("'%s': must be a regular expression of RE2: %w", pattern, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return fmt.Errorf("'%s': must be a regular expression of RE2: %w", pattern, err)
	}
	if len(program.Inst) > MaxRegexProgram {
		return fmt.Errorf("'%s': compiles to %d instructions: must be at most %d; use fewer or smaller repetitions", pattern, len(program.Inst), MaxRegexProgram)
	}
	p.RegexProgram += len(program.Inst)
	return nil
}
