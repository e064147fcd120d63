package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are those of a TLS cluster: an authority of its own, and one leaf that nodes and clients share. The nodes
// ask clients for a certificate (mTLS).
type Certificates struct {
	// CA, Certificate and Key are PEM.
	CA, Certificate, Key []byte

	dir       string
	authority *x509.Certificate
	signer    *ecdsa.PrivateKey
}

func newCertificates(dir string) (*Certificates, error) {
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	certificates := &Certificates{
		CA:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		dir: dir, authority: ca, signer: caKey,
	}
	if certificates.Certificate, certificates.Key, err = certificates.Issue(); err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		"ca.pem": certificates.CA, "tls.pem": certificates.Certificate, "tls.key": certificates.Key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return certificates, nil
}

// Issue makes one more leaf, such as a client's next one, and its key, both PEM.
func (c *Certificates) Issue() (certificate, key []byte, err error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64)) //nolint:mnd // bits
	if err != nil {
		return nil, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: c.authority.NotBefore, NotAfter: c.authority.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.ParseIP(host)},
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, c.authority, leafKey.Public(), c.signer)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// ClientConfig is how a client connects to the nodes.
func (c *Certificates) ClientConfig() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA)
	leaf, err := tls.X509KeyPair(c.Certificate, c.Key)
	if err != nil {
		panic(fmt.Sprintf("the key pair made by newCertificates must parse: %v", err))
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{leaf}}
}

// serverConfig are the lines of redis.conf that turn the node's port into a TLS port.
func (c *Certificates) serverConfig(port int) []string {
	return []string{
		"port 0",
		fmt.Sprintf("tls-port %d", port),
		"tls-ca-cert-file " + filepath.Join(c.dir, "ca.pem"),
		"tls-cert-file " + filepath.Join(c.dir, "tls.pem"),
		"tls-key-file " + filepath.Join(c.dir, "tls.key"),
		"tls-auth-clients yes",
		"tls-cluster yes",
		"tls-replication yes",
	}
}
