package cloud

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
)

// Service configures a cloud that serves other machines. All its clients are one team: with any
// key, a client can use and end every sandbox. A client needs a key, or a token of a sandbox.
// Sandboxes are isolated fully and have an access token. They reach neither private networks nor
// directories of this machine. No request can change these rules.
type Service struct {
	// CertFile and KeyFile are the PEM files of the certificate for TLS. They are read again when
	// they change. If a proxy in front of the cloud terminates TLS, both are "", and BehindProxy must
	// be set.
	CertFile, KeyFile string
	BehindProxy       bool
	KeyFiles          []string // files with API keys; a file is read again when it changes
	Hosts             []string // host names besides localhost, Options.Domain and the names below Options.Domain
	// PublicCode lets everybody who knows the id of a sandbox run code in this sandbox. It is for
	// clients that send no token to the ports that run code.
	PublicCode bool
	// MetricsAddress is the host:port of /readyz and /metrics. "" means that they are not served.
	MetricsAddress string
}

// Check returns an error if a service cannot be started with these settings, and with this
// isolation. The error contains the remedy.
func (s *Service) Check(isolation engine.Isolation) error {
	switch {
	case s.CertFile == "" && s.KeyFile == "" && !s.BehindProxy:
		return errors.New("a server needs TLS: give the files of a certificate and its key (--tls-cert, --tls-key), or --behind-proxy if a proxy in front of it ends TLS")
	case s.BehindProxy && (s.CertFile != "" || s.KeyFile != ""):
		return errors.New("either the server or the proxy ends TLS: leave out --behind-proxy, or --tls-cert and --tls-key")
	case (s.CertFile == "") != (s.KeyFile == ""):
		return errors.New("TLS needs two files: give both --tls-cert and --tls-key")
	case len(s.KeyFiles) == 0:
		return errors.New("a server needs API keys: give a file with one in each line (--keys-file)")
	case isolation != engine.Auto && isolation != engine.Full:
		return fmt.Errorf("isolation %s is too weak for a server: leave out --isolation, which then is full", isolation)
	}
	for _, host := range s.Hosts {
		if err := localtls.CheckHost(host); err != nil {
			return err
		}
	}
	return nil
}

// completeService checks the options of a service, and sets the options that a service requires.
func (o *Options) completeService() error {
	if o.Service == nil {
		return nil
	}
	if err := o.Service.Check(o.Isolation); err != nil {
		return err
	}
	if len(o.Mounts) > 0 || len(o.AllowMounts) > 0 {
		return errors.New("a server shows no directories of its machine: leave out the mounts, and use volumes")
	}
	o.Isolation = engine.Full
	o.Policy.DenyPrivate, o.Policy.NeverPrivate, o.ProxyNames = true, true, false
	return nil
}

// checkEngine returns an error if a service must not use an engine. s may be nil.
func (s *Service) checkEngine(report engine.Report) error {
	if s == nil || report.Isolation == engine.Full {
		return nil
	}
	return fmt.Errorf("a server takes only engines that isolate sandboxes fully, and %s has isolation %s: %s", report.Engine, report.Isolation, cmp.Or(report.IsolationNote, "choose another with --engine"))
}

// guardsCode reports whether the ports that run code require a token. s may be nil.
func (s *Service) guardsCode() bool { return s != nil && !s.PublicCode }

// behindProxy reports whether a proxy terminates TLS. s may be nil.
func (s *Service) behindProxy() bool { return s != nil && s.BehindProxy }

// hosts returns the additional hosts of the API, in the form that the router needs. s may be nil.
func (s *Service) hosts() []string {
	if s == nil {
		return nil
	}
	return s.Hosts
}

// hidesPort reports whether clients reach the domain at the default port of https. URLs of the
// domain then need no port. s may be nil.
func (s *Service) hidesPort(domain string, at net.Addr) bool {
	switch {
	case s == nil:
		return false
	case s.BehindProxy:
		return domain != localtls.Localhost
	}
	return at.(*net.TCPAddr).Port == portHTTPS
}

const portHTTPS = 443

// openService opens the files of a service: the API keys and, if no proxy terminates TLS, the
// certificate.
func (s *starting) openService(context.Context) (err error) {
	o := s.options.Service
	if o == nil {
		return nil
	}
	if s.keyFiles, err = control.OpenKeyFiles(o.KeyFiles, s.options.Logger); err != nil || o.BehindProxy {
		return err
	}
	if s.tlsFiles, err = localtls.OpenFiles(o.CertFile, o.KeyFile, s.options.Logger); err != nil {
		return err
	}
	s.config = s.tlsFiles.Config()
	return nil
}

// listen listens on the address of a service. It accepts only https, or only http behind a proxy.
func (s *Service) listen(ctx context.Context, o Options, limit int, config *tls.Config) (net.Listener, *connlimit.Listener, error) {
	inner, err := listenTCP(ctx, cmp.Or(o.Address, "127.0.0.1:0"))
	if err != nil {
		return nil, nil, err
	}
	listener := limited(inner, limit, o)
	if s.BehindProxy {
		return listener, listener, nil
	}
	return tls.NewListener(listener, config), listener, nil
}
