package redirect

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Where the kernel tells the calling thread its routes. "self" would name the network namespace of the main thread.
const (
	routes4 = "/proc/thread-self/net/route"
	routes6 = "/proc/thread-self/net/ipv6_route"
)

// DefaultGateways are the gateways of the default routes in the network namespace of the calling thread. On a bridge CNI
// kubelet's probes come from there, not from an address of the node.
func DefaultGateways() ([]netip.Addr, error) {
	var gateways []netip.Addr
	for _, source := range []struct {
		file  string
		parse func(io.Reader) ([]netip.Addr, error)
	}{{routes4, parseRoutes4}, {routes6, parseRoutes6}} {
		found, err := readRoutes(source.file, source.parse)
		if err != nil {
			return nil, err
		}
		gateways = append(gateways, found...)
	}
	return gateways, nil
}

func readRoutes(file string, parse func(io.Reader) ([]netip.Addr, error)) ([]netip.Addr, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without this family
	}
	if err != nil {
		return nil, fmt.Errorf("read the pod's routes: %w", err)
	}
	defer f.Close()
	gateways, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("read the pod's routes: %s: %w", file, err)
	}
	return gateways, nil
}

// parseRoutes4 reads lines of: interface, destination, gateway, flags, ..., mask (field 7); numbers are hexadecimal in
// the byte order of the machine, which is little endian on all that we build for.
func parseRoutes4(r io.Reader) ([]netip.Addr, error) {
	return parseRoutes(r, func(fields []string) (string, bool) {
		if len(fields) < 8 || fields[1] != "00000000" || fields[7] != "00000000" {
			return "", false
		}
		return fields[2], true
	}, func(b []byte) { slices.Reverse(b) })
}

// parseRoutes6 reads lines of: destination, its prefix length, source, its prefix length, next hop, ....
func parseRoutes6(r io.Reader) ([]netip.Addr, error) {
	return parseRoutes(r, func(fields []string) (string, bool) {
		if len(fields) < 10 || strings.Trim(fields[0], "0") != "" || fields[1] != "00" {
			return "", false
		}
		return fields[4], true
	}, func([]byte) {})
}

func parseRoutes(r io.Reader, gateway func([]string) (string, bool), order func([]byte)) ([]netip.Addr, error) {
	var gateways []netip.Addr
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			return gateways, lines.Err()
		}
		field, isDefault := gateway(strings.Fields(lines.Text()))
		if !isDefault {
			continue
		}
		raw, err := hex.DecodeString(field)
		if err != nil {
			return nil, fmt.Errorf("gateway %q is not hexadecimal", field)
		}
		order(raw)
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return nil, fmt.Errorf("gateway %q is not an address", field)
		}
		if !addr.IsUnspecified() && !slices.Contains(gateways, addr) {
			gateways = append(gateways, addr)
		}
	}
}
