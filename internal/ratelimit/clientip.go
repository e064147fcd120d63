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
	case len(c.TrustedProxies) > bucketconfig.MaxTrustedProxies:
		return nil, tooMany("clientIP.xForwardedFor.trustedProxies", len(c.TrustedProxies), bucketconfig.MaxTrustedProxies)
	case ip.forwarded && len(c.TrustedProxies) == 0:
		return nil, invalid("clientIP.xForwardedFor.trustedProxies", fmt.Errorf("is empty: name the proxies whose entries are believed, or use type Peer"))
	case ip.ipv4 < 1 || ip.ipv4 > 32:
		return nil, invalid("clientIP.ipv4PrefixLength", fmt.Errorf("%d: must be 1 to 32", ip.ipv4))
	case ip.ipv6 < 1 || ip.ipv6 > 128:
		return nil, invalid("clientIP.ipv6PrefixLength", fmt.Errorf("%d: must be 1 to 128", ip.ipv6))
	}
	for i, cidr := range c.TrustedProxies {
		prefix, err := compilePrefix(fmt.Sprintf("clientIP.xForwardedFor.trustedProxies[%d]", i), cidr)
		if err != nil {
			return nil, err
		}
		ip.trusted = append(ip.trusted, prefix)
	}
	return ip, nil
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// foldPrefix makes a prefix of IPv4-mapped or translated addresses one of IPv4 addresses, as addresses are folded too.
func foldPrefix(p netip.Prefix) netip.Prefix {
	if folded := fold(p.Addr()); folded.Is4() && p.Addr().Is6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(folded, p.Bits()-96)
	}
	return p.Masked()
}

// compilePrefix reads a CIDR.
func compilePrefix(field, cidr string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return prefix, invalid(field, fmt.Errorf("%q: must be a CIDR such as 10.42.7.0/24: %w", cidr, err))
	}
	return foldPrefix(prefix), nil
}

// find gives the client's address, or the zero Addr when it is unknown: no address of the peer, an entry that can't be
// read, or trusted proxies all the way.
func (c *clientIP) find(req *Request) netip.Addr {
	if c == nil {
		return netip.Addr{}
	}
	addr := fold(req.Peer)
	if c.forwarded {
		addr = c.walk(addr, req.Header["X-Forwarded-For"])
	}
	return addr
}

// identity is an address as far as it identifies one client, in text; empty when it is unknown.
func (c *clientIP) identity(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	bits := c.ipv6
	if addr.Is4() {
		bits = c.ipv4
	}
	return netip.PrefixFrom(addr, bits).Masked().String()
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

func (c *clientIP) trusts(addr netip.Addr) bool { return anyContains(c.trusted, addr) }

func anyContains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range prefixes {
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

// nat64 is the prefix of IPv4 addresses behind a translator (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// fold gives one client one address: it drops the zone, and makes an IPv4-mapped or translated address an IPv4 one. Only
// public addresses are translated: by RFC 6052 no other may stand behind the prefix, so one that does is forged.
func fold(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if !nat64.Contains(addr) {
		return addr
	}
	bytes := addr.As16()
	translated := netip.AddrFrom4([4]byte(bytes[12:]))
	if !translated.IsGlobalUnicast() || translated.IsPrivate() {
		return addr
	}
	return translated
}
