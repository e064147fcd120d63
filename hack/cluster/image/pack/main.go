// Command pack writes one static binary as the tar of an image that `ctr images import` takes.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/portero-dev/portero/hack/cluster/image"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// run parses the command line and writes the image under a temporary name first, so that nobody imports half of one.
func run(args []string, messages io.Writer) error {
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() {
		fmt.Fprintln(messages, "usage: pack -name REFERENCE -out FILE [flags] BINARY")
		flags.PrintDefaults()
	}
	var img image.Image
	flags.StringVar(&img.Name, "name", "", "full reference of the image, such as portero.dev/manager:dev")
	flags.StringVar(&img.User, "user", "65532:65532", "numeric uid:gid that the image runs as")
	out := flags.String("out", "", "file to write the image's tar to")
	port := flags.Int("port", 0, "TCP port that the image says it serves; 0 for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if img.Name == "" || *out == "" || flags.NArg() != 1 {
		flags.Usage()
		return fmt.Errorf("-name, -out and one binary are required, got -name=%q -out=%q and %d binaries", img.Name, *out, flags.NArg())
	}
	img.Binary = flags.Arg(0)
	if *port != 0 {
		img.Ports = []int{*port}
	}
	return writeFile(*out, img)
}

func writeFile(path string, img image.Image) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return fmt.Errorf("write image %s: %w", path, err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // gone already when all went well
	if err := img.Write(file); err != nil {
		file.Close()
		return fmt.Errorf("write image %s: %w", path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write image %s: %w", path, err)
	}
	return os.Rename(file.Name(), path)
}
