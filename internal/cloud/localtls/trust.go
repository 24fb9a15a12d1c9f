package localtls

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Environment variables that name files. A program trusts the certificates in such a file.
const (
	envBundle   = "SSL_CERT_FILE"       // replaces the system's certificates: OpenSSL, Python, Go, Rust, curl
	envRequests = "REQUESTS_CA_BUNDLE"  // replaces the certificates of certifi: Python's requests
	envExtra    = "NODE_EXTRA_CA_CERTS" // added to the certificates that are built into Node
)

// systemBundles lists files with the certificates that the system trusts. The files of different
// distributions have different paths.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/pki/tls/certs/ca-bundle.crt",                  // older versions of Fedora and RHEL
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/ssl/cert.pem",                                 // Alpine, without ca-certificates
}

// Trust contains the paths of files that make clients trust an authority.
type Trust struct {
	Authority string // only the authority's certificate
	Bundle    string // certificates that this process trusts, and the authority's
	Requests  string // certificates that Python's requests trusts in this process, and the authority's
	Extra     string // extra certificates that Node trusts in this process, and the authority's
}

// Env returns environment variables, as "NAME=value", that make programs read the files of t.
func (t Trust) Env() []string {
	return []string{envBundle + "=" + t.Bundle, envRequests + "=" + t.Requests, envExtra + "=" + t.Extra}
}

// WriteTrust writes the files of a Trust to dir. If environment variables of this process already
// name such files, for example with the certificates of a company's proxy, the new files include
// these certificates, so that clients still trust them.
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

// named returns the path of the file that an environment variable names. It leaves out the path
// own, because that file is about to be written, and contains the certificates of the previous
// start.
func named(variable, own string) []string {
	if path := os.Getenv(variable); path != "" && path != own {
		return []string{path}
	}
	return nil
}

// firstFile returns the content of the first file that exists. It returns nil if no file exists.
func firstFile(paths []string) ([]byte, error) {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	return nil, nil
}
