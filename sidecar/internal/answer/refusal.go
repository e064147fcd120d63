package answer

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
)

// Types of problems, registered for these fields.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	typeBlank           = "about:blank"
)

// Codes of gRPC.
const (
	grpcPermissionDenied  = "7"
	grpcResourceExhausted = "8"
	grpcUnavailable       = "14"
)

// refusal is a verdict in the words of both protocols.
type refusal struct {
	status int
	grpc   string
	// wait is how long a client should wait, 0: waiting does not help.
	wait    time.Duration
	problem problem
}

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

// unavailableWait is what clients are told to wait for a store that failed: its masters are probed about that often.
const unavailableWait = time.Second

// Refuse answers a request that v does not allow; missing is the key part that a denied request lacks. The body is a
// problem (RFC 9457), or what the policy that answers has for spent limits, unless the client speaks gRPC. It neither reads
// the request's body nor adds the fields of Fields, which go to every governed response alike. The response is sent when
// the handler returns.
func Refuse(w http.ResponseWriter, r *http.Request, v *ratelimit.Verdict, missing *bucketconfig.KeyPart) {
	ref := refusalOf(v, missing)
	w.Header().Set("Cache-Control", "no-store")
	if ratelimit.IsGRPC(r.Header) {
		refuseGRPC(w, &ref)
		return
	}
	contentType, body := ownBody(v, &ref)
	if body == nil {
		contentType = "application/problem+json"
		body, _ = json.Marshal(&ref.problem) // strings and numbers always can be
		body = append(body, '\n')
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if ref.wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(ref.wait), 10))
	}
	w.WriteHeader(ref.status)
	_, _ = w.Write(body) // the client may be gone
}

// ownBody is the body that the policy itself has for spent limits; nil when it has none.
func ownBody(v *ratelimit.Verdict, ref *refusal) (contentType string, body []byte) {
	if v.Outcome != ratelimit.Limited || v.By == nil {
		return "", nil
	}
	response := &v.By.Policy.Record.Response
	if response.Body == "" {
		return "", nil
	}
	filled := strings.NewReplacer(
		"{policy}", v.By.Policy.Record.Name,
		"{limit}", v.By.Config.Name,
		"{retryAfter}", strconv.FormatInt(seconds(ref.wait), 10),
	).Replace(response.Body)
	return response.ContentType, []byte(filled)
}

func refusalOf(v *ratelimit.Verdict, missing *bucketconfig.KeyPart) refusal {
	var ref refusal
	switch v.Outcome {
	case ratelimit.Denied:
		ref = refusal{status: http.StatusForbidden, grpc: grpcPermissionDenied,
			problem: problem{Type: typeBlank, Title: "Forbidden", Detail: detailOfMissing(missing)}}
	case ratelimit.Unavailable:
		ref = refusal{status: http.StatusServiceUnavailable, grpc: grpcUnavailable, wait: max(v.Wait, unavailableWait),
			problem: problem{Type: typeReducedCapacity, Title: "Temporarily reduced capacity", Detail: "limits can't be checked at the moment"}}
	default:
		ref = refusal{status: statusOf(v), grpc: grpcResourceExhausted, wait: v.Wait,
			problem: problem{Type: typeQuotaExceeded, Title: "Too many requests", Violated: violated(v)}}
		ref.problem.Detail = "the request costs more than its limit can ever hold"
		if v.Wait > 0 {
			ref.problem.Detail = "the limit is spent; retry in " + strconv.FormatInt(seconds(v.Wait), 10) + " s"
		}
	}
	ref.problem.Status = ref.status
	return ref
}

func statusOf(v *ratelimit.Verdict) int {
	if v.By == nil {
		return http.StatusTooManyRequests
	}
	return v.By.Policy.Record.Response.StatusCode
}

func detailOfMissing(part *bucketconfig.KeyPart) string {
	if part == nil {
		return "the request is not allowed"
	}
	switch part.Type {
	case "Header":
		return "the request lacks the header " + part.Name
	case "Query":
		return "the request lacks the query parameter " + part.Name
	case "Cookie":
		return "the request lacks the cookie " + part.Name
	case "Claim":
		return "the request lacks a token with the claim " + part.Name
	case "ClientIP":
		return "the client's address can't be told"
	}
	return "the request lacks what its limit is keyed by"
}

// violated names the limits that refused, but for policies that tell their clients nothing.
func violated(v *ratelimit.Verdict) []string {
	var names []string
	for i := range v.Limits {
		result := &v.Limits[i]
		if !result.Shadow && !result.Allowed && result.Limit.Policy.Record.Response.RateLimitHeaders != none {
			names = append(names, result.Limit.QualifiedName)
		}
	}
	return names
}

// refuseGRPC answers with trailers only: the status stands in the header of an HTTP 200 without a body, or gRPC clients
// would take it for UNAVAILABLE and repeat the call at once.
func refuseGRPC(w http.ResponseWriter, ref *refusal) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", ref.grpc)
	h.Set("Grpc-Message", grpcEncode(ref.problem.Detail))
	pushback := "-1" // don't retry
	if ref.wait > 0 {
		pushback = strconv.FormatInt(ceil(ref.wait, time.Millisecond), 10)
	}
	h.Set("Grpc-Retry-Pushback-Ms", pushback)
	w.WriteHeader(http.StatusOK)
}

// grpcEncode percent-encodes what a Grpc-Message must not hold bare: all but printable ASCII, and the percent sign.
func grpcEncode(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}
