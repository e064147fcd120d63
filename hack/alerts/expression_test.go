package alerts_test

import (
	"regexp"
	"slices"
	"strings"
)

// selector is a metric with the matchers that choose some of its series.
type selector struct {
	metric   string
	matchers []matcher
}

type matcher struct{ label, value string }

// expression is what a rule's PromQL names. promtool checks the grammar; this reads no more than names.
type expression struct {
	selectors []selector
	// grouped are the labels in by () and on ().
	grouped []string
}

var (
	braces      = regexp.MustCompile(`(\w+)\{([^}]*)\}`)
	equation    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	grouping    = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	identifiers = regexp.MustCompile(`[a-zA-Z_]\w*\s*\(?`)
	durations   = regexp.MustCompile(`\[[^]]*\]|\boffset \w+`)
	operators   = []string{"and", "or", "unless", "by", "on"}
)

func parse(text string) expression {
	var e expression
	for _, match := range grouping.FindAllStringSubmatch(text, -1) {
		for label := range strings.SplitSeq(match[1], ",") {
			if label = strings.TrimSpace(label); label != "" {
				e.grouped = append(e.grouped, label)
			}
		}
	}
	for _, match := range braces.FindAllStringSubmatch(text, -1) {
		s := selector{metric: match[1]}
		for _, pair := range equation.FindAllStringSubmatch(match[2], -1) {
			s.matchers = append(s.matchers, matcher{label: pair[1], value: pair[2]})
		}
		e.selectors = append(e.selectors, s)
	}
	bare := text
	for _, part := range []*regexp.Regexp{braces, grouping, durations} {
		bare = part.ReplaceAllString(bare, " ")
	}
	for _, name := range identifiers.FindAllString(bare, -1) {
		if name = strings.TrimSpace(name); !strings.HasSuffix(name, "(") && !slices.Contains(operators, name) {
			e.selectors = append(e.selectors, selector{metric: name})
		}
	}
	return e
}
