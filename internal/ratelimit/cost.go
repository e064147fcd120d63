package ratelimit

import (
	"errors"
	"strconv"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

// costRule is a compiled CostRule.
type costRule struct {
	matches []matcher
	tokens  int64
}

// cost is what a request takes before it is answered: the first rule that fits says so, else the request's header, else
// the limit.
func (l *Limit) cost(v *view) int64 {
	for i := range l.costRules {
		if firstFit(l.costRules[i].matches, v) != noMatch {
			return l.costRules[i].tokens
		}
	}
	if source := l.Config.CostSource; source != nil && source.Type == costRequestHeader {
		return costOf(source, v.value(l.costHeader).text, l.Config.Cost)
	}
	return l.Config.Cost
}

// costOf reads a cost. What is no integer of at least 1 costs what is otherwise taken, and more than the maximum that.
func costOf(source *bucketconfig.CostSource, text string, otherwise int64) int64 {
	cost, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return source.Maximum
	case err != nil || cost < 1:
		return otherwise
	}
	return int64(min(cost, uint64(source.Maximum)))
}

// Rest is what Later's field adds to the Cost that was charged before the response: zero where it names less, nothing,
// or no integer of at least 1. The value is the field's, its lines joined by ", ".
func (c *Charge) Rest(value string) int64 {
	if c.Later == nil {
		return 0
	}
	return max(0, costOf(c.Later, value, c.Cost)-c.Cost)
}
