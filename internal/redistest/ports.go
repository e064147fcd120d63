package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	// Ports are taken from below the range that Linux gives to outgoing connections (32768 and up), else a connection of
	// any process could sit on the port of a node that is stopped for a while.
	firstPort, lastPort = 12000, 32000
	portProbes          = 2000
)

// freePorts finds n ports on which nothing listens. They are picked at random, so that suites that run at the same time
// rarely try the same.
func freePorts(n int) ([]int, error) {
	held := make([]net.Listener, 0, n)
	defer func() {
		for _, listener := range held {
			_ = listener.Close()
		}
	}()
	ports := make([]int, 0, n)
	for range portProbes {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp4", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		held = append(held, listener)
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("found only %d of %d free ports in %d..%d on %s", len(ports), n, firstPort, lastPort, host)
}
