package proxy_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// upload is an HTTP/2 request whose body has begun, frame by frame.
type upload struct {
	conn   net.Conn
	framer *http2.Framer
}

func beginUpload(ctx context.Context, g *gate) *upload {
	GinkgoHelper()
	conn, in := dial(ctx, g)
	u := &upload{conn: conn, framer: http2.NewFramer(conn, in)}
	send(conn, http2.ClientPreface)
	Expect(u.framer.WriteSettings()).To(Succeed())
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/upload"}, {":authority", "h"}} {
		Expect(encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})).To(Succeed())
	}
	Expect(u.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})).To(Succeed())
	Expect(u.framer.WriteData(1, false, []byte("begun"))).To(Succeed())
	return u
}

// next is the next frame of the stream.
func (u *upload) next() (http2.Frame, error) {
	for {
		frame, err := u.framer.ReadFrame()
		if err != nil {
			return nil, err
		}
		if frame.Header().StreamID == 1 && frame.Header().Type != http2.FrameWindowUpdate {
			return frame, nil
		}
	}
}

// answer reads the header and the data of the answer, without its end.
func (u *upload) answer() {
	GinkgoHelper()
	frame, err := u.next()
	Expect(err).NotTo(HaveOccurred())
	Expect(frame.Header().Type).To(Equal(http2.FrameHeaders))
	frame, err = u.next()
	Expect(err).NotTo(HaveOccurred())
	data, ok := frame.(*http2.DataFrame)
	Expect(ok).To(BeTrue())
	Expect(string(data.Data())).To(ContainSubstring("the limit is spent"))
	Expect(data.StreamEnded()).To(BeFalse())
}

var _ = Describe("A refusal that comes before the end of an upload over HTTP/2", func() {
	var u *upload

	BeforeEach(func(ctx SpecContext) {
		g := startGate(startApp(ok), policy("a", spent))
		get(ctx, clientOf(1), g.url("/"))
		u = beginUpload(ctx, g)
	})

	It("is not followed by a reset as long as its client may still have to read it", func() {
		u.answer()
		Expect(u.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))).To(Succeed())
		_, err := u.next()
		Expect(err).To(MatchError(os.ErrDeadlineExceeded))

		By("ending well when the client ends its own")
		Expect(u.conn.SetReadDeadline(time.Now().Add(patience))).To(Succeed())
		Expect(u.framer.WriteData(1, true, nil)).To(Succeed())
		frame, err := u.next()
		Expect(err).NotTo(HaveOccurred())
		data, ok := frame.(*http2.DataFrame)
		Expect(ok).To(BeTrue())
		Expect(data.StreamEnded()).To(BeTrue())
	})

	It("ends the stream of a client that does not leave", func() {
		u.answer()
		frame, err := u.next()
		Expect(err).NotTo(HaveOccurred())
		data, ok := frame.(*http2.DataFrame)
		Expect(ok).To(BeTrue())
		Expect(data.StreamEnded()).To(BeTrue())
		frame, err = u.next()
		Expect(err).NotTo(HaveOccurred())
		Expect(frame).To(HaveField("ErrCode", http2.ErrCodeNo))
	})
})
