package sandbox

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/pip"
)

// PackageIndex sets the sources of packages. All addresses are used inside the sandbox. Empty
// fields keep the settings of this machine's pip.
type PackageIndex struct {
	// URL is the index, such as "https://pypi.example/simple". If it is set, Extra and TrustedHosts
	// replace the further indexes and trusted hosts of this machine's settings.
	URL string
	// Extra are further indexes. pip uses the newest version of a package that any of the indexes has.
	Extra []string
	// TrustedHosts are hosts, with or without a port. pip may query them without TLS, and does
	// not check their certificates.
	TrustedHosts []string
	// Proxy is the HTTP proxy that pip uses instead of the sandbox's proxy.
	Proxy string
	// Certificates is a PEM bundle of certificate authorities. pip trusts these authorities instead of
	// its own.
	Certificates []byte
}

// WithPackageIndex sets the index for [Packages]. Addresses with a user or a password are refused
// unless [WithPipCredentials] is also given. pip receives such addresses in its environment. They
// appear in no argument and no log, and are removed from pip's output.
func WithPackageIndex(i PackageIndex) HandleOption {
	i.Extra, i.TrustedHosts, i.Certificates = slices.Clone(i.Extra), slices.Clone(i.TrustedHosts), slices.Clone(i.Certificates)
	return handleOption(func(c *config) error {
		if err := i.check(); err != nil {
			return fmt.Errorf("sandbox: WithPackageIndex: %w", err)
		}
		c.index = &i
		return nil
	})
}

// WithPipCredentials permits [Packages] to send addresses with a user or a password to the sandbox:
// addresses of package indexes from the settings of this machine's pip, and addresses of
// [WithPackageIndex]. Code in the sandbox can read the credentials while pip runs.
func WithPipCredentials() HandleOption {
	return handleOption(func(c *config) error { c.pipCredentials = true; return nil })
}

// addresses returns the fields that must be addresses, by their names in errors. The addresses
// may contain passwords.
func (i *PackageIndex) addresses() map[string]string {
	addresses := map[string]string{}
	for what, address := range map[string]string{"URL": i.URL, "Proxy": i.Proxy} {
		if address != "" {
			addresses[what] = address
		}
	}
	for n, address := range i.Extra {
		addresses[fmt.Sprintf("Extra[%d]", n)] = address
	}
	return addresses
}

func (i *PackageIndex) check() error {
	for what, address := range i.addresses() {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(address, " \t\r\n") {
			return fmt.Errorf("%s is not an http or https address", what)
		}
	}
	for _, host := range i.TrustedHosts {
		if host == "" || strings.ContainsAny(host, " \t\r\n/@") {
			return fmt.Errorf("TrustedHosts: %q is not a host", clip.Text(host, 128))
		}
	}
	if i.Certificates != nil {
		return pip.CheckCertificates(i.Certificates)
	}
	return nil
}

// checkCredentials returns an error for credentials that no option permits.
func (c *sandboxConfig) checkCredentials() error {
	if c.index == nil || c.pipCredentials {
		return nil
	}
	for what, address := range c.index.addresses() {
		if pip.WithoutCredentials(address) == "" {
			return fmt.Errorf("sandbox: WithPackageIndex: %s has a user or a password, which code in the sandbox could read: "+
				"give WithPipCredentials, too, if that may be", what)
		}
	}
	return nil
}

// settings returns the settings of this machine's pip, in which the fields of i replace the
// corresponding settings; i may be nil. If credentials is true, the result also includes this
// machine's addresses with credentials.
func (i *PackageIndex) settings(credentials bool) (pip.Settings, error) {
	s, err := pip.ReadSettings(i == nil || i.Certificates == nil, credentials)
	if err != nil || i == nil {
		return s, err
	}
	if i.URL != "" {
		s.Envs["PIP_INDEX_URL"] = i.URL
		delete(s.Envs, "PIP_EXTRA_INDEX_URL")
		delete(s.Envs, "PIP_TRUSTED_HOST")
	}
	for variable, words := range map[string][]string{"PIP_EXTRA_INDEX_URL": i.Extra, "PIP_TRUSTED_HOST": i.TrustedHosts} {
		if len(words) > 0 {
			s.Envs[variable] = strings.Join(words, " ")
		}
	}
	if i.Proxy != "" {
		s.Envs["PIP_PROXY"] = i.Proxy
	}
	if i.Certificates != nil {
		s.Certificates = i.Certificates
	}
	return s, nil
}
