package v1alpha1

import (
	"strconv"
	"strings"
)

// limitsSummaryLength bounds status.limitsSummary.
const limitsSummaryLength = 64

// SummarizeLimits names limits as status.limitsSummary does: a table's column prints only the first value of a path, so a
// column over spec.limits would hide all names but one. What does not fit is counted: "per-key,burst,+3".
func SummarizeLimits(limits []Limit) string {
	var summary strings.Builder
	for i := range limits {
		rest := len(limits) - i
		separator := ""
		if i > 0 {
			separator = ","
		}
		// Room is kept for ",+N" of the limits that come after this one.
		room := limitsSummaryLength
		if rest > 1 {
			room -= len(",+") + len(strconv.Itoa(rest-1))
		}
		if summary.Len()+len(separator)+len(limits[i].Name) > room {
			summary.WriteString(separator + "+" + strconv.Itoa(rest))
			break
		}
		summary.WriteString(separator + limits[i].Name)
	}
	return summary.String()
}
