// Package environment reads what the injector wrote into the sidecar's environment, and says what is wrong with it.
//
// The sidecar's commands import it. It is a leaf beside internal/sidecarenv: no network, no files.
package environment

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/portero-dev/portero/internal/sidecarenv"
)

// DefaultDrainTimeout bounds how long open requests may take after SIGTERM, where nothing else is said.
const DefaultDrainTimeout = 10 * time.Second

// Port is one protected port of the app.
type Port struct {
	App    uint16 // where the app listens
	Listen uint16 // where the sidecar listens
	Shadow uint16 // where kubelet's probes reach the app
	Name   string // of the app's port in the pod; empty when it has none
}

// Environment is the sidecar's environment, checked.
type Environment struct {
	Namespace    string
	PodName      string
	PodUID       string
	PodIP        netip.Addr
	Workload     string // such as deployment/web; empty when it is not known
	Ports        []Port
	HostIPs      []netip.Addr
	UpstreamHost string // the pod's IP where nothing else is said
	LogLevel     slog.Level
	DrainTimeout time.Duration
}

// Read reads the environment of the proxy through getenv, which answers "" for what is not set. Its errors name the
// variable, the value and what would be right.
func Read(getenv func(string) string) (Environment, error) {
	e := Environment{
		Namespace: getenv(sidecarenv.Namespace),
		PodName:   getenv(sidecarenv.PodName),
		PodUID:    getenv(sidecarenv.PodUID),
		Workload:  getenv(sidecarenv.Workload),
	}
	for _, required := range []string{sidecarenv.Namespace, sidecarenv.PodName, sidecarenv.PodUID} {
		if getenv(required) == "" {
			return Environment{}, fmt.Errorf("%s is not set: the injector writes it from the downward API", required)
		}
	}
	var err error
	if e.PodIP, err = address(sidecarenv.PodIP, getenv(sidecarenv.PodIP)); err != nil {
		return Environment{}, err
	}
	if e.Ports, err = ParsePorts(getenv(sidecarenv.Ports)); err != nil {
		return Environment{}, err
	}
	if e.HostIPs, err = ParseHostIPs(getenv(sidecarenv.HostIPs)); err != nil {
		return Environment{}, err
	}
	if e.UpstreamHost, err = upstreamHost(getenv(sidecarenv.UpstreamHost), e.PodIP); err != nil {
		return Environment{}, err
	}
	if e.LogLevel, err = logLevel(getenv(sidecarenv.LogLevel)); err != nil {
		return Environment{}, err
	}
	if e.DrainTimeout, err = drainTimeout(getenv(sidecarenv.DrainTimeout)); err != nil {
		return Environment{}, err
	}
	return e, nil
}

// ParsePorts parses a list of APP:LISTEN:SHADOW[:NAME], separated by commas. No number may stand twice: two listeners can't
// share a port, and a listener on an app's port would redirect to itself.
func ParsePorts(s string) ([]Port, error) {
	if strings.TrimSpace(s) == "" {
		return nil, fmt.Errorf("%s is not set: state APP:LISTEN:SHADOW[:NAME] for each protected port, such as 8080:14080:14180:http", sidecarenv.Ports)
	}
	entries := strings.Split(s, ",")
	if len(entries) > sidecarenv.MaxPorts {
		return nil, fmt.Errorf("%s %q: %d ports, at most %d can be protected", sidecarenv.Ports, s, len(entries), sidecarenv.MaxPorts)
	}
	seen := map[uint16]bool{sidecarenv.AdminPort: true, sidecarenv.ControlPort: true}
	ports := make([]Port, 0, len(entries))
	for _, entry := range entries {
		port, err := parsePort(strings.TrimSpace(entry), seen)
		if err != nil {
			return nil, fmt.Errorf("%s: entry %q %w", sidecarenv.Ports, entry, err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// parsePort parses one entry, and notes its numbers among those that were seen.
func parsePort(entry string, seen map[uint16]bool) (Port, error) {
	fields := strings.Split(entry, ":")
	if len(fields) != 3 && len(fields) != 4 {
		return Port{}, errors.New("is not APP:LISTEN:SHADOW[:NAME], such as 8080:14080:14180:http")
	}
	var parsed [3]uint16
	for i, number := range fields[:3] {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 {
			return Port{}, fmt.Errorf("has %q, which is not a port number from 1 to 65535", number)
		}
		if seen[uint16(n)] {
			return Port{}, fmt.Errorf("has port %d, which is in use twice, or by the sidecar itself", n)
		}
		seen[uint16(n)] = true
		parsed[i] = uint16(n)
	}
	port := Port{App: parsed[0], Listen: parsed[1], Shadow: parsed[2]}
	if len(fields) == 4 {
		port.Name = fields[3]
	}
	return port, nil
}

// ParseHostIPs parses a list of addresses, separated by commas; an empty list is fine.
func ParseHostIPs(s string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for field := range strings.SplitSeq(s, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		addr, err := address(sidecarenv.HostIPs, field)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

func address(variable, s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s %q: must be an IPv4 or IPv6 address", variable, s)
	}
	return addr.Unmap().WithZone(""), nil
}

func upstreamHost(s string, podIP netip.Addr) (string, error) {
	if s == "" {
		return podIP.String(), nil
	}
	if net.ParseIP(s) == nil {
		return "", fmt.Errorf("%s %q: must be an IPv4 or IPv6 address, such as 127.0.0.1", sidecarenv.UpstreamHost, s)
	}
	return s, nil
}

func logLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%s %q: must be debug, info, warn or error", sidecarenv.LogLevel, s)
}

func drainTimeout(s string) (time.Duration, error) {
	if s == "" {
		return DefaultDrainTimeout, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > time.Hour {
		return 0, fmt.Errorf("%s %q: must be a duration from 0s to 1h, such as 10s", sidecarenv.DrainTimeout, s)
	}
	return d, nil
}
