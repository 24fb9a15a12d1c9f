package tlsdoor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Variables that name files with the certificates a program trusts.
const (
	envBundle   = "SSL_CERT_FILE"       // instead of the system's: OpenSSL, Python, Go, Rust, curl
	envRequests = "REQUESTS_CA_BUNDLE"  // instead of those of certifi: Python's requests
	envExtra    = "NODE_EXTRA_CA_CERTS" // beside those built into Node
)

// systemBundles are the files of distributions with the certificates that the system
// trusts.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/pki/tls/certs/ca-bundle.crt",                  // older versions of these
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/ssl/cert.pem",                                 // Alpine, without ca-certificates
}

// Trust are the files that make clients trust an authority.
type Trust struct {
	Authority string // its certificate alone
	Bundle    string // the certificates that this process trusts, and the authority's
	Requests  string // those that Python's requests trusts in this process, and the authority's
	Extra     string // those that Node trusts in this process, and the authority's
}

// Env returns the variables, as "NAME=value", that make programs read the files.
func (t Trust) Env() []string {
	return []string{envBundle + "=" + t.Bundle, envRequests + "=" + t.Requests, envExtra + "=" + t.Extra}
}

// WriteTrust writes the files into dir. Certificates named by the variables of this
// process, such as those of a company's proxy, stay trusted.
func (a *Authority) WriteTrust(dir string) (Trust, error) {
	t := Trust{
		Authority: filepath.Join(dir, "ca.pem"),
		Bundle:    filepath.Join(dir, "bundle.pem"),
		Requests:  filepath.Join(dir, "requests.pem"),
		Extra:     filepath.Join(dir, "extra.pem"),
	}
	trusted := append(named(envBundle, t.Bundle), systemBundles...)
	bundle, err := firstFile(trusted)
	if err != nil {
		return Trust{}, err
	}
	requests, err := firstFile(append(named(envRequests, t.Requests), trusted...))
	if err != nil {
		return Trust{}, err
	}
	extra, err := firstFile(named(envExtra, t.Extra))
	if err != nil {
		return Trust{}, err
	}
	own := a.PEM()
	for path, others := range map[string][]byte{t.Authority: nil, t.Bundle: bundle, t.Requests: requests, t.Extra: extra} {
		if len(others) > 0 && others[len(others)-1] != '\n' {
			others = append(others, '\n')
		}
		if err := writeFile(path, slices.Concat(others, own), os.Rename); err != nil {
			return Trust{}, fmt.Errorf("writing the certificates to trust: %w", err)
		}
	}
	return t, nil
}

// named returns the file that a variable names, unless it is the file that is about to
// be written: that one has the certificates of the last time.
func named(variable, own string) []string {
	if path := os.Getenv(variable); path != "" && path != own {
		return []string{path}
	}
	return nil
}

// firstFile returns the content of the first file that exists, or nil if none does.
func firstFile(paths []string) ([]byte, error) {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	return nil, nil
}
