package sidecars_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/tmaxmax/go-sse"
)

var _ = Describe("A WebSocket client", func() {
	dial := func(ctx context.Context, key string) (*websocket.Conn, *http.Response, error) {
		conn, response, err := websocket.Dial(ctx, "ws://"+shared.addr+"/chat", &websocket.DialOptions{
			HTTPHeader: http.Header{keyHeader: {key}}, Subprotocols: []string{"chat.v1"}, CompressionMode: websocket.CompressionContextTakeover,
		})
		if err == nil {
			conn.SetReadLimit(-1)
			DeferCleanup(func() { _ = conn.CloseNow() }) // tells of connections that are closed already
		}
		return conn, response, err
	}

	It("talks to the app at the cost of one verdict, and reads why it is refused", func(ctx SpecContext) {
		key := unique("chat")
		conn, response, err := dial(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(conn.Subprotocol()).To(Equal("chat.v1"))
		Expect(response.Header.Get("Sec-WebSocket-Extensions")).To(ContainSubstring("permessage-deflate"))
		Expect(response.Header.Get("RateLimit")).To(HavePrefix(`"clients/hourly";r=1`))
		for _, message := range []string{"", "hello", strings.Repeat("long ", 1<<14)} {
			Expect(conn.Write(ctx, websocket.MessageText, []byte(message))).To(Succeed())
			kind, answer, err := conn.Read(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(kind).To(Equal(websocket.MessageText))
			Expect(string(answer)).To(Equal(message))
		}
		Expect(conn.Write(ctx, websocket.MessageBinary, []byte("bye"))).To(Succeed())
		_, _, err = conn.Read(ctx)
		var closed websocket.CloseError
		Expect(errors.As(err, &closed)).To(BeTrue(), "%v", err)
		Expect(closed).To(Equal(websocket.CloseError{Code: 4001, Reason: "as you wish"}))

		second, _, err := dial(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		read := second.CloseRead(ctx)
		Expect(second.Ping(ctx)).To(Succeed(), "the app answers pings")
		Expect(read.Err()).NotTo(HaveOccurred())

		_, response, err = dial(ctx, key)
		Expect(err).To(HaveOccurred())
		Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
		Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
		body, err := io.ReadAll(response.Body)
		Expect(err).NotTo(HaveOccurred())
		expectRefusal(string(body), "hourly")
	})
})

var _ = Describe("A client of server-sent events", func() {
	for _, major := range []int{1, 2} {
		It(fmt.Sprintf("comes back for more at the cost of a verdict each time, and reads why it is refused: HTTP/%d", major), func(ctx SpecContext) {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(major == 1)
			transport.Protocols.SetUnencryptedHTTP2(major == 2)
			DeferCleanup(transport.CloseIdleConnections)
			var refusal string
			client := sse.Client{
				HTTPClient: &http.Client{Transport: transport},
				Backoff:    sse.Backoff{InitialInterval: time.Millisecond, Multiplier: 1, Jitter: -1},
				ResponseValidator: func(response *http.Response) error {
					if response.StatusCode == http.StatusTooManyRequests {
						body, err := io.ReadAll(response.Body)
						refusal = string(body)
						return errors.Join(errors.New("refused"), err)
					}
					return sse.DefaultValidator(response)
				},
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, shared.url("/events"), nil)
			Expect(err).NotTo(HaveOccurred())
			request.Header.Set(keyHeader, unique("events"))
			connection := client.NewConnection(request)
			var got []string
			connection.SubscribeEvent("price", func(event sse.Event) { got = append(got, event.LastEventID+": "+event.Data) })
			Expect(connection.Connect()).To(MatchError(ContainSubstring("refused")))
			Expect(got).To(Equal([]string{"1: line 1 of 1\nline 2", "2: line 1 of 2\nline 2", "3: line 1 of 3\nline 2", "4: line 1 of 4\nline 2"}))
			expectRefusal(refusal, "hourly")
		})
	}
})
