package redirect_test

import (
	"fmt"

	"github.com/google/nftables"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/portero-dev/portero/sidecar/internal/redirect"
)

func read(net network, f func(*nftables.Conn) error) {
	GinkgoHelper()
	Expect(in(net.pod, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		return f(conn)
	})).To(Succeed())
}

func tables(net network) (names []string) {
	GinkgoHelper()
	families := map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip"}
	read(net, func(conn *nftables.Conn) error {
		all, err := conn.ListTables()
		for _, table := range all {
			names = append(names, families[table.Family]+" "+table.Name)
		}
		return err
	})
	return names
}

func chains(net network) (names []string) {
	GinkgoHelper()
	read(net, func(conn *nftables.Conn) error {
		all, err := conn.ListChains()
		for _, chain := range all {
			names = append(names, chain.Table.Name+"/"+chain.Name)
		}
		return err
	})
	return names
}

func rules(net network) (count int) {
	GinkgoHelper()
	read(net, func(conn *nftables.Conn) error {
		table := &nftables.Table{Family: nftables.TableFamilyINet, Name: redirect.TableName}
		all, err := conn.GetRules(table, &nftables.Chain{Name: "prerouting", Table: table})
		count = len(all)
		return err
	})
	return count
}

// dropCapabilities takes all capabilities from the calling thread, for good.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
