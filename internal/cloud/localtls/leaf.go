package localtls

import (
	"container/list"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strings"
	"time"
)

const (
	organization = "e2bctl local cloud"
	clockSkew    = time.Hour           // how far the clocks of clients, such as virtual machines, may be behind
	leafLife     = 90 * 24 * time.Hour // lifetime of a leaf; a leaf is used for two thirds of this time
	// maxLeaves bounds the number of leaves that are kept. The number of leaves is the number of
	// sandboxes times the number of ports in use. Creating a leaf takes 0.1 ms.
	maxLeaves = 1024
)

// leaf is an issued certificate.
type leaf struct {
	name string
	cert *tls.Certificate
}

// certificate returns the certificate for the name that a client requests. If the client requests
// no name, or a name that the authority does not serve, it receives a certificate for localhost,
// the domain and, if the connection has a loopback address, this address. If the client then refuses
// the certificate, the client's error contains both the requested name and a name of the certificate.
func (a *Authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	var address net.IP
	if !a.serves(name) {
		if tcp, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
			address = tcp.IP
		}
		name = address.String()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if place, ok := a.leaves[name]; ok {
		found := place.Value.(*leaf)
		if time.Until(found.cert.Leaf.NotAfter) > leafLife/3 {
			a.recent.MoveToFront(place)
			return found.cert, nil
		}
		a.drop(place)
	}
	cert, err := a.issue(name, address)
	if err != nil {
		return nil, err
	}
	if a.recent.Len() >= maxLeaves {
		a.drop(a.recent.Back())
	}
	a.leaves[name] = a.recent.PushFront(&leaf{name, cert})
	return cert, nil
}

// drop removes a leaf from the cache. The caller holds the mutex.
func (a *Authority) drop(place *list.Element) {
	delete(a.leaves, place.Value.(*leaf).name)
	a.recent.Remove(place)
}

// serves reports whether a name is the domain or localhost, or has one label before either of
// these, such as api.DOMAIN or PORT-ID.DOMAIN. The router decides which of these names exist.
func (a *Authority) serves(name string) bool {
	if name == Localhost || name == a.domain {
		return true
	}
	label, rest, _ := strings.Cut(name, ".")
	return (rest == Localhost || rest == a.domain) && isLabel(label)
}

// issue creates the certificate for a name. If the authority does not serve the name, issue creates
// a certificate for localhost and the domain. If address is not nil, the certificate is also for
// this address.
func (a *Authority) issue(name string, address net.IP) (*tls.Certificate, error) {
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{organization}},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(leafLife - clockSkew),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{name},
	}
	if !a.serves(name) {
		template.DNSNames = []string{Localhost}
		if a.domain != Localhost {
			template.DNSNames = append(template.DNSNames, a.domain)
		}
	}
	if address != nil {
		template.IPAddresses = []net.IP{address}
	}
	der, err := sign(template, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: parsed}, nil
}
