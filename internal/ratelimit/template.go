package ratelimit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// template is a compiled path template. A variable stands for one element that is not empty.
type template struct {
	text     string // literal elements in normal form
	elements []templateElement
}

// templateElement is a literal in normal form or, where variable is set, a variable.
type templateElement struct{ literal, variable string }

func compileTemplate(text string) (*template, error) {
	if _, err := bucketconfig.TemplateVariables(text); err != nil {
		return nil, err
	}
	if strings.ContainsAny(text, "?#") {
		return nil, fmt.Errorf("%q: must be a path without a query", text)
	}
	t := &template{}
	elements := strings.Split(text[1:], "/")
	for i, element := range elements {
		var compiled templateElement
		if strings.HasPrefix(element, "{") {
			compiled.variable = element[1 : len(element)-1]
		} else {
			element = respell(element)
			compiled.literal = element
		}
		if element == "." || element == ".." || element == "" && i < len(elements)-1 {
			return nil, fmt.Errorf("%q: has the element %q, which no path has in normal form: leave it out", text, element)
		}
		t.elements = append(t.elements, compiled)
		t.text += "/" + element
	}
	return t, nil
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
