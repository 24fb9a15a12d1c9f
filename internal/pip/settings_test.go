package pip

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
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

// TestMasks checks which parts of addresses are masked in pip's output.
func TestMasks(t *testing.T) {
	t.Parallel()
	s := Settings{Envs: map[string]string{
		"PIP_INDEX_URL": "https://user1:p%40ss@h/simple https://plain/x", "PIP_EXTRA_INDEX_URL": "% https://only-user@h https://ab:c@h", "PIP_PROXY": "http://proxy:word5@h", "PIP_CERT": "https://cert:cert5@h",
	}}
	for text, want := range map[string]string{
		"user1:p%40ss": "****", "user1:p@ss": "****", "p@ss": "****", "only-user": "****", "proxy:word5": "****", "word5": "****",
		"user1": "user1", "ab:c": "****", "c": "c", "cert5": "cert5", "https://plain/x": "https://plain/x",
	} {
		if got := s.Masks().Replace("in " + text + " here"); got != "in "+want+" here" {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for value, want := range map[string]string{"": "", " https://h/a  https://u@h ": "https://h/a", "https://:p@h": "", "h": "h", "https://h%zz x": "x"} {
		if got := WithoutCredentials(value); got != want {
			t.Errorf("%q without credentials: got %q, want %q", value, got, want)
		}
	}
}

// TestCertificates checks which files are sent as certificates, by their sizes and contents.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for beyond, fits := range map[int]bool{0: true, 1: false} {
		content := append([]byte(certificate), make([]byte, maxCertificates-len(certificate)+beyond)...)
		if err := CheckCertificates(content); (err == nil) != fits {
			t.Errorf("%d bytes beyond the bound: got error %v, want it to fit: %v", beyond, err, fits)
		}
		path := filepath.Join(t.TempDir(), "bundle.pem")
		must.Do(t, os.WriteFile(path, content, 0o600))
		if got, err := readCertificates(path); (err == nil) != fits || fits && len(got) != len(content) {
			t.Errorf("a file of %d bytes beyond the bound: got %d bytes and error %v, want it to fit: %v", beyond, len(got), err, fits)
		}
	}
	for name, content := range map[string]string{"nothing": "", "a key": "-----BEGIN PRIVATE KEY-----"} {
		if err := CheckCertificates([]byte(content)); err == nil || !strings.Contains(err.Error(), "no certificate in the form PEM") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// TestEnvironmentOfPip checks all variables of a run of pip, and that the settings stay as they are.
func TestEnvironmentOfPip(t *testing.T) {
	t.Parallel()
	s := Settings{Envs: map[string]string{"PIP_RETRIES": "3", "PIP_NO_INPUT": "0"}}
	want := map[string]string{
		"PIP_RETRIES": "3", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_PROGRESS_BAR": "off",
	}
	if diff := cmp.Diff(want, s.Environment("/c")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want["PIP_CERT"] = "/c"
	s.Certificates = []byte{}
	if diff := cmp.Diff(want, s.Environment("/c")); diff != "" || len(s.Envs) != 2 {
		t.Errorf("with certificates: %d settings (-want +got):\n%s", len(s.Envs), diff)
	}
}

// TestSettingsFiles checks which files are read, in which order, and the error of a broken one.
func TestSettingsFiles(t *testing.T) {
	pipFile(t, "[global]\nretries = 1\ntimeout = 2\ndefault-timeout = 3\n[install]\nretries = 4\n")
	home, config := os.Getenv("HOME"), os.Getenv("XDG_CONFIG_HOME")
	if runtime.GOOS != "linux" {
		t.Skip("the paths are those of Linux")
	}
	named := os.Getenv("PIP_CONFIG_FILE")
	all := []string{"/etc/xdg/pip/pip.conf", "/etc/pip.conf", home + "/.pip/pip.conf", config + "/pip/pip.conf"}
	for variable, want := range map[string][]string{named: append(slices.Clone(all), named), "": all, os.DevNull: nil} {
		t.Setenv("PIP_CONFIG_FILE", variable)
		if diff := cmp.Diff(want, configurationFiles()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", variable, diff)
		}
	}
	must.Do(t, os.Mkdir(home+"/.pip", 0o700))
	must.Do(t, os.WriteFile(home+"/.pip/pip.conf", []byte("[global]\nretries = 9\nindex-url = https://a\ncert = /none\n[install]\nretries = 8\n"), 0o600))
	t.Setenv("PIP_CONFIG_FILE", named)
	got, err := ReadSettings(false, false)
	must.Do(t, err)
	if diff := cmp.Diff(Settings{Envs: map[string]string{"PIP_RETRIES": "4", "PIP_DEFAULT_TIMEOUT": "3", "PIP_INDEX_URL": "https://a"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	t.Setenv("PIP_RETRIES", "")
	if got, err := ReadSettings(false, false); err != nil || got.Envs["PIP_RETRIES"] != "" {
		t.Errorf("a variable that is set to nothing: got %v and error %v", got.Envs, err)
	}
	must.Do(t, os.WriteFile(named, []byte("[global\n"), 0o600))
	if got, err := ReadSettings(false, false); err == nil || !strings.Contains(err.Error(), "read pip's settings in "+named) {
		t.Errorf("a broken file: got %+v and error %v", got, err)
	}
}
