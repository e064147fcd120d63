// Command app is the app behind the sidecars of these specs, over HTTP/1.1 and HTTP/2 without TLS. It is a process of its own, as the race
// detector of the specs would slow what it streams.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	writes := flag.Int64("pattern", 0, "only write as many bytes of the pattern that /download answers")
	sums := flag.Bool("sum", false, "only read, and print how many bytes came and their sum, as /upload answers")
	flag.Parse()
	if err := run(*writes, *sums); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func run(writes int64, sums bool) error {
	switch {
	case writes > 0:
		_, err := io.CopyBuffer(struct{ io.Writer }{os.Stdout}, pattern(writes), make([]byte, 256<<10))
		return err
	case sums:
		told, err := sum(os.Stdin)
		fmt.Print(told)
		return err
	}
	return serve()
}

// serve prints its address, and ends when its input does.
func serve() error {
	mux := http.NewServeMux()
	mux.HandleFunc("/page", page)
	mux.HandleFunc("/upload", upload)
	mux.HandleFunc("/download", download)
	mux.HandleFunc("/events", events)
	mux.HandleFunc("/chat", chat)
	server := &http.Server{Handler: mux, Protocols: new(http.Protocols), ReadHeaderTimeout: 20 * time.Second}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with whoever started this
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
