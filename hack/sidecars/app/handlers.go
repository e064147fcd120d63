package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"

	"github.com/coder/websocket"
)

// page has of everything: early hints, fields of one name, and a trailer.
func page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Link", "</style.css>; rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	h.Del("Link")
	h.Set("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
	h.Set("Etag", `"v1"`)
	h.Add("Set-Cookie", "a=1")
	h.Add("Set-Cookie", "b=2")
	h.Set("Content-Type", "text/x-page")
	h.Set("Trailer", "X-Sum")
	fmt.Fprintf(w, "%s %s of %s\n", r.Method, r.RequestURI, r.Header.Get("User-Agent"))
	_ = http.NewResponseController(w).Flush() // else a length is told, and curl leaves before the trailer
	h.Set("X-Sum", "7")
}

// upload answers how many bytes came, and their sum.
func upload(w http.ResponseWriter, r *http.Request) {
	told, err := sum(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, told)
}

// sum tells how many bytes a stream has, and what tells it from others.
func sum(r io.Reader) (string, error) {
	hash := crc32.NewIEEE()
	n, err := io.CopyBuffer(struct{ io.Writer }{hash}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	return fmt.Sprintf("%d bytes, sum %08x", n, hash.Sum32()), err
}

// download answers as many bytes of the pattern as it is asked for.
func download(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.CopyBuffer(struct{ io.Writer }{w}, pattern(size), make([]byte, 256<<10))
}

// pattern is a stream of bytes that don't repeat soon, so that nothing lost, doubled or moved keeps its sum.
func pattern(size int64) io.Reader { return io.LimitReader(new(patterned), size) }

const period = 65_521 // a prime, so that no buffer's size divides it

var block = func() (block [2 * period]byte) {
	x := uint32(1)
	for i := range period {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		block[i], block[i+period] = byte(x), byte(x)
	}
	return block
}()

type patterned struct{ at int }

// Read serves io.Reader.
func (p *patterned) Read(b []byte) (n int, _ error) {
	for n < len(b) {
		copied := copy(b[n:], block[p.at:p.at+period])
		n += copied
		p.at = (p.at + copied) % period
	}
	return n, nil
}

// events sends two events a connection, from the one after the last that the client has seen.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	last, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	for id := last + 1; id <= last+2; id++ {
		fmt.Fprintf(w, "retry: 1\nid: %d\nevent: price\ndata: line 1 of %d\ndata: line 2\n\n", id, id)
		_ = http.NewResponseController(w).Flush()
	}
}

// chat sends back each message, and ends with a status and a reason of its own when asked to.
func chat(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat.v1"}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if string(message) == "bye" {
			_ = conn.Close(4001, "as you wish")
			return
		}
		if err := conn.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}
