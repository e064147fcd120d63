// Package redirect sends a pod's inbound traffic through the sidecar: nftables rules in the pod's network namespace,
// written through netlink, with no other program and no shell.
//
// The sidecar's redirect command imports it; it runs once, in an init container with uid 0 and NET_ADMIN alone. It
// touches one table of its own and nothing else.
package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/portero-dev/portero/sidecar/internal/environment"
)

// TableName is the name of the table, of family inet, that holds all rules.
const TableName = "portero"

// Options says what to redirect.
type Options struct {
	Ports []environment.Port
	// ProbeSources may reach the shadow ports: the addresses from which kubelet's probes come. Everybody else finds
	// nothing listening there.
	ProbeSources []netip.Addr
}

// Apply replaces the table by rules for the options, in the network namespace of the calling thread. It is one netlink
// batch: another table is never touched, and no packet meets half a table. Applying twice equals applying once.
func Apply(options Options) error {
	conn, err := nftables.New()
	if err != nil {
		return explain(err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: TableName}
	// Deleting a table that does not exist is an error, adding one that exists is not: add, delete, add replaces both.
	conn.AddTable(table)
	conn.DelTable(table)
	conn.AddTable(table)
	chain := conn.AddChain(&nftables.Chain{
		Name:     "prerouting",
		Table:    table,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityNATDest,
	})
	for _, match := range rules(options) {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: match})
	}
	if err := conn.Flush(); err != nil {
		return explain(err)
	}
	return nil
}

func rules(options Options) [][]expr.Any {
	var all [][]expr.Any
	for _, port := range options.Ports {
		all = append(all, append(notLoopback(), redirectTCP(port.App, port.Listen)...))
		for _, source := range options.ProbeSources {
			rule := append(notLoopback(), from(source)...)
			all = append(all, append(rule, redirectTCP(port.Shadow, port.App)...))
		}
	}
	return all
}

// notLoopback leaves the pod's own traffic alone: the sidecar reaches the app, and the app itself, as always.
func notLoopback() []expr.Any {
	lo := make([]byte, unix.IFNAMSIZ)
	copy(lo, "lo")
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: lo},
	}
}

// Offsets of the source address in the network header.
const (
	ipv4Source = 12
	ipv6Source = 8
)

func from(source netip.Addr) []expr.Any {
	source = source.Unmap()
	family, offset := byte(unix.NFPROTO_IPV4), uint32(ipv4Source)
	if source.Is6() {
		family, offset = unix.NFPROTO_IPV6, ipv6Source
	}
	address := source.AsSlice()
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(address))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address},
	}
}

func redirectTCP(dport, target uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(dport)},
		&expr.Counter{},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(target)},
		&expr.Redir{RegisterProtoMin: 1},
	}
}

// explain names what is missing: the kernel's own words ("operation not permitted", "no such file or directory") don't.
func explain(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("program nftables: %w: the container needs uid 0 and the capability NET_ADMIN; "+
			"where Pod Security forbids that, the pod can't use interception Redirect", err)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EOPNOTSUPP),
		errors.Is(err, syscall.EPROTONOSUPPORT), errors.Is(err, syscall.EAFNOSUPPORT):
		return fmt.Errorf("program nftables: %w: the node's kernel lacks nftables with NAT for the inet family "+
			"(Linux 5.2 or newer with nf_tables, nft_chain_nat and nft_redir)", err)
	}
	return fmt.Errorf("program nftables: %w", err)
}
