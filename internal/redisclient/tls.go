package redisclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// TLS holds PEM material for connections to Redis.
type TLS struct {
	// CA verifies the server; empty: the system's authorities.
	CA []byte
	// Certificate and Key identify the client (mTLS); both or none.
	Certificate, Key []byte
	// ServerName is what the server's certificate must be for; empty: the address that is dialed. Cluster nodes often
	// announce IP addresses that their certificates do not name.
	ServerName string
}

// Config makes the configuration; an error names the part that does not parse.
func (t TLS) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if len(t.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("redis CA: holds no PEM certificate")
		}
	}
	if len(t.Certificate) == 0 && len(t.Key) == 0 {
		return config, nil
	}
	pair, err := tls.X509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, fmt.Errorf("redis client certificate and key: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
