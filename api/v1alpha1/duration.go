package v1alpha1

import (
	"fmt"
	"regexp"
	"time"
)

const (
	// MinDuration and MaxDuration bound every Duration; fields may be narrower.
	MinDuration = time.Millisecond
	MaxDuration = 366 * 24 * time.Hour
)

// durationGrammar is what the CRD's rule says.
var durationGrammar = regexp.MustCompile(`^([0-9]{1,4}h|[0-9]{1,6}m|[0-9]{1,8}s|[0-9]{1,8}ms){1,4}$`)

// Parse reads a duration; it is a whole number of milliseconds. It refuses what the API server would refuse.
func (d Duration) Parse() (time.Duration, error) {
	if !durationGrammar.MatchString(string(d)) {
		return 0, fmt.Errorf("%q: must be one to four whole numbers with a unit each, of h, m, s and ms, such as 500ms, 10s or 1h30m", d)
	}
	parsed, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, fmt.Errorf("%q: %w", d, err)
	}
	if parsed < MinDuration || parsed > MaxDuration {
		return 0, fmt.Errorf("%q: must be from 1ms to 366 days (8784h)", d)
	}
	return parsed, nil
}
