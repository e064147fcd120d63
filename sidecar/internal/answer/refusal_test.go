package answer_test

import (
	"net/http"
	"net/http/httptest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/answer"
)

var _ = Describe("Refuse", func() {
	refuse := func(v ratelimit.Verdict, contentType string, missing *bucketconfig.KeyPart) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		answer.Refuse(w, r, &v, missing)
		return w
	}
	limited := func(l *ratelimit.Limit, wait time.Duration) ratelimit.Verdict {
		return ratelimit.Verdict{Outcome: ratelimit.Limited, By: l, Wait: wait, Limits: []ratelimit.LimitResult{{Limit: l, Wait: wait}}}
	}

	DescribeTable("says when to come back, never too early",
		func(wait time.Duration, want string) {
			Expect(refuse(limited(limit("a"), wait), "", nil).Header().Get("Retry-After")).To(Equal(want))
		},
		Entry("whole", 2*time.Second, "2"),
		Entry("a microsecond more", 2*time.Second+time.Microsecond, "3"),
		Entry("a part of a second", time.Microsecond, "1"),
		Entry("366 days", 366*24*time.Hour, "31622400"),
		Entry("as long as can be told", time.Duration(1<<63-1), "9223372036"),
		Entry("where waiting never helps", time.Duration(0), ""),
	)

	It("answers a spent limit with a problem", func() {
		a, b, none := limit("a"), limit("b"), limit("c", headers("None"))
		shadow := limit("d")
		w := refuse(ratelimit.Verdict{Outcome: ratelimit.Limited, By: b, Wait: 3 * time.Second, Limits: []ratelimit.LimitResult{
			{Limit: a, Wait: time.Second}, {Limit: limit("e"), Allowed: true}, {Limit: b, Wait: 3 * time.Second}, {Limit: none}, {Limit: shadow, Shadow: true},
		}}, "application/json", nil)
		Expect(w.Code).To(Equal(http.StatusTooManyRequests))
		Expect(w.Header()).To(HaveKeyWithValue("Content-Type", []string{"application/problem+json"}))
		Expect(w.Header()).To(HaveKeyWithValue("Cache-Control", []string{"no-store"}))
		Expect(w.Body.String()).To(MatchJSON(`{
			"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title": "Too many requests", "status": 429,
			"detail": "the limit is spent; retry in 3 s",
			"violated-policies": ["a/l", "b/l"]
		}`))
	})

	It("takes the status of the policy that answers", func() {
		w := refuse(limited(limit("a", status(503)), time.Second), "", nil)
		Expect(w.Code).To(Equal(503))
		Expect(w.Body.String()).To(ContainSubstring(`"status":503`))
	})

	It("has the policy's own body for a spent limit, and only there", func() {
		own := func(contentType string) func(*bucketconfig.Record) {
			return func(r *bucketconfig.Record) {
				r.Response.Body = `<p>{limit} of {policy} is spent, {retryAfter} s. {other}</p>`
				r.Response.ContentType = contentType
			}
		}
		w := refuse(limited(limit("a", own("text/html"), status(420)), 1500*time.Millisecond), "", nil)
		Expect(w.Code).To(Equal(420))
		Expect(w.Header()).To(HaveKeyWithValue("Content-Type", []string{"text/html"}))
		Expect(w.Header()).To(HaveKeyWithValue("Retry-After", []string{"2"}))
		Expect(w.Header()).To(HaveKeyWithValue("Content-Length", []string{"36"}))
		Expect(w.Body.String()).To(Equal(`<p>l of a is spent, 2 s. {other}</p>`))

		Expect(refuse(limited(limit("a", own("text/html")), time.Second), "application/grpc", nil).Body.Len()).To(BeZero())
		denied := ratelimit.Verdict{Outcome: ratelimit.Denied, By: limit("a", own("text/html"))}
		Expect(refuse(denied, "", nil).Header().Get("Content-Type")).To(Equal("application/problem+json"))
	})

	It("says so where the cost can never be covered", func() {
		Expect(refuse(limited(limit("a"), 0), "", nil).Body.String()).To(ContainSubstring("costs more than its limit can ever hold"))
	})

	DescribeTable("denies for good, and says what is missing",
		func(missing *bucketconfig.KeyPart, want string) {
			w := refuse(ratelimit.Verdict{Outcome: ratelimit.Denied, By: limit("a", status(429))}, "", missing)
			Expect(w.Code).To(Equal(http.StatusForbidden))
			Expect(w.Header()).NotTo(HaveKey("Retry-After"))
			Expect(w.Body.String()).To(MatchJSON(`{"type": "about:blank", "title": "Forbidden", "status": 403, "detail": "` + want + `"}`))
		},
		Entry("a header", &bucketconfig.KeyPart{Type: "Header", Name: "X-Api-Key"}, "the request lacks the header X-Api-Key"),
		Entry("the client's address", &bucketconfig.KeyPart{Type: "ClientIP"}, "the client's address can't be told"),
		Entry("a query parameter", &bucketconfig.KeyPart{Type: "Query", Name: "q"}, "the request lacks the query parameter q"),
		Entry("a cookie", &bucketconfig.KeyPart{Type: "Cookie", Name: "sid"}, "the request lacks the cookie sid"),
		Entry("a claim", &bucketconfig.KeyPart{Type: "Claim", Name: "sub"}, "the request lacks a token with the claim sub"),
		Entry("another part", &bucketconfig.KeyPart{Type: "PathVariable", Name: "id"}, "the request lacks what its limit is keyed by"),
		Entry("no part", nil, "the request is not allowed"),
	)

	It("is unavailable where the policy says Closed", func() {
		w := refuse(ratelimit.Verdict{Outcome: ratelimit.Unavailable, By: limit("a")}, "", nil)
		Expect(w.Code).To(Equal(http.StatusServiceUnavailable))
		Expect(w.Header()).To(HaveKeyWithValue("Retry-After", []string{"1"}))
		Expect(w.Body.String()).To(ContainSubstring("#temporary-reduced-capacity"))
		Expect(w.Body.String()).NotTo(ContainSubstring("violated-policies"))
	})

	DescribeTable("answers gRPC in its own words",
		func(v ratelimit.Verdict, code, message, pushback string) {
			for _, contentType := range []string{"application/grpc", "application/grpc+proto", "application/grpc-web", "Application/gRPC"} {
				w := refuse(v, contentType, nil)
				Expect(w.Code).To(Equal(http.StatusOK))
				Expect(w.Body.Len()).To(BeZero())
				Expect(w.Header()).To(HaveKeyWithValue("Content-Type", []string{"application/grpc"}))
				Expect(w.Header()).To(HaveKeyWithValue("Grpc-Status", []string{code}))
				Expect(w.Header()).To(HaveKeyWithValue("Grpc-Message", []string{message}))
				Expect(w.Header()).To(HaveKeyWithValue("Grpc-Retry-Pushback-Ms", []string{pushback}))
				Expect(w.Header()).NotTo(HaveKey("Retry-After"))
			}
		},
		Entry("spent", limited(limit("a"), 1500*time.Microsecond), "8", "the limit is spent; retry in 1 s", "2"),
		Entry("never", limited(limit("a"), 0), "8", "the request costs more than its limit can ever hold", "-1"),
		Entry("denied", ratelimit.Verdict{Outcome: ratelimit.Denied, By: limit("a")}, "7", "the request is not allowed", "-1"),
		Entry("unavailable", ratelimit.Verdict{Outcome: ratelimit.Unavailable, By: limit("a")}, "14", "limits can't be checked at the moment", "1000"),
	)

	It("encodes what a gRPC message must not hold bare", func() {
		w := refuse(ratelimit.Verdict{Outcome: ratelimit.Denied}, "application/grpc", &bucketconfig.KeyPart{Type: "Header", Name: "X-%é\n"})
		Expect(w.Header().Get("Grpc-Message")).To(Equal("the request lacks the header X-%25%C3%A9%0A"))
	})
})
