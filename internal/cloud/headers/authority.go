package headers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 30 * 24 * time.Hour // lifetime of a leaf, the certificate of one host; a leaf is used for half of this time
	clockSkew     = time.Hour           // how far the clocks of clients, such as virtual machines, may be behind
	maxLeaves     = 256                 // maximum number of leaves that are kept; creating a leaf takes 0.1 ms

	organization = "e2bctl sandbox"
)

// Authority is the certificate authority of one sandbox. Its key exists only in the memory of
// this process. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // key of all leaves

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// NewAuthority creates the authority of a sandbox.
func NewAuthority(sandbox string) (*Authority, error) {
	a := &Authority{leaves: map[string]*tls.Certificate{}}
	for _, key := range []**ecdsa.PrivateKey{&a.key, &a.leaf} {
		var err error
		if *key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{organization}, CommonName: organization + " " + sandbox},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	var err error
	a.cert, err = a.sign(template, template, a.key)
	return a, err
}

// PEM returns the certificate of the authority. The certificate is not secret.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// sign returns a certificate for a key, signed by parent.
func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	serial[0] &= 0x7f        // makes the number positive
	template.SerialNumber = new(big.Int).SetBytes(serial)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// certificate returns the certificate for one host.
func (a *Authority) certificate(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found := a.leaves[host]; found != nil && time.Until(found.Leaf.NotAfter) > leafLife/2 {
		return found, nil
	}
	now := time.Now()
	leaf, err := a.sign(&x509.Certificate{
		Subject:               pkix.Name{Organization: []string{organization}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(leafLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{host},
	}, a.cert, a.leaf)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves { // a pattern can match any number of hosts
		clear(a.leaves)
	}
	made := &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: a.leaf, Leaf: leaf}
	a.leaves[host] = made
	return made, nil
}
