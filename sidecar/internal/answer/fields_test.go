package answer_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/ratelimit"
	"github.com/portero-dev/portero/sidecar/internal/answer"
)

var _ = Describe("Fields", func() {
	fields := func(v ratelimit.Verdict, upstream ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(upstream); i += 2 {
			h.Add(upstream[i], upstream[i+1])
		}
		answer.Fields(h, &v)
		return h
	}
	passed := func(l *ratelimit.Limit, remaining int64, next time.Duration) ratelimit.LimitResult {
		return ratelimit.LimitResult{Limit: l, Allowed: true, Remaining: remaining, NextToken: next}
	}

	DescribeTable("Standard tells quota, window, level and the next token, rounded to what is safe",
		func(remaining int64, next time.Duration, want string) {
			h := fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{passed(limit("a"), remaining, next)}})
			Expect(h["Ratelimit-Policy"]).To(Equal([]string{`"a/l";q=20;w=4`}))
			Expect(h["Ratelimit"]).To(Equal([]string{want}))
		},
		Entry("some left", int64(19), 200*time.Millisecond, `"a/l";r=19;t=1`),
		Entry("none left", int64(0), 1001*time.Millisecond, `"a/l";r=0;t=2`),
		Entry("full", int64(20), time.Duration(0), `"a/l";r=20`),
		Entry("a wait beyond the window", int64(0), time.Minute, `"a/l";r=0;t=4`),
	)

	It("says nothing of a level that is not known", func() {
		h := fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{passed(limit("a"), -1, 0)}})
		Expect(h).To(HaveKey("Ratelimit-Policy"))
		Expect(h).NotTo(HaveKey("Ratelimit"))
		h = fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{passed(limit("a", headers("Legacy")), -1, 0)}})
		Expect(h).To(BeEmpty())
	})

	It("lists all limits of policies that say Standard, and none in Shadow", func() {
		shadow := passed(limit("d"), 1, time.Second)
		shadow.Shadow = true
		h := fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{
			passed(limit("a"), 1, time.Second), passed(limit("b", headers("None")), 2, time.Second), passed(limit("c"), 3, time.Second), shadow,
		}})
		Expect(h).To(Equal(http.Header{
			"Ratelimit-Policy": {`"a/l";q=20;w=4, "c/l";q=20;w=4`},
			"Ratelimit":        {`"a/l";r=1;t=1, "c/l";r=3;t=1`},
		}))
	})

	It("adds nothing where there is nothing to tell", func() {
		Expect(fields(ratelimit.Verdict{})).To(BeEmpty())
		Expect(fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{passed(limit("a", headers("None")), 1, time.Second)}})).To(BeEmpty())
	})

	It("keeps the app's own lines of Standard before ours", func() {
		h := fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{passed(limit("a"), 1, time.Second)}}, "RateLimit", `"app";r=7`)
		Expect(h["Ratelimit"]).To(Equal([]string{`"app";r=7`, `"a/l";r=1;t=1`}))
	})

	It("holds many limits with long names", func() {
		var v ratelimit.Verdict
		for range 40 {
			v.Limits = append(v.Limits, passed(limit("a-very-long-name-of-a-policy-in-a-very-large-company.example"), 1, time.Second))
		}
		h := fields(v)
		Expect(h.Get("Ratelimit")).To(HaveLen(40*len(`"a-very-long-name-of-a-policy-in-a-very-large-company.example/l";r=1;t=1`) + 39*2))
		Expect(h.Get("Ratelimit-Policy")).To(HaveLen(40*len(`"a-very-long-name-of-a-policy-in-a-very-large-company.example/l";q=20;w=4`) + 39*2))
	})

	It("are of both kinds where the policy says Both", func() {
		l := limit("a", headers("Both"))
		h := fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{passed(l, 19, 200*time.Millisecond)}})
		Expect(h).To(Equal(http.Header{
			"Ratelimit-Policy": {`"a/l";q=20;w=4`}, "Ratelimit": {`"a/l";r=19;t=1`},
			"X-Ratelimit-Limit": {"20"}, "X-Ratelimit-Remaining": {"19"}, "X-Ratelimit-Reset": {"1"},
		}))
	})

	Describe("of Legacy", func() {
		legacy := headers("Legacy")

		It("tell the emptiest limit", func() {
			h := fields(ratelimit.Verdict{Limits: []ratelimit.LimitResult{
				passed(limit("a", legacy), 9, time.Second),
				passed(limit("b", legacy, func(r *bucketconfig.Record) { r.Limits[0].Bucket.Capacity = 10 }), 3, 1500*time.Millisecond),
				passed(limit("c", legacy), 5, time.Second),
				passed(limit("d"), 0, time.Second),
			}})
			Expect(h).To(HaveKeyWithValue("X-Ratelimit-Limit", []string{"10"}))
			Expect(h).To(HaveKeyWithValue("X-Ratelimit-Remaining", []string{"3"}))
			Expect(h).To(HaveKeyWithValue("X-Ratelimit-Reset", []string{"2"}))
			Expect(h["Ratelimit"]).To(Equal([]string{`"d/l";r=0;t=1`}), "each policy as it says")
		})

		It("tell the limit that refused, and its wait", func() {
			by := limit("b", legacy)
			h := fields(ratelimit.Verdict{Outcome: ratelimit.Limited, By: by, Wait: 2500 * time.Millisecond, Limits: []ratelimit.LimitResult{
				passed(limit("a", legacy), 0, time.Second),
				{Limit: by, Remaining: 5, NextToken: time.Second},
				passed(limit("c", legacy), 1, time.Second),
			}})
			Expect(h).To(HaveKeyWithValue("X-Ratelimit-Remaining", []string{"5"}))
			Expect(h).To(HaveKeyWithValue("X-Ratelimit-Reset", []string{"3"}))
		})

		It("give way to the app's own only where less is left", func() {
			v := ratelimit.Verdict{Limits: []ratelimit.LimitResult{passed(limit("a", legacy), 5, time.Second)}}
			Expect(fields(v, "X-RateLimit-Remaining", "4", "X-RateLimit-Limit", "100")).To(HaveKeyWithValue("X-Ratelimit-Limit", []string{"100"}))
			Expect(fields(v, "X-RateLimit-Remaining", "6", "X-RateLimit-Limit", "100")).To(HaveKeyWithValue("X-Ratelimit-Limit", []string{"20"}))
			Expect(fields(v, "X-RateLimit-Remaining", "plenty")).To(HaveKeyWithValue("X-Ratelimit-Remaining", []string{"5"}))
		})
	})
})
