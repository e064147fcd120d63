// Package answer spells what clients see of a verdict: the fields that tell of limits, and refusals.
//
// Fields follow draft-ietf-httpapi-ratelimit-headers-11, bodies RFC 9457, gRPC refusals the gRPC protocol over HTTP/2 and
// gRFC A6. The proxy imports it; it decides nothing and keeps no state.
package answer

import (
	"math"
	"time"
)

// seconds rounds up: whoever waits as long as we say must not come too early.
func seconds(d time.Duration) int64 { return ceil(d, time.Second) }

func ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	if d > math.MaxInt64-unit {
		return int64(d / unit)
	}
	return int64((d + unit - 1) / unit)
}
