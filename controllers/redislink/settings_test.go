package redislink_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portero-dev/portero/controllers/redislink"
)

var _ = Describe("ParseSettings", func() {
	secret := func(data map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "portero-system", Name: redislink.AdminSecret}, Data: map[string][]byte{}}
		for key, value := range data {
			s.Data[key] = []byte(value)
		}
		return s
	}

	It("reads what a person typed", func() {
		s, err := redislink.ParseSettings(secret(map[string]string{"addrs": "a:1, b:2", "username": " admin\n", "password": "p w\n"}))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Addrs).To(Equal([]string{"a:1", "b:2"}))
		Expect(s.Username).To(Equal("admin"))
		Expect(s.Password).To(Equal("p w"))
	})

	DescribeTable("names the Secret, the key and the way out",
		func(data map[string]string, want string) {
			_, err := redislink.ParseSettings(secret(data))
			Expect(err).To(MatchError(And(ContainSubstring("portero-system/portero-redis-admin"), ContainSubstring(want))))
		},
		Entry("no address", map[string]string{}, `key "addrs"`),
		Entry("an address without a port", map[string]string{"addrs": "redis"}, "must be host:port"),
		Entry("a certificate without a key", map[string]string{"addrs": "a:1", "ca.crt": "x", "tls.crt": "x"}, "belong together"),
		Entry("a key of the sidecars without a certificate", map[string]string{"addrs": "a:1", "ca.crt": "x", "sidecar.key": "x"}, `"sidecar.crt" and "sidecar.key" belong together`),
		Entry("a certificate that is none", map[string]string{"addrs": "a:1", "ca.crt": "x", "sidecar.crt": "x", "sidecar.key": "x"}, `"sidecar.crt" and "sidecar.key": tls:`),
		Entry("a certificate without a CA, which would not be encrypted", map[string]string{"addrs": "a:1", "tls.crt": "x", "tls.key": "x"}, `key "ca.crt" is missing`),
	)
})
