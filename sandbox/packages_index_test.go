package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pip"
)

// TestPackageIndexOverPipSettings checks that settings of the program replace those of
// this machine's pip. If the program sets the URL of the index, pip's own indexes are not used.
func TestPackageIndexOverPipSettings(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "pip.conf")
	content := []byte("[global]\nindex-url = https://mirror.example/simple\nextra-index-url = https://one.example/simple\ntrusted-host = mirror.example\ntimeout = 7\ncert = /nonexistent\n")
	must.Do(t, os.WriteFile(settings, content, 0o600))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("PIP_CONFIG_FILE", settings)
	const certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
	for _, c := range []struct {
		index PackageIndex
		want  map[string]string
	}{
		{
			PackageIndex{URL: "https://own.example/simple", Proxy: "http://proxy.example:8080"},
			map[string]string{"PIP_INDEX_URL": "https://own.example/simple", "PIP_PROXY": "http://proxy.example:8080", "PIP_DEFAULT_TIMEOUT": "7"},
		},
		{
			PackageIndex{Extra: []string{"https://a.example", "https://b.example"}},
			map[string]string{
				"PIP_INDEX_URL": "https://mirror.example/simple", "PIP_EXTRA_INDEX_URL": "https://a.example https://b.example",
				"PIP_TRUSTED_HOST": "mirror.example", "PIP_DEFAULT_TIMEOUT": "7",
			},
		},
	} {
		c.index.Certificates = []byte(certificate)
		got, err := c.index.settings(false)
		must.Do(t, err)
		if diff := cmp.Diff(c.want, got.Envs); diff != "" || string(got.Certificates) != certificate {
			t.Errorf("%+v (-want +got):\n%s", c.index, diff)
		}
	}
}

// TestPackageIndexIsCopied checks that an option keeps the lists as they were when it was made.
func TestPackageIndexIsCopied(t *testing.T) {
	t.Parallel()
	i := PackageIndex{Extra: []string{"https://a"}, TrustedHosts: []string{"a"}, Certificates: []byte("-----BEGIN CERTIFICATE-----")}
	option := WithPackageIndex(i)
	i.Extra[0], i.TrustedHosts[0], i.Certificates[0] = "changed", "changed", 'x'
	want := PackageIndex{Extra: []string{"https://a"}, TrustedHosts: []string{"a"}, Certificates: []byte("-----BEGIN CERTIFICATE-----")}
	if diff := cmp.Diff(&want, newService(t).sandbox(option.(CreateOption)).Packages.index); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPackageIndexRefused(t *testing.T) {
	t.Parallel()
	const password = "s3cr3t"
	for want, i := range map[string]PackageIndex{
		"URL is not":                     {URL: "ftp://" + password + "@h"},
		"Proxy is not":                   {Proxy: "proxy:8080"},
		"Extra[1] is not":                {Extra: []string{"https://h", "https://h https://" + password + "@h"}},
		"TrustedHosts":                   {TrustedHosts: []string{"a b"}},
		"no certificate":                 {Certificates: []byte("-----BEGIN PRIVATE KEY-----")},
		"Extra[0] has a user":            {Extra: []string{"https://" + password + "@h"}},
		"Proxy has a user or a password": {Proxy: "http://me:" + password + "@h"},
	} {
		_, err := newConfig(sandboxConfig{}, []CreateOption{WithPackageIndex(i)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), password) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := newConfig(sandboxConfig{}, []CreateOption{WithPackageIndex(PackageIndex{URL: "https://me:x@h"}), WithPipCredentials()}); err != nil {
		t.Errorf("credentials that were asked for: %v", err)
	}
}

// pip's output is returned without its secrets.
func TestInstallErrorHidesCredentials(t *testing.T) {
	t.Parallel()
	s := pip.Settings{Envs: map[string]string{"PIP_INDEX_URL": "https://me:p%40ssword@h/simple", "PIP_PROXY": "http://token1234@proxy"}}
	result := &CommandResult{ExitCode: 1, Stderr: "cannot reach token1234@proxy\nERROR: https://me:p%40ssword@h/simple p@ssword me:p@ssword\n"}
	log := "Could not fetch URL https://h/simple/a/: 404 Client Error: Not Found - skipping\nCould not fetch URL https://h/simple/b/: p@ssword was refused - skipping\n"
	e := newInstallError([]string{"b"}, result, log, s.Masks(), false)
	text := e.Error() + e.Stderr
	for _, secret := range []string{"p%40ssword", "p@ssword", "token1234"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %q", secret, text)
		}
	}
	if !e.Unreachable || !errors.Is(e, api.ErrRetryable) || !strings.Contains(e.Error(), "could not be asked: **** was refused") {
		t.Errorf("%v", e)
	}
	for log, retryable := range map[string]bool{
		"Could not fetch URL x: 404 Client Error - skipping":                                            false,
		"Could not fetch URL x: 403 Client Error - skipping":                                            false,
		"Could not fetch URL x: There was a problem confirming the ssl certificate: expired - skipping": false,
		"Could not fetch URL x: 503 Server Error - skipping":                                            true,
		"Could not fetch URL x: connection error: refused - skipping":                                   true,
	} {
		if e := newInstallError(nil, result, log, s.Masks(), false); errors.Is(e, api.ErrRetryable) != retryable {
			t.Errorf("%s: %v", log, e)
		}
		if e := newInstallError(nil, result, log, s.Masks(), true); errors.Is(e, api.ErrRetryable) {
			t.Errorf("%s, offline: %v", log, e)
		}
	}
}
