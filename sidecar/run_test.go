package sidecar_test

import (
	"io"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/portero-dev/portero/internal/bucketconfig"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

func status(url string) int {
	response, err := client.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

var _ = Describe("A sidecar", func() {
	It("starts and passes all traffic without credentials, and says so", func(ctx SpecContext) {
		t := newTenant(ctx)
		p := newPod().start(ctx, t)
		Eventually(func() int { return status(p.adminURL + sidecarenv.StartupPath) }).Should(Equal(200))
		Expect(status(p.adminURL + sidecarenv.ReadyPath)).To(Equal(200))
		Expect(p.passed(ctx, 10, "a")).To(Equal(10))
		Expect(p.log).To(gbytes.Say("no Redis credentials"))
		Expect(p.scrape()).To(ContainSubstring("portero_credentials_present 0"))

		By("taking the Secret when it comes")
		t.publish(ctx, t.policy("checkout", 3))
		p.mount(t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 5, "a")).To(Equal(3))
		Expect(p.scrape()).To(ContainSubstring("portero_credentials_present 1"))
	})

	It("starts and passes traffic where the password is wrong, and works once it is right", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 3))
		p := newPod().mount(t, sidecarenv.SecretPassword, "wrong").start(ctx, t)
		Eventually(func() int { return status(p.adminURL + sidecarenv.ReadyPath) }, "5s").Should(Equal(200))
		Expect(p.passed(ctx, 5, "a")).To(Equal(5))
		Eventually(p.log).Should(gbytes.Say("WRONGPASS"))
		Expect(p.scrape()).To(ContainSubstring("portero_fallback_active 1"))

		p.mount(t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 5, "a")).To(Equal(3))
		Eventually(p.scrape).Should(ContainSubstring("portero_fallback_active 0"))
	})

	It("keeps what works when the credentials are spoiled, and follows a rotation", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 10))
		p := newPod().mount(t).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 2, "a")).To(Equal(2))

		p.mount(t, sidecarenv.SecretPassword, "wrong")
		Eventually(p.log).Should(gbytes.Say("WRONGPASS"))
		Expect(p.passed(ctx, 2, "a")).To(Equal(2))

		Expect(manager.EnsureUser(ctx, t.name, password, "the-next-password")).To(Succeed())
		p.mount(t, sidecarenv.SecretPassword, "the-next-password")
		Eventually(p.log, "5s").Should(gbytes.Say("a new way to Redis is in use"))
		Expect(p.passed(ctx, 10, "a")).To(Equal(6), "the bucket is the same one")
		Expect(p.scrape()).To(ContainSubstring(`portero_verdict_duration_seconds_count{source="local"} 0`))
	})

	It("shares one bucket with every other sidecar", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 20))
		first, second := newPod().mount(t).start(ctx, t), newPod().mount(t).start(ctx, t)
		for _, p := range []*pod{first, second} {
			p.applies(map[string]int64{"checkout": 1})
		}
		total := 0
		for range 20 {
			total += first.passed(ctx, 1, "a") + second.passed(ctx, 1, "a")
		}
		Expect(total).To(Equal(20))
		Expect(first.passed(ctx, 1, "b")).To(Equal(1), "another client has a bucket of its own")
	})

	It("enforces a changed limit and keeps what was spent, and passes all once the policy is gone", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 10))
		p := newPod().mount(t).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 8, "a")).To(Equal(8))

		t.publish(ctx, t.policy("checkout", 5))
		p.applies(map[string]int64{"checkout": 2})
		Expect(p.passed(ctx, 8, "a")).To(Equal(2))
		Expect(p.passed(ctx, 8, "b")).To(Equal(5))

		t.publish(ctx)
		p.applies(nil)
		Expect(p.passed(ctx, 8, "a")).To(Equal(8))
	})

	It("enforces the policies that select the pod, by its labels of now", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 3, func(r *bucketconfig.Record) {
			r.Selector.MatchLabels = map[string]string{"tier": "front"}
		}))
		p := newPod().mount(t).start(ctx, t)
		Eventually(func() (*bucketconfig.Heartbeat, error) { return p.beat(ctx, t) }, "5s").Should(HaveField("Revision", Not(BeEmpty())))
		Expect(p.passed(ctx, 5, "a")).To(Equal(5))
		p.label("app=\"checkout\"\ntier=\"front\"")
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 5, "a")).To(Equal(3))
	})

	It("tells the manager what it applies and what it counted", func(ctx SpecContext) {
		t := newTenant(ctx)
		t.publish(ctx, t.policy("checkout", 2))
		p := newPod().mount(t).start(ctx, t)
		p.applies(map[string]int64{"checkout": 1})
		Expect(p.passed(ctx, 3, "a")).To(Equal(2))
		t.publish(ctx, t.policy("checkout", 2))
		Eventually(func(g Gomega) {
			beat, err := p.beat(ctx, t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(beat.PodName).To(Equal("checkout"))
			g.Expect(beat.SidecarVersion).To(Equal("v0.0.0-test"))
			g.Expect(beat.StartID).NotTo(BeEmpty())
			g.Expect(beat.Fallback).To(BeFalse())
			g.Expect(beat.Applied).To(ConsistOf(bucketconfig.AppliedPolicy{
				Name: "checkout", UID: "uid-of-checkout", Generation: 2,
				Limits: []bucketconfig.LimitCounter{{Name: "per-key", Allowed: 2, Denied: 1}},
			}))
		}, "5s").Should(Succeed())
	})

	It("drains when told, and ends open requests before it ends", func(ctx SpecContext) {
		t := newTenant(ctx)
		p := newPod().start(ctx, t)
		Eventually(func() int { return status(p.adminURL + sidecarenv.ReadyPath) }).Should(Equal(200))

		body, write := io.Pipe()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/slow", body)
		Expect(err).NotTo(HaveOccurred())
		answered := make(chan int, 1)
		go func() {
			code, _ := do(request)
			answered <- code
		}()
		_, err = write.Write([]byte("begun")) // returns when the sidecar reads it
		Expect(err).NotTo(HaveOccurred())

		response, err := client.Post(p.controlURL+"/drain", "", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(status(p.adminURL + sidecarenv.ReadyPath)).To(Equal(503))
		Expect(p.passed(ctx, 1, "a")).To(Equal(1), "it still serves")

		p.stop()
		Eventually(func() error { _, err := p.get(ctx, "a"); return err }).Should(HaveOccurred())
		Consistently(p.ended, "100ms").ShouldNot(Receive())
		Expect(write.Close()).To(Succeed())
		Eventually(answered).Should(Receive(Equal(200)))
		var ended error
		Eventually(p.ended, "5s").Should(Receive(&ended))
		Expect(ended).NotTo(HaveOccurred())
		p.ended <- nil
	})
})
