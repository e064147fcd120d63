package ratelimit

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/portero-dev/portero/internal/bucketconfig"
)

const (
	clientIPPeer          = "Peer"
	clientIPXForwardedFor = "XForwardedFor"

	// defaultIPv6PrefixLength takes one subnet for one client: who has one has all of its 2^64 addresses.
	defaultIPv4PrefixLength = 32
	defaultIPv6PrefixLength = 64
)

// clientIP finds the address that a policy takes for the client's.
type clientIP struct {
	forwarded  bool // read X-Forwarded-For
	trusted    []netip.Prefix
	ipv4, ipv6 int // prefix lengths
}

func compileClientIP(c *bucketconfig.ClientIP) (*clientIP, error) {
	if c == nil {
		return nil, nil
	}
	ip := &clientIP{
		forwarded: c.Type == clientIPXForwardedFor,
		ipv4:      orDefault(c.IPv4PrefixLength, defaultIPv4PrefixLength),
		ipv6:      orDefault(c.IPv6PrefixLength, defaultIPv6PrefixLength),
	}
	switch {
	case c.Type != clientIPPeer && c.Type != clientIPXForwardedFor:
		return nil, invalid("clientIP.type", fmt.Errorf("%q: must be Peer or XForwardedFor", c.Type))
	case ip.forwarded && len(c.TrustedProxies) == 0:
		return nil, invalid("clientIP.xForwardedFor.trustedProxies", fmt.Errorf("is empty: name the proxies whose entries are believed, or use type Peer"))
	case ip.ipv4 < 1 || ip.ipv4 > 32:
		return nil, invalid("clientIP.ipv4PrefixLength", fmt.Errorf("%d: must be 1 to 32", ip.ipv4))
	case ip.ipv6 < 1 || ip.ipv6 > 128:
		return nil, invalid("clientIP.ipv6PrefixLength", fmt.Errorf("%d: must be 1 to 128", ip.ipv6))
	}
	for i, cidr := range c.TrustedProxies {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, invalid(fmt.Sprintf("clientIP.xForwardedFor.trustedProxies[%d]", i), fmt.Errorf("%q: must be a CIDR such as 10.42.7.0/24: %w", cidr, err))
		}
		ip.trusted = append(ip.trusted, foldPrefix(prefix))
	}
	return ip, nil
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// foldPrefix makes a prefix of IPv4-mapped addresses one of IPv4 addresses, as addresses are folded too.
func foldPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// identify gives the client's address as far as it identifies one client, or the zero Prefix when it is unknown: no
// address of the peer, an entry that can't be read, or trusted proxies all the way.
func (c *clientIP) identify(req *Request) netip.Prefix {
	if c == nil {
		return netip.Prefix{}
	}
	addr := fold(req.Peer)
	if c.forwarded {
		addr = c.walk(addr, req.Header["X-Forwarded-For"])
	}
	bits := c.ipv6
	if addr.Is4() {
		bits = c.ipv4
	}
	prefix, err := addr.Prefix(bits)
	if err != nil { // the zero Addr
		return netip.Prefix{}
	}
	return prefix
}

// walk reads the lines of X-Forwarded-For from right to left. Each entry was written by the hop to its right, so it is
// believed only when that hop is a trusted proxy: the client is the first hop that is none. What a client writes itself
// stands further left and is never reached.
func (c *clientIP) walk(addr netip.Addr, lines []string) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			if !addr.IsValid() || !c.trusts(addr) {
				return addr
			}
			var entry string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, entry = rest[:comma], rest[comma+1:]
			} else {
				entry, more = rest, false
			}
			if entry = strings.Trim(entry, " \t"); entry == "" {
				continue // an empty list element, to be ignored by RFC 9110 section 5.6.1
			}
			addr = parseHop(entry)
		}
	}
	if addr.IsValid() && c.trusts(addr) {
		return netip.Addr{}
	}
	return addr
}

func (c *clientIP) trusts(addr netip.Addr) bool {
	for _, prefix := range c.trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// parseHop reads an address with or without a port, an IPv6 one with or without brackets. The zero Addr: unreadable.
func parseHop(s string) netip.Addr {
	if addr, err := netip.ParseAddr(s); err == nil {
		return fold(addr)
	}
	if port, err := netip.ParseAddrPort(s); err == nil {
		return fold(port.Addr())
	}
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		if addr, err := netip.ParseAddr(s[1 : len(s)-1]); err == nil && addr.Is6() {
			return fold(addr)
		}
	}
	return netip.Addr{}
}

// fold drops the zone and makes an IPv4-mapped address an IPv4 one: one client, one address.
func fold(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
