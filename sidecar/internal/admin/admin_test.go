package admin_test

import (
	"io"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/sidecar/internal/admin"
)

func call(handler http.Handler, method, path string) int {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder.Code
}

var _ = Describe("Handler", func() {
	var (
		state   *admin.State
		handler http.Handler
	)
	BeforeEach(func() {
		state = new(admin.State)
		handler = admin.Handler(state, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "metrics")
		}))
	})

	DescribeTable("answers each probe by the sidecar's state",
		func(reach func(), startup, ready, live int) {
			reach()
			Expect(call(handler, "GET", "/startupz")).To(Equal(startup))
			Expect(call(handler, "GET", "/readyz")).To(Equal(ready))
			Expect(call(handler, "GET", "/livez")).To(Equal(live))
		},
		Entry("starting", func() {}, 503, 503, 200),
		Entry("started", func() { state.Started() }, 200, 200, 200),
		Entry("draining", func() { state.Started(); state.Drain() }, 200, 503, 200),
	)

	It("serves metrics, and changes nothing on request", func() {
		Expect(call(handler, "GET", "/metrics")).To(Equal(200))
		Expect(call(handler, "POST", "/drain")).To(Equal(404))
		Expect(call(handler, "POST", "/readyz")).To(Equal(405))
	})
})

var _ = Describe("ControlHandler", func() {
	It("drains once, by POST only", func() {
		state, drains := new(admin.State), 0
		handler := admin.ControlHandler(state, func() { drains++ })
		Expect(call(handler, "GET", admin.DrainPath)).To(Equal(405))
		Expect(drains).To(BeZero())
		Expect(call(handler, "POST", admin.DrainPath)).To(Equal(200))
		Expect(call(handler, "POST", admin.DrainPath)).To(Equal(200))
		Expect(drains).To(Equal(1))
		Expect(state.Drain()).To(BeFalse())
	})
})
