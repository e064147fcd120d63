package ratelimit

import (
	"fmt"
	"slices"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

const (
	selectorIn           = "In"
	selectorNotIn        = "NotIn"
	selectorExists       = "Exists"
	selectorDoesNotExist = "DoesNotExist"
)

// SelectsPod says whether the policy selects a pod with these labels, by the rules of Kubernetes' label selectors: all
// requirements must hold, and NotIn holds for a pod without the label.
func (p *Policy) SelectsPod(labels map[string]string) bool {
	selector := &p.Record.Selector
	for key, value := range selector.MatchLabels {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	for _, r := range selector.MatchExpressions {
		have, ok := labels[r.Key]
		var holds bool
		switch r.Operator {
		case selectorIn:
			holds = ok && slices.Contains(r.Values, have)
		case selectorNotIn:
			holds = !ok || !slices.Contains(r.Values, have)
		case selectorExists:
			holds = ok
		case selectorDoesNotExist:
			holds = !ok
		}
		if !holds {
			return false
		}
	}
	return true
}

func checkSelector(s *bucketconfig.Selector) error {
	for i, r := range s.MatchExpressions {
		field := fmt.Sprintf("selector.matchExpressions[%d]", i)
		switch r.Operator {
		case selectorIn, selectorNotIn:
			if len(r.Values) == 0 {
				return invalid(field+".values", fmt.Errorf("is empty: %s needs at least one value", r.Operator))
			}
		case selectorExists, selectorDoesNotExist:
			if len(r.Values) > 0 {
				return invalid(field+".values", fmt.Errorf("has %d values: %s takes none", len(r.Values), r.Operator))
			}
		default:
			return invalid(field+".operator", fmt.Errorf("%q: must be In, NotIn, Exists or DoesNotExist", r.Operator))
		}
		if r.Key == "" {
			return invalid(field+".key", fmt.Errorf("is empty"))
		}
	}
	return nil
}
