package control

import (
	"context"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// egressProxy is the proxy for the outgoing connections of a sandbox. Answers contain neither
// its password nor its certificates.
type egressProxy struct {
	Address  string    `json:"address"`
	Username string    `json:"username,omitempty"`
	Password string    `json:"password,omitempty"`
	TLS      *proxyTLS `json:"tls,omitempty"`

	sealed []byte // Password after sealing
}

type proxyTLS struct {
	Enabled    bool   `json:"enabled"`
	ServerName string `json:"serverName,omitempty"`
	CACert     string `json:"caCert,omitempty"`
}

// asked returns the proxy in the form in which it is recorded. p may be nil.
func (p *egressProxy) asked() *network.EgressProxy {
	if p == nil {
		return nil
	}
	asked := &network.EgressProxy{Address: p.Address, Username: p.Username, Sealed: p.sealed}
	if p.TLS != nil {
		asked.TLS, asked.ServerName, asked.CACert = p.TLS.Enabled, p.TLS.ServerName, p.TLS.CACert
	}
	return asked
}

// proxyAnswer describes a recorded proxy. p may be nil.
func proxyAnswer(p *network.EgressProxy) *egressProxy {
	if p == nil {
		return nil
	}
	answer := &egressProxy{Address: p.Address, Username: p.Username}
	if p.TLS {
		answer.TLS = &proxyTLS{Enabled: true, ServerName: p.ServerName}
	}
	return answer
}

// maxProxyPassword bounds the length of a proxy's password in bytes. SOCKS5 has one byte for this
// length.
const maxProxyPassword = 255

// seal seals the password of a proxy in the same way as a secret. A recorded request has only
// the sealed password. p may be nil. In errors, prefix is the beginning of the field's name.
func (s *Service) seal(p *egressProxy, prefix string) error {
	switch {
	case p == nil || p.Password == "":
		return nil
	case len(p.Password) > maxProxyPassword:
		return invalid("%segressProxy.password has more than %d bytes", prefix, maxProxyPassword)
	}
	sealed, err := s.options.Secrets.Seal(p.Password, p.asked().SealedUnder())
	if err != nil {
		return err
	}
	p.sealed, p.Password = sealed, ""
	return nil
}

// checkProxy returns an error if sandboxes cannot or must not reach the proxy of the rules.
func (s *Service) checkProxy(ctx context.Context, rules *network.Rules) error {
	if s.options.CheckProxy == nil {
		return nil
	}
	if err := s.options.CheckProxy(ctx, rules); err != nil {
		return invalid("egressProxy: %s", reason(err))
	}
	return nil
}
