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
// the limit. A rule before it that perhaps fits counts when it takes more.
func (l *Limit) cost(v *view) int64 {
	perhaps := int64(0)
	for i := range l.costRules {
		switch rule := &l.costRules[i]; rule.fits(v) {
		case fitsSurely:
			return max(perhaps, rule.tokens)
		case fitsPerhaps:
			perhaps = max(perhaps, rule.tokens)
		}
	}
	if source := l.Config.CostSource; source != nil && source.Type == costRequestHeader {
		return costOf(source, v.value(l.costHeader).text, l.Config.Cost)
	}
	return max(perhaps, l.Config.Cost)
}

func (r *costRule) fits(v *view) fit {
	_, fits := firstFit(r.matches, v)
	return fits
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

// Later is the name of the response's header or trailer that tells the limit's whole cost, in canonical form; empty where
// the cost is known before.
func (l *Limit) Later() string {
	if source := l.Config.CostSource; source != nil && source.Type == costResponseHeader {
		return source.Header
	}
	return ""
}

// Rest is what the field that Later names adds to the cost that was charged before the response: zero where it tells less,
// or no integer of at least 1. The value is the field's, its lines joined by ", ".
func (l *Limit) Rest(value string) int64 {
	return max(0, costOf(l.Config.CostSource, value, l.Config.Cost)-l.Config.Cost)
}
