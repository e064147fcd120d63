package app_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/portero-dev/portero/hack/testapp/app"
)

var _ = Describe("Main", func() {
	It("serves HTTP/1.1 and HTTP/2 cleartext, and ends when told to", func(ctx SpecContext) {
		serving, stop := context.WithCancel(ctx)
		log := gbytes.NewBuffer()
		ended := make(chan error, 1)
		go func() {
			ended <- app.Main(serving, []string{"-listen=127.0.0.1:0", "-control=", "-pod=pod-1"}, log)
		}()
		Eventually(log).Should(gbytes.Say(`address=127\.0\.0\.1:\d+`))
		address := regexp.MustCompile(`address=(\S+)`).FindSubmatch(log.Contents())[1]

		for _, http2 := range []bool{false, true} {
			response, err := client(http2).Get("http://" + string(address) + "/")
			Expect(err).NotTo(HaveOccurred())
			Expect(io.ReadAll(response.Body)).To(BeEquivalentTo("hello from pod-1\n"))
			response.Body.Close()
			Expect(response.ProtoAtLeast(2, 0)).To(Equal(http2))
		}
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	}, NodeTimeout(20*time.Second))

	It("names an address that is taken", func(ctx SpecContext) {
		taken, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		defer taken.Close()
		err = app.Main(ctx, []string{"-listen=" + taken.Addr().String(), "-control="}, io.Discard)
		Expect(err).To(MatchError(ContainSubstring(taken.Addr().String())))
	})
})

func client(http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DisableKeepAlives: true}}
}
