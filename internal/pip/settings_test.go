package pip

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

const certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"

// pipFile makes a file with this content pip's only settings file.
func pipFile(t *testing.T, content string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pip.conf")
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	for name := range settingNames { // so that this machine's own settings have no effect
		t.Setenv(name, "")
		must.Do(t, os.Unsetenv(name))
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("PIP_CONFIG_FILE", path)
}

func TestPipSettings(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	must.Do(t, os.WriteFile(bundle, []byte(certificate), 0o600))
	pipFile(t, `# comment
[global]
index-url = https://mirror.example/simple
timeout = 7
cert = `+bundle+`
[install]
extra-index-url =
    https://one.example/simple
    https://me:secret@two.example/simple
trusted-host: mirror.example
[freeze]
timeout = 99
`)
	t.Setenv("PIP_RETRIES", "2")
	t.Setenv("PIP_DEFAULT_TIMEOUT", "30") // the environment takes precedence
	want := map[string]string{
		"PIP_INDEX_URL":       "https://mirror.example/simple",
		"PIP_EXTRA_INDEX_URL": "https://one.example/simple",
		"PIP_TRUSTED_HOST":    "mirror.example",
		"PIP_DEFAULT_TIMEOUT": "30",
		"PIP_RETRIES":         "2",
	}
	got, err := ReadSettings(true, false)
	must.Do(t, err)
	if diff := cmp.Diff(want, got.Envs); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if string(got.Certificates) != certificate {
		t.Errorf("got the certificates %q, want %q", got.Certificates, certificate)
	}
	if envs := got.Environment("/tmp/c.pem"); envs["PIP_CERT"] != "/tmp/c.pem" || envs["PIP_NO_INPUT"] != "1" {
		t.Errorf("got %v, want PIP_CERT=%s and PIP_NO_INPUT=%s", envs, "/tmp/c.pem", "1")
	}

	got, err = ReadSettings(true, true)
	must.Do(t, err)
	if urls, want := got.Envs["PIP_EXTRA_INDEX_URL"], "https://one.example/simple https://me:secret@two.example/simple"; urls != want {
		t.Errorf("asked for credentials: %q, want %q", urls, want)
	}
}

func TestPipSettingsRefuseABadBundle(t *testing.T) {
	pipFile(t, "")
	key := filepath.Join(t.TempDir(), "key.pem")
	must.Do(t, os.WriteFile(key, []byte("-----BEGIN PRIVATE KEY-----\n"), 0o600))
	for name, path := range map[string]string{"missing": "/nonexistent", "directory": t.TempDir(), "not certificates": key} {
		t.Setenv("PIP_CERT", path)
		if _, err := ReadSettings(true, false); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzWithoutCredentials(f *testing.F) {
	f.Add("https://u:p@h/ https://h2")
	f.Add("//u@h")
	f.Fuzz(func(t *testing.T, value string) {
		if kept := WithoutCredentials(value); WithoutCredentials(kept) != kept {
			t.Errorf("%q keeps what it drops the second time: %q", value, kept)
		}
	})
}
