//go:build unix

package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// authorities makes a directory with authorities of two domains.
func authorities(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, domain := range []string{"localhost", "cloud.test"} {
		if err := os.MkdirAll(filepath.Join(dir, domain), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, domain, "ca.pem"), []byte("of "+domain), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTrust(t *testing.T) {
	t.Parallel()
	kept, updated := t.TempDir(), filepath.Join(t.TempDir(), "updated")
	var errors strings.Builder
	opts := &trustOptions{
		IO: &cmdutil.IOStreams{Err: &errors}, Dir: authorities(t),
		Stores: []trustStore{{filepath.Join(t.TempDir(), "absent"), ".crt", []string{"touch"}}, {kept, ".crt", []string{"touch", updated}}},
	}
	files := func() []string {
		found, _ := filepath.Glob(filepath.Join(kept, "e2bctl-*-*.crt"))
		return found
	}
	for range 2 { // again changes nothing
		if err := trustRun(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		if got := files(); len(got) != 2 {
			t.Fatalf("in the store: got %q, want one file for each domain", got)
		}
	}
	text, err := os.ReadFile(files()[1])
	if err != nil || string(text) != "of localhost" {
		t.Errorf("got %q and error %v, want %q", text, err, "of localhost")
	}
	if _, err := os.Stat(updated); err != nil {
		t.Errorf("the system was not told: %v, want the command to run", err)
	}
	opts.Remove, opts.Dir = true, t.TempDir() // the clouds may be gone
	for range 2 {
		if err := trustRun(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		if got := files(); len(got) != 0 {
			t.Errorf("after the removal: got %q, want nothing", got)
		}
	}
	if want := "no longer trusted: none was trusted"; !strings.Contains(errors.String(), want) {
		t.Errorf("got %q, want %q in it", errors.String(), want)
	}
}

func TestTrustThatIsNotPossible(t *testing.T) {
	t.Parallel()
	readOnly := filepath.Join(t.TempDir(), "certificates")
	if err := os.Mkdir(readOnly, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir string
		stores    []trustStore
		want      string
	}{
		{"no authority", t.TempDir(), []trustStore{{readOnly, ".crt", []string{"true"}}}, "e2bctl local up makes it"},
		{"no known store", authorities(t), nil, "not one that e2bctl knows"},
		{"not root", authorities(t), []trustStore{{readOnly, ".crt", []string{"true"}}}, "sudo install -m 644 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "not root" && os.Geteuid() == 0 {
				t.Skip("root may write everywhere")
			}
			err := trustRun(t.Context(), &trustOptions{IO: &cmdutil.IOStreams{Err: os.Stderr}, Dir: tt.dir, Stores: tt.stores})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// TestTrustFindsProgramsOfAdministrators checks that the PATH of an ordinary user is enough.
func TestTrustFindsProgramsOfAdministrators(t *testing.T) {
	if _, err := os.Stat("/usr/sbin/chroot"); err != nil {
		t.Skipf("this machine has no program to find: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if s, err := findStore([]trustStore{{t.TempDir(), ".crt", []string{"chroot"}}}); err != nil {
		t.Errorf("got %+v, %v, want the store of what is in /usr/sbin", s, err)
	}
	if s, err := findStore([]trustStore{{t.TempDir(), ".crt", []string{"no-such-program"}}}); err == nil {
		t.Errorf("got %+v, want an error", s)
	}
}
