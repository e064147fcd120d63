package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/portero-dev/portero/hack/testapp/app"
)

var _ = Describe("Handler", func() {
	var (
		handler *app.Handler
		server  *httptest.Server
	)

	BeforeEach(func() {
		handler = &app.Handler{Pod: "pod-1"}
		server = httptest.NewServer(handler.Routes())
		DeferCleanup(server.Close)
	})

	do := func(ctx context.Context, method, path string, body io.Reader) (*http.Response, string) {
		GinkgoHelper()
		request, err := http.NewRequestWithContext(ctx, method, server.URL+path, body)
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("X-Api-Key", "alice")
		response, err := server.Client().Do(request)
		Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		Expect(err).NotTo(HaveOccurred())
		return response, string(content)
	}

	It("says which pod answered, in every response", func(ctx SpecContext) {
		for _, path := range []string{"/", "/headers", "/healthz", "/status?code=404", "/nowhere"} {
			response, _ := do(ctx, http.MethodGet, path, nil)
			Expect(response.Header.Get(app.PodHeader)).To(Equal("pod-1"), path)
		}
	})

	It("tells a cost in a header or a trailer", func(ctx SpecContext) {
		response, _ := do(ctx, http.MethodGet, "/cost?tokens=7", nil)
		Expect(response.Header.Get("X-Cost")).To(Equal("7"))
		Expect(response.Trailer).To(BeEmpty())
		response, body := do(ctx, http.MethodGet, "/cost?tokens=8&in=trailer", nil)
		Expect(response.Header).NotTo(HaveKey("X-Cost"))
		Expect(response.Trailer.Get("X-Cost")).To(Equal("8"))
		Expect(body).To(ContainSubstring("pod-1"))
		for _, wrong := range []string{"/cost", "/cost?tokens=-1", "/cost?tokens=1&in=body"} {
			response, _ = do(ctx, http.MethodGet, wrong, nil)
			Expect(response.StatusCode).To(Equal(http.StatusBadRequest), wrong)
		}
	})

	It("shows the request as it arrived", func(ctx SpecContext) {
		_, body := do(ctx, http.MethodGet, "/headers?x=1", nil)
		var seen map[string]any
		Expect(json.Unmarshal([]byte(body), &seen)).To(Succeed())
		Expect(seen).To(And(
			HaveKeyWithValue("pod", "pod-1"), HaveKeyWithValue("url", "/headers?x=1"), HaveKeyWithValue("proto", "HTTP/1.1"),
			HaveKeyWithValue("headers", HaveKeyWithValue("X-Api-Key", ConsistOf("alice")))))
	})

	It("fails its health check when told to, and only then", func(ctx SpecContext) {
		control := httptest.NewServer(handler.Control())
		DeferCleanup(control.Close)
		for query, want := range map[string]int{"on=1": http.StatusServiceUnavailable, "on=0": http.StatusOK} {
			response, err := control.Client().Get(control.URL + "/fail?" + query)
			Expect(err).NotTo(HaveOccurred())
			response.Body.Close()
			health, _ := do(ctx, http.MethodGet, "/healthz", nil)
			Expect(health.StatusCode).To(Equal(want), query)
		}
	})

	It("counts what reached it, without health checks", func(ctx SpecContext) {
		for _, path := range []string{"/", "/healthz", "/headers"} {
			do(ctx, http.MethodGet, path, nil)
		}
		recorder := httptest.NewRecorder()
		handler.Control().ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/served", nil))
		Expect(recorder.Body.String()).To(Equal("2\n"))
	})

	It("echoes a body while it is still being sent", func(ctx SpecContext) {
		reader, writer := io.Pipe()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/echo", reader)
		Expect(err).NotTo(HaveOccurred())
		go fmt.Fprint(writer, "first")
		response, err := server.Client().Do(request)
		Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		piece := make([]byte, 5)
		_, err = io.ReadFull(response.Body, piece)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(piece)).To(Equal("first"))
		Expect(writer.Close()).To(Succeed())
		Expect(io.ReadAll(response.Body)).To(BeEmpty())
	}, NodeTimeout(10*time.Second))

	It("sends as many events as asked for", func(ctx SpecContext) {
		response, body := do(ctx, http.MethodGet, "/sse?n=3&interval=1ms", nil)
		Expect(response.Header.Get("Content-Type")).To(Equal("text/event-stream"))
		Expect(strings.Count(body, "data: pod-1\n\n")).To(Equal(3))
	})

	DescribeTable("follows a body with trailers", func(ctx SpecContext, body, sum string) {
		response, content := do(ctx, http.MethodPost, "/trailers", bytes.NewBufferString(body))
		Expect(content).To(Equal(body))
		Expect(response.Trailer.Get("X-Body-Sha256")).To(Equal(sum))
	},
		Entry("of some bytes", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
		Entry("of none", "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"))

	It("sends early hints before the answer", func(ctx SpecContext) {
		var hints []int
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { hints = append(hints, code); return nil },
		})
		response, _ := do(traced, http.MethodGet, "/early-hints", nil)
		Expect(hints).To(ConsistOf(http.StatusEarlyHints))
		Expect(response.StatusCode).To(Equal(http.StatusOK))
	})

	It("switches protocols and then returns every byte", func(ctx SpecContext) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		fmt.Fprint(conn, "GET /upgrade HTTP/1.1\r\nHost: app\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nping")
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.StatusCode).To(Equal(http.StatusSwitchingProtocols))
		piece := make([]byte, 4)
		_, err = io.ReadFull(reader, piece)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(piece)).To(Equal("ping"))
	}, NodeTimeout(10*time.Second))

	DescribeTable("refuses a query that asks for too much", func(ctx SpecContext, path string) {
		response, _ := do(ctx, http.MethodGet, path, nil)
		Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
	},
		Entry("events", "/sse?n=1001"), Entry("interval", "/sse?interval=0s"), Entry("delay", "/delay?for=1h"), Entry("status", "/status?code=100"))
})
