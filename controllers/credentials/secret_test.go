package credentials_test

import (
	"bytes"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/controllers/credentials"
	"github.com/portero-dev/portero/internal/keyspace"
	"github.com/portero-dev/portero/internal/sidecarenv"
)

var _ = Describe("A namespace's Secret", func() {
	content := func(change ...func(*credentials.Content)) *credentials.Content {
		c := &credentials.Content{Instance: "0a1b2c3d", Addrs: []string{"a:1", "b:2"}, Master: credentials.Master{Secret: bytes.Repeat([]byte{7}, 32)}}
		for _, f := range change {
			f(c)
		}
		return c
	}

	It("holds what the sidecar reads, and is marked as ours", func() {
		secret := content().Secret("shop")
		Expect(secret.Namespace + "/" + secret.Name).To(Equal("shop/" + sidecarenv.CredentialsName))
		Expect(credentials.Ours(secret)).To(BeTrue())
		Expect(secret.Data).To(HaveLen(5))
		Expect(string(secret.Data[sidecarenv.SecretAddrs])).To(Equal("a:1,b:2"))
		Expect(string(secret.Data[sidecarenv.SecretUsername])).To(Equal(keyspace.Instance("0a1b2c3d").User("shop")))
		Expect(string(secret.Data[sidecarenv.SecretInstance])).To(Equal("0a1b2c3d"))
		Expect(secret.Data[sidecarenv.SecretPassword]).To(HaveLen(43), "32 bytes in base64")
		Expect(secret.Data[sidecarenv.SecretKeySecret]).To(HaveLen(32))
	})

	It("holds the authority only where there is one", func() {
		secret := content(func(c *credentials.Content) { c.CA = []byte("PEM") }).Secret("shop")
		Expect(secret.Data).To(HaveKeyWithValue(sidecarenv.SecretCA, []byte("PEM")))
	})

	It("holds a client certificate only where sidecars have one", func() {
		Expect(content().Secret("shop").Data).NotTo(HaveKey(sidecarenv.SecretCert))
		secret := content(func(c *credentials.Content) { c.Cert, c.Key = []byte("CERT"), []byte("KEY") }).Secret("shop")
		Expect(secret.Data).To(And(HaveKeyWithValue(sidecarenv.SecretCert, []byte("CERT")), HaveKeyWithValue(sidecarenv.SecretKey, []byte("KEY"))))
	})

	It("gets another password by another seed of passwords, and keeps its buckets", func() {
		before := content().Secret("shop").Data
		after := content(func(c *credentials.Content) { c.Master.Passwords = bytes.Repeat([]byte{8}, 32) }).Secret("shop").Data
		Expect(after[sidecarenv.SecretPassword]).NotTo(Equal(before[sidecarenv.SecretPassword]))
		Expect(after[sidecarenv.SecretKeySecret]).To(Equal(before[sidecarenv.SecretKeySecret]))
	})

	It("comes back the same, whoever makes it", func() {
		Expect(content().Secret("shop")).To(Equal(content().Secret("shop")))
	})

	It("shares no secret with another namespace, instance, master or purpose", func() {
		seen := map[string]bool{}
		for _, secret := range []map[string][]byte{
			content().Secret("shop").Data,
			content().Secret("shop-x").Data,
			content(func(c *credentials.Content) { c.Instance = "other" }).Secret("shop").Data,
			content(func(c *credentials.Content) { c.Master.Secret = bytes.Repeat([]byte{8}, 32) }).Secret("shop").Data,
		} {
			seen[string(secret[sidecarenv.SecretPassword])] = true
			seen[string(secret[sidecarenv.SecretKeySecret])] = true
		}
		Expect(seen).To(HaveLen(8))
	})
})
