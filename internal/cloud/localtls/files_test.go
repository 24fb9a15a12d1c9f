//go:build linux

package localtls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// pairOf returns the PEM of a new certificate for api.cloud.test, and that of its key.
func pairOf(t *testing.T) (cert, key []byte) {
	t.Helper()
	a, err := New(domain)
	must.Do(t, err)
	made, err := a.issue("api.cloud.test", nil)
	must.Do(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(a.leaf)
	must.Do(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Leaf.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TestFiles checks that the certificate of changed files is used at the next connection, that files
// that do not belong together leave the previous one in use, and that each change is reported once.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert1, key1 := pairOf(t)
	cert2, key2 := pairOf(t)
	put := func(path string, text []byte) {
		t.Helper()
		must.Do(t, os.WriteFile(path+".new", text, 0o600))
		must.Do(t, os.Rename(path+".new", path))
	}
	put(cert, cert1)
	put(key, key1)
	var log bytes.Buffer
	f, err := OpenFiles(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	must.Do(t, err)
	config := f.Config()
	if config.MinVersion != tls.VersionTLS12 || !slices.Equal(config.NextProtos, []string{"h2", "http/1.1"}) {
		t.Errorf("got the version %x and the protocols %q", config.MinVersion, config.NextProtos)
	}
	for _, step := range []struct {
		what   string
		change func()
		want   []byte // certificate in use
		log    string // report; "": none
	}{
		{"unchanged", func() {}, cert1, ""},
		{"a certificate without its key", func() { put(cert, cert2) }, cert1, "level=ERROR"},
		{"reported before", func() {}, cert1, ""},
		{"and its key", func() { put(key, key2) }, cert2, "level=INFO"},
		{"no key", func() { must.Do(t, os.Remove(key)) }, cert2, "level=ERROR"},
		{"still no key", func() {}, cert2, ""},
		{"the first again", func() { put(cert, cert1); put(key, key1) }, cert1, "level=INFO"},
		{"the same, written again", func() { put(key, key1) }, cert1, "level=INFO"},
	} {
		step.change()
		before := f.pair
		log.Reset()
		got, err := config.GetCertificate(nil)
		must.Do(t, err)
		if text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: got.Leaf.Raw}); !bytes.Equal(text, step.want) || !f.NotAfter().Equal(got.Leaf.NotAfter) {
			t.Errorf("%s: got another certificate, valid until %v", step.what, f.NotAfter())
		}
		if text := log.String(); strings.Count(text, "\n") != min(len(step.log), 1) || !strings.Contains(text, step.log) {
			t.Errorf("%s: the log has %q, want %q once", step.what, text, step.log)
		}
		if step.log == "" && got != before {
			t.Errorf("%s: the files were read again", step.what)
		}
	}
}

// TestFilesThatCannotBeUsed checks that a server does not start with files that it cannot use.
func TestFilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	cert1, key1 := pairOf(t)
	_, key2 := pairOf(t)
	for name, text := range map[string][]byte{"cert": cert1, "key": key1, "other": key2, "empty": nil} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	for _, pair := range [][2]string{{"cert", "gone"}, {"gone", "key"}, {"cert", "other"}, {"empty", "key"}, {"key", "cert"}} {
		f, err := OpenFiles(filepath.Join(dir, pair[0]), filepath.Join(dir, pair[1]), slog.New(slog.DiscardHandler))
		if f != nil || err == nil || !strings.HasPrefix(err.Error(), "the files of TLS") {
			t.Errorf("%q: got %v and error %v, want an error about the files", pair, f, err)
		}
	}
}

// TestIsSame checks each property by which a changed file is noticed.
func TestIsSame(t *testing.T) {
	dir := t.TempDir()
	at := time.Now().Add(-time.Hour)
	write := func(name, text string, at time.Time) os.FileInfo {
		t.Helper()
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		must.Do(t, os.Chtimes(path, at, at))
		info, err := os.Stat(path)
		must.Do(t, err)
		return info
	}
	first := write("a", "text", at)
	for what, tt := range map[string]struct {
		a, b os.FileInfo
		want bool
	}{
		"unchanged":        {first, write("a", "text", at), true},
		"another time":     {first, write("a", "text", at.Add(1)), false},
		"another size":     {first, write("a", "texts", at), false},
		"another file":     {first, write("b", "text", at), false},
		"it was not there": {nil, first, false},
		"it is not there":  {first, nil, false},
	} {
		if got := isSame(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: got %v, want %v", what, got, tt.want)
		}
	}
}
