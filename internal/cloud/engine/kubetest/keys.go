//go:build linux

package kubetest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// authority signs the certificates of one cluster.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority() (*authority, error) {
	a := &authority{}
	var err error
	a.certificate, a.key, err = a.sign(x509.Certificate{
		Subject: pkix.Name{CommonName: "kubetest"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a, err
}

// sign creates a key and its certificate. The first call creates the authority's own key and
// certificate.
func (a *authority) sign(c x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, err
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = &c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

// files maps the name of each configuration file of a cluster to its content.
type files map[string][]byte

// addPair adds a certificate and its key, as NAME.crt and NAME.key.
func (f files) addPair(a *authority, name string, c x509.Certificate) error {
	c.KeyUsage = x509.KeyUsageDigitalSignature
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	certificate, key, err := a.sign(c)
	if err != nil {
		return err
	}
	f[name+".crt"] = pemOf(certificate)
	return f.addKey(name, key)
}

func (f files) addKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	f[name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return nil
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// user is a user of the API server, with a token.
type user struct{ file, name, group, token string }

// users returns the users of a cluster with new tokens. The first user has all permissions.
func users() []user {
	all := []user{
		{file: "admin", name: "admin", group: "system:masters"},
		{file: controllerManager, name: "system:" + controllerManager},
		{file: scheduler, name: "system:" + scheduler},
		{file: kubelet, name: "system:node:" + nodeName, group: "system:nodes"},
		{file: sandboxController, name: sandboxController, group: "system:masters"},
	}
	for i := range all {
		all[i].token = rand.Text()
	}
	return all
}

// kubeconfig returns the kubeconfig of a client. The text is JSON, which every YAML parser accepts.
func kubeconfig(url string, ca []byte, u user, namespace string) []byte {
	type object = map[string]any
	data, _ := json.MarshalIndent(object{ // maps of strings cannot fail
		"apiVersion": "v1", "kind": "Config", "current-context": "kubetest",
		"clusters": []object{{"name": "kubetest", "cluster": object{"server": url, "certificate-authority-data": ca}}},
		"users":    []object{{"name": u.name, "user": object{"token": u.token}}},
		"contexts": []object{{"name": "kubetest", "context": object{"cluster": "kubetest", "user": u.name, "namespace": namespace}}},
	}, "", "  ")
	return data
}

// addSecrets adds the certificates, keys, tokens and kubeconfigs of all programs.
func (f files) addSecrets(a *authority, all []user) error {
	f["ca.crt"] = pemOf(a.certificate)
	err := f.addPair(a, "server", x509.Certificate{
		Subject:     pkix.Name{CommonName: apiServer},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(NodeAddress), net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return err
	}
	// The kubelet asks for a certificate of the API server.
	err = f.addPair(a, "kubelet-client", x509.Certificate{Subject: pkix.Name{CommonName: apiServer, Organization: []string{"system:masters"}}})
	if err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := f.addKey("accounts", accounts); err != nil {
		return err
	}
	var tokens bytes.Buffer
	for _, u := range all {
		fmt.Fprintf(&tokens, "%s\n", strings.TrimSuffix(fmt.Sprintf("%s,%s,%s,%s", u.token, u.name, u.name, u.group), ","))
		f[u.file+".kubeconfig"] = kubeconfig(inside, f["ca.crt"], u, "default")
	}
	f["tokens.csv"] = tokens.Bytes()
	return nil
}
