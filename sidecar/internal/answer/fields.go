package answer

import (
	"net/http"
	"strconv"

	"github.com/portero-dev/portero/internal/ratelimit"
)

// Names of fields, in canonical form.
const (
	fieldPolicy          = "Ratelimit-Policy"
	fieldLimit           = "Ratelimit"
	fieldLegacyLimit     = "X-Ratelimit-Limit"
	fieldLegacyRemaining = "X-Ratelimit-Remaining"
	fieldLegacyReset     = "X-Ratelimit-Reset"
)

// Values of a policy's response.rateLimitHeaders.
const (
	standard = "Standard"
	legacy   = "Legacy"
	both     = "Both"
	none     = "None"
)

// Fields adds to h what the policies of a verdict tell their clients, each policy as its own rateLimitHeaders says.
// Limits in Shadow add nothing.
//
// Standard adds one line of RateLimit-Policy and one of RateLimit with an item per limit, named "policy/limit": q is the
// capacity, w the seconds from empty to full, r the last known level in whole tokens and t the seconds until the next
// token. Lines that the app sent stay, before ours: both fields are lists, and items have names.
//
// Legacy adds X-RateLimit-Limit, -Remaining and -Reset (in seconds from now) of the limit that refused, else of the one
// with the least left. These hold a single value: where the app sent its own with less left, the app's stay. Both adds
// both.
func Fields(h http.Header, v *ratelimit.Verdict) {
	var array [512]byte
	policies, levels := array[:0:256], array[256:256]
	var least *ratelimit.LimitResult
	for i := range v.Limits {
		result := &v.Limits[i]
		if result.Shadow {
			continue
		}
		told := result.Limit.Policy.Record.Response.RateLimitHeaders
		if told == standard || told == both {
			policies = appendPolicy(policies, result.Limit)
			levels = appendLevel(levels, result)
		}
		if (told == legacy || told == both) && result.Remaining >= 0 && (least == nil || lessLeft(v, result, least)) {
			least = result
		}
	}
	if len(policies) > 0 {
		h[fieldPolicy] = append(h[fieldPolicy], string(policies))
	}
	if len(levels) > 0 {
		h[fieldLimit] = append(h[fieldLimit], string(levels))
	}
	if least != nil {
		setLegacy(h, v, least)
	}
}

// lessLeft says whether a is more to the point than b: the limit that answers for a refusal is, then the emptier one.
func lessLeft(v *ratelimit.Verdict, a, b *ratelimit.LimitResult) bool {
	if v.By != nil && (a.Limit == v.By || b.Limit == v.By) {
		return a.Limit == v.By
	}
	return a.Remaining < b.Remaining
}

func appendName(b []byte, limit *ratelimit.Limit) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, limit.QualifiedName...)
	return append(b, '"')
}

func appendPolicy(b []byte, limit *ratelimit.Limit) []byte {
	b = append(appendName(b, limit), ";q="...)
	b = strconv.AppendInt(b, limit.Config.Bucket.Capacity, 10)
	b = append(b, ";w="...)
	return strconv.AppendInt(b, limit.WindowSeconds, 10)
}

// appendLevel leaves out a level that is not known, and t of a full bucket, to which nothing will come.
func appendLevel(b []byte, result *ratelimit.LimitResult) []byte {
	if result.Remaining < 0 {
		return b
	}
	b = append(appendName(b, result.Limit), ";r="...)
	b = strconv.AppendInt(b, result.Remaining, 10)
	if t := untilNext(result); t > 0 {
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, t, 10)
	}
	return b
}

// untilNext is the seconds until the next token, at most the window.
func untilNext(result *ratelimit.LimitResult) int64 {
	return min(seconds(result.NextToken), result.Limit.WindowSeconds)
}

func setLegacy(h http.Header, v *ratelimit.Verdict, result *ratelimit.LimitResult) {
	if theirs, err := strconv.ParseInt(h.Get(fieldLegacyRemaining), 10, 64); err == nil && theirs < result.Remaining {
		return
	}
	reset := untilNext(result)
	if result.Limit == v.By && v.Wait > 0 {
		reset = seconds(v.Wait)
	}
	h[fieldLegacyLimit] = []string{strconv.FormatInt(result.Limit.Config.Bucket.Capacity, 10)}
	h[fieldLegacyRemaining] = []string{strconv.FormatInt(result.Remaining, 10)}
	h[fieldLegacyReset] = []string{strconv.FormatInt(reset, 10)}
}
