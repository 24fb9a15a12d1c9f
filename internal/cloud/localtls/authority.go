package localtls

import (
	"bytes"
	"container/list"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Localhost is a domain whose subdomains need no set-up, if the machine resolves them.
const Localhost = "localhost"

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	keyFile       = "authority.pem"
)

// loopback lists the addresses that an authority may certify.
var loopback = []*net.IPNet{
	{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
	{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
}

// Authority is a certificate authority for the names of one domain, for localhost, and for loopback
// addresses. A critical constraint in the certificate of the authority restricts the authority to
// these names. So a person who steals the key of the authority cannot impersonate other sites. An
// Authority is safe for concurrent use.
type Authority struct {
	domain string
	cert   *x509.Certificate
	key    crypto.Signer

	mu     sync.Mutex
	leaf   crypto.Signer // key of all leaves; never written to a file
	leaves map[string]*list.Element
	recent list.List // of *leaf, most recently used first
}

// New creates an authority that lives as long as this process.
func New(domain string) (*Authority, error) {
	if err := CheckDomain(domain); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	der, err := sign(&x509.Certificate{
		Subject:                     pkix.Name{Organization: []string{organization}, CommonName: organization + ": " + domain},
		NotBefore:                   now.Add(-clockSkew),
		NotAfter:                    now.Add(authorityLife),
		IsCA:                        true,
		BasicConstraintsValid:       true,
		MaxPathLenZero:              true,
		KeyUsage:                    x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         permitted(domain),
		PermittedIPRanges:           loopback,
	}, nil, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return newAuthority(domain, der, key)
}

// Open returns the authority for a domain from dir, a directory that only this user can access.
// If the authority is missing or about to expire, Open creates a new one in dir.
func Open(dir, domain string) (*Authority, error) {
	path := filepath.Join(dir, keyFile)
	a, err := read(path, domain)
	if err == nil && time.Until(a.cert.NotAfter) > leafLife {
		return a, nil
	}
	expiring := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if a, err = New(domain); err != nil {
		return nil, err
	}
	text, err := a.secret()
	if err != nil {
		return nil, err
	}
	err = writeFile(path, text, func(from, to string) error {
		if err := flush(from); err != nil {
			return err
		}
		if expiring {
			return os.Rename(from, to)
		}
		return os.Link(from, to) // fails if another process was faster
	})
	if errors.Is(err, fs.ErrExist) {
		return read(path, domain)
	}
	if err != nil {
		return nil, fmt.Errorf("writing a new certificate authority: %w", err)
	}
	return a, nil
}

// read reads an authority from a file.
func read(path, domain string) (*Authority, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s, the key of a certificate authority, can be read by others: remove it, so that a new one is made", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	a, err := parse(text, domain)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; remove it, so that a new one is made", path, err)
	}
	return a, nil
}

func parse(text []byte, domain string) (*Authority, error) {
	first, rest := pem.Decode(text)
	second, _ := pem.Decode(rest)
	if first == nil || second == nil {
		return nil, errors.New("it does not have a key and a certificate")
	}
	key, err := x509.ParsePKCS8PrivateKey(first.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("its key is a %T", key)
	}
	a, err := newAuthority(domain, second.Bytes, signer)
	if err != nil {
		return nil, err
	}
	if !signer.PublicKey.Equal(a.cert.PublicKey) {
		return nil, errors.New("its key does not belong to its certificate")
	}
	if err := checkConstraints(a.cert, domain); err != nil {
		return nil, err
	}
	return a, nil
}

// CheckAuthority returns an error if text is not a single certificate of a suitable authority. The
// authority must be able to certify only the names of the domain, localhost, and loopback
// addresses. A machine may trust only such an authority.
func CheckAuthority(text []byte, domain string) error {
	if err := CheckDomain(domain); err != nil {
		return err
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 || !bytes.HasPrefix(text, []byte("-----BEGIN")) {
		return errors.New("it is not one certificate and nothing else")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	return checkConstraints(cert, domain)
}

// checkConstraints returns an error if a certificate lacks a restriction. The required
// restrictions are those in the certificates that New creates for the domain.
func checkConstraints(cert *x509.Certificate, domain string) error {
	if !slices.Equal(cert.PermittedDNSDomains, permitted(domain)) {
		return fmt.Errorf("its certificate is not for %s: it may certify %q", domain, cert.PermittedDNSDomains)
	}
	ranges := func(a, b *net.IPNet) bool { return a.String() == b.String() }
	servers := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	switch {
	case !cert.PermittedDNSDomainsCritical:
		return errors.New("the limits of its certificate are not critical, so programs may pass over them")
	case !slices.EqualFunc(cert.PermittedIPRanges, loopback, ranges):
		return errors.New("its certificate may certify other addresses than those of loopback")
	case !cert.BasicConstraintsValid || !cert.IsCA || !cert.MaxPathLenZero || cert.MaxPathLen != 0:
		return errors.New("its certificate may certify other authorities, or is none of an authority")
	case cert.KeyUsage != x509.KeyUsageCertSign || !slices.Equal(cert.ExtKeyUsage, servers) || len(cert.UnknownExtKeyUsage) > 0:
		return errors.New("its certificate may certify others than servers")
	}
	return nil
}

// permitted returns the names that an authority for the domain may certify.
func permitted(domain string) []string {
	if domain == Localhost {
		return []string{Localhost}
	}
	return []string{Localhost, domain}
}

func newAuthority(domain string, der []byte, key crypto.Signer) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	leaf, err := newKey()
	if err != nil {
		return nil, err
	}
	return &Authority{domain: domain, cert: cert, key: key, leaf: leaf, leaves: map[string]*list.Element{}}, nil
}

// PEM returns the certificate of the authority. The certificate is public.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// secret returns the content of the file that Open reads: the key and the certificate.
func (a *Authority) secret() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return slices.Concat(key, a.PEM()), nil
}

// Config returns the configuration of a TLS server that has a certificate for every name of the
// domain.
func (a *Authority) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: a.certificate,
	}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// sign returns a certificate that parent has signed. A nil parent means that the certificate is
// self-signed.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	serial[0] &= 0x7f        // makes the number positive
	template.SerialNumber = new(big.Int).SetBytes(serial)
	if parent == nil {
		parent = template
	}
	return x509.CreateCertificate(rand.Reader, template, parent, public, key)
}

// writeFile writes a file that only this user can read. The file first has a temporary name.
// publish then gives it the name path.
func writeFile(path string, text []byte, publish func(from, to string) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = bytes.NewReader(text).WriteTo(file)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = publish(file.Name(), path)
	}
	if removed := os.Remove(file.Name()); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// flush syncs the content of a file, so that it survives a power failure. This is needed because
// clients trust an authority for years. Files that are written at each start need not be flushed.
func flush(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
