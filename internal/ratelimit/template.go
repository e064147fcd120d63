package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// template is a compiled path template. A variable stands for one element that is not empty.
type template struct {
	text     string // literal elements in normal form
	elements []templateElement
}

// templateElement is a literal in normal form or, where variable is set, a variable.
type templateElement struct{ literal, variable string }

func compileTemplate(text string) (*template, error) {
	if !strings.HasPrefix(text, "/") {
		return nil, fmt.Errorf("%q: must start with a slash", text)
	}
	if strings.ContainsAny(text, "?#") {
		return nil, fmt.Errorf("%q: must be a path without a query", text)
	}
	t := &template{}
	var normal strings.Builder
	raw := strings.Split(text[1:], "/")
	for i, element := range raw {
		compiled, err := compileElement(element)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q: element %q %w", text, element, err)
		case compiled.variable != "" && t.indexOf(compiled.variable) >= 0:
			return nil, fmt.Errorf("%q: the variable %s stands twice: names of variables must differ", text, compiled.variable)
		case compiled.variable != "":
			element = "{" + compiled.variable + "}"
		case compiled.literal == "." || compiled.literal == ".." || compiled.literal == "" && i < len(raw)-1:
			return nil, fmt.Errorf("%q: has the element %q, which no path has in normal form: leave it out", text, element)
		default:
			element = compiled.literal
		}
		t.elements = append(t.elements, compiled)
		normal.WriteString("/" + element)
	}
	t.text = normal.String()
	return t, nil
}

func compileElement(element string) (templateElement, error) {
	if !strings.ContainsAny(element, "{}") {
		return templateElement{literal: respell(element)}, nil
	}
	if len(element) < 2 || element[0] != '{' || element[len(element)-1] != '}' {
		return templateElement{}, errors.New("has a brace: a variable must be a whole element such as {id}")
	}
	name := element[1 : len(element)-1]
	if !isVariableName(name) {
		return templateElement{}, errors.New("is no variable: its name must be up to 63 letters, digits and underscores, a letter first")
	}
	return templateElement{variable: name}, nil
}

func isVariableName(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != "" && len(name) <= 63
}

// indexOf finds the element of a variable, or -1.
func (t *template) indexOf(variable string) int {
	return slices.IndexFunc(t.elements, func(e templateElement) bool { return e.variable == variable })
}

// fits compares with a path in normal form.
func (t *template) fits(path string) bool {
	for i := range t.elements {
		rest, ok := strings.CutPrefix(path, "/")
		if !ok {
			return false
		}
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			end = len(rest)
		}
		if e := &t.elements[i]; e.variable == "" && e.literal != rest[:end] || e.variable != "" && end == 0 {
			return false
		}
		path = rest[end:]
	}
	return path == ""
}

// variable is the value of a variable in a path that fits.
func (t *template) variable(name, path string) string {
	for rest, i := path[1:], 0; i < len(t.elements); i++ {
		var element string
		element, rest, _ = strings.Cut(rest, "/")
		if t.elements[i].variable == name {
			return element
		}
	}
	return ""
}
