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

// cost is what a request takes: the first rule that fits says so, else the request's header, else
// the limit.
func (l *Limit) cost(v *view) int64 {
	for i := range l.costRules {
		if firstFit(l.costRules[i].matches, v) != noMatch {
			return l.costRules[i].tokens
		}
	}
	if source := l.Config.CostSource; source != nil {
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
