package redislink_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The link", func() {
	It("removes nothing for a manager that does not lead any more", func(ctx SpecContext) {
		link, api := connect(ctx)
		_, err := link.Publish(ctx, "shop", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(link.EnsureUser(ctx, "shop", "a password")).To(Succeed())

		api.lead("another")
		Expect(link.Remove(ctx, "shop")).To(MatchError(ContainSubstring("another one leads")))
		Expect(link.RemoveUser(ctx, "shop")).To(MatchError(ContainSubstring("another one leads")))
		Expect(link.Load(ctx, "shop")).NotTo(BeNil())
		Expect(link.Namespaces(ctx)).To(ContainElement("shop"))
		Expect(link.Users(ctx)).To(Equal([]string{"shop"}))

		api.lead("us")
		Expect(link.Remove(ctx, "shop")).To(Succeed())
		Expect(link.RemoveUser(ctx, "shop")).To(Succeed())
		Expect(link.Load(ctx, "shop")).To(BeNil())
		Expect(link.Namespaces(ctx)).NotTo(ContainElement("shop"))
		Expect(link.Users(ctx)).To(BeEmpty())
	})

	It("publishes a namespace that is listed while the index can't be written, and lists it again when the index lost it", func(ctx SpecContext) {
		link, _ := connect(ctx)
		_, err := link.Publish(ctx, "listed", nil)
		Expect(err).NotTo(HaveOccurred())
		index := cluster.Client()
		Expect(index.Del(ctx, instance.Namespaces()).Err()).To(Succeed())
		Expect(index.Set(ctx, instance.Namespaces(), "no set", 0).Err()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(index.Del(ctx, instance.Namespaces()).Err()).To(Succeed()) })
		_, err = link.Publish(ctx, "listed", nil)
		Expect(err).NotTo(HaveOccurred())
		_, err = link.Publish(ctx, "not-listed", nil)
		Expect(err).To(HaveOccurred(), "a crash would leave behind what no sweep finds")

		Expect(index.Del(ctx, instance.Namespaces()).Err()).To(Succeed())
		Expect(link.Namespaces(ctx)).To(BeEmpty())
		_, err = link.Publish(ctx, "listed", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(link.Namespaces(ctx)).To(Equal([]string{"listed"}))
	})
})
