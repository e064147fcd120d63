package servingcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Keys of the Secret.
const (
	currentCert  = "ca.crt"
	currentKey   = "ca.key"
	previousCert = "previous.crt"
	previousKey  = "previous.key"
)

// backdate lets clocks differ by as much without a certificate being from the future.
const backdate = time.Hour

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// authorities are the CA in use and, until it expires, the one before; nil where there is none.
type authorities struct {
	current, previous *authority
}

func newAuthority(now time.Time, validity time.Duration) (*authority, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "portero-webhook-ca"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA's key: %w", err)
	}
	cert, err := sign(template, template, key, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, nil
}

// leaf signs a serving certificate for the hosts, names or addresses. It ends with its CA at the latest.
func (a *authority) leaf(now time.Time, validity time.Duration, hosts []string) (*tls.Certificate, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "portero-webhook"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              earliest(now.Add(validity), a.cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the serving certificate's key: %w", err)
	}
	cert, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", template.Subject.CommonName, err)
	}
	return cert, nil
}

func serialNumber() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return serial, nil
}

// renewed returns the CAs that should be in use now: a new one where there is none, where it has expired, or where it has
// passed two thirds of its life.
func (s authorities) renewed(now time.Time, validity time.Duration) (authorities, error) {
	if s.previous != nil && !now.Before(s.previous.cert.NotAfter) {
		s.previous = nil
	}
	if s.current != nil && now.Before(renewal(s.current.cert)) {
		return s, nil
	}
	next, err := newAuthority(now, validity)
	if err != nil {
		return authorities{}, err
	}
	s.current, s.previous = next, s.current
	if s.previous != nil && !now.Before(s.previous.cert.NotAfter) {
		s.previous = nil
	}
	return s, nil
}

// bundle is what the API server must trust.
func (s authorities) bundle() []byte {
	var b bytes.Buffer
	for _, a := range s.all() {
		b.Write(certPEM(a.cert))
	}
	return b.Bytes()
}

// all lists the CAs, the newest first.
func (s authorities) all() []*authority {
	var list []*authority
	for _, a := range []*authority{s.current, s.previous} {
		if a != nil {
			list = append(list, a)
		}
	}
	return list
}

func (s authorities) equal(other authorities) bool {
	return bytes.Equal(s.bundle(), other.bundle())
}

// encode writes the CAs as the Secret holds them.
func (s authorities) encode() (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, e := range []struct {
		a         *authority
		cert, key string
	}{{s.current, currentCert, currentKey}, {s.previous, previousCert, previousKey}} {
		if e.a == nil {
			continue
		}
		der, err := x509.MarshalPKCS8PrivateKey(e.a.key)
		if err != nil {
			return nil, fmt.Errorf("encode the CA's key: %w", err)
		}
		data[e.cert] = certPEM(e.a.cert)
		data[e.key] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	return data, nil
}

// decode reads the Secret. A CA that is missing is nil.
func decode(data map[string][]byte) (authorities, error) {
	current, err := decodeAuthority(data[currentCert], data[currentKey])
	if err != nil {
		return authorities{}, fmt.Errorf("keys %s and %s: %w", currentCert, currentKey, err)
	}
	previous, err := decodeAuthority(data[previousCert], data[previousKey])
	if err != nil {
		return authorities{}, fmt.Errorf("keys %s and %s: %w", previousCert, previousKey, err)
	}
	return authorities{current: current, previous: previous}, nil
}

func decodeAuthority(cert, key []byte) (*authority, error) {
	if len(cert) == 0 && len(key) == 0 {
		return nil, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the CA's key is of type %T, not ECDSA", pair.PrivateKey)
	}
	if !pair.Leaf.IsCA {
		return nil, errors.New("the certificate is not a CA's")
	}
	return &authority{cert: pair.Leaf, key: private}, nil
}

// renewal is when two thirds of a certificate's life are over.
func renewal(cert *x509.Certificate) time.Time {
	start := cert.NotBefore.Add(backdate)
	return start.Add(cert.NotAfter.Sub(start) * 2 / 3)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}
