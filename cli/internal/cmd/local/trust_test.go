//go:build unix

package local

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/localtls"
	"github.com/e2bctl/e2bctl/internal/must"
)

// authorities makes a directory with authorities of two domains.
func authorities(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "[") // no pattern
	for _, domain := range []string{"localhost", "cloud.test"} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, domain), 0o700))
		authority, err := localtls.New(domain)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, domain, "ca.pem"), authority.PEM(), 0o600)
		}
		must.Do(t, err)
	}
	return dir
}

func TestTrust(t *testing.T) {
	t.Parallel()
	kept, updated := filepath.Join(t.TempDir(), "["), filepath.Join(t.TempDir(), "updated")
	must.Do(t, os.Mkdir(kept, 0o700))
	var said strings.Builder
	opts := &trustOptions{
		IO: &cmdutil.IOStreams{Err: &said}, Dir: authorities(t),
		Stores: []trustStore{{filepath.Join(t.TempDir(), "absent"), ".crt", []string{"touch"}}, {kept, ".crt", []string{"touch", updated}}},
	}
	files := func() []string {
		t.Helper()
		names, err := fs.Glob(os.DirFS(kept), "e2bctl-*-*.crt")
		must.Do(t, err)
		for i, name := range names {
			names[i] = filepath.Join(kept, name)
		}
		return names
	}
	for range 2 { // the second time changes nothing
		must.Do(t, trustRun(t.Context(), opts))
		if got := files(); len(got) != 2 {
			t.Fatalf("in the store: got %q, want one file for each domain", got)
		}
	}
	text, err := os.ReadFile(files()[1])
	if want, failed := os.ReadFile(filepath.Join(opts.Dir, "localhost", "ca.pem")); err != nil || failed != nil || string(text) != string(want) {
		t.Errorf("got %q and errors %v, %v, want %q", text, err, failed, want)
	}
	if _, err := os.Stat(updated); err != nil {
		t.Errorf("the system was not told: %v, want the command to run", err)
	}
	var out strings.Builder
	opts.IO.Out, opts.JSON = &out, true
	if err := trustRun(t.Context(), opts); err != nil || !strings.Contains(out.String(), `"trusted": true`) || !strings.Contains(out.String(), `localhost.crt`) {
		t.Errorf("as JSON: got %q and error %v, want the files that are trusted", &out, err)
	}
	opts.JSON = false
	opts.Remove, opts.Dir = true, t.TempDir() // the clouds may no longer exist
	for range 2 {
		must.Do(t, trustRun(t.Context(), opts))
		if got := files(); len(got) != 0 {
			t.Errorf("after the removal: got %q, want nothing", got)
		}
	}
	if want := "no longer trusted: none was trusted"; !strings.Contains(said.String(), want) {
		t.Errorf("got %q, want %q in it", said.String(), want)
	}
}

func TestTrustThatIsNotPossible(t *testing.T) {
	t.Parallel()
	readOnly := filepath.Join(t.TempDir(), "certificates")
	must.Do(t, os.Mkdir(readOnly, 0o500))
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

// An authority that can certify more than its own domain is not added, but the others are.
func TestTrustOfTooMuch(t *testing.T) {
	t.Parallel()
	kept, dir := t.TempDir(), authorities(t)
	for domain, of := range map[string]string{"other.test": "cloud.test", "co.uk": "localhost", "two.test": "two.test"} {
		authority, err := localtls.New(of)
		text := authority.PEM()
		if domain == of {
			text = append(text, text...)
		}
		must.Do(t, errors.Join(err, os.Mkdir(filepath.Join(dir, domain), 0o700), os.WriteFile(filepath.Join(dir, domain, "ca.pem"), text, 0o600)))
	}
	err := trustRun(t.Context(), &trustOptions{IO: &cmdutil.IOStreams{Err: io.Discard}, Dir: dir, Stores: []trustStore{{kept, ".crt", []string{"true"}}}})
	for _, want := range []string{"not for other.test", "co.uk\" is a public suffix", "two.test/ca.pem: it is not one certificate", "e2bctl local up makes another"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(kept, "*")); len(found) != 2 {
		t.Errorf("in the store: got %q, want those of localhost and cloud.test only", found)
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

// TestTrustCommand checks the output of the command in each format, and the error of a store that cannot be written to.
func TestTrustCommand(t *testing.T) {
	home, kept := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	must.Do(t, os.MkdirAll(filepath.Join(home, "e2bctl"), 0o700))
	must.Do(t, os.Rename(authorities(t), filepath.Join(home, "e2bctl", "tls")))
	stores := systemStores
	t.Cleanup(func() { systemStores = stores })
	systemStores = []trustStore{{kept, ".crt", []string{"true"}}}
	first, second := systemStores[0].file("cloud.test"), systemStores[0].file("localhost")
	files := `"files": [` + "\n    \"" + first + "\",\n    \"" + second + "\"\n  ]\n}\n"
	for _, tt := range []struct{ args, out, errs string }{
		{"", "", "trusted: " + first + ", " + second + "\n"},
		{"-q", "", ""},
		{"-o json", "{\n  \"trusted\": true,\n  " + files, ""},
		{"--remove -o json", "{\n  \"trusted\": false,\n  " + files, ""},
		{"--remove -o json", "{\n  \"trusted\": false,\n  \"files\": []\n}\n", ""},
		{"--remove", "", "no longer trusted: none was trusted\n"},
		{"--remove -q", "", ""},
	} {
		var out, errs strings.Builder
		commands := func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{newCmdTrust(f)} }
		must.Do(t, cmdtest.Execute(t, cmdutil.NewIOStreams(nil, &out, &errs), commands, append([]string{"trust"}, strings.Fields(tt.args)...)...))
		if out.String() != tt.out || errs.String() != tt.errs {
			t.Errorf("%q: got %q and %q, want %q and %q", tt.args, &out, &errs, tt.out, tt.errs)
		}
	}
	must.Do(t, os.Mkdir(first, 0o700)) // the file cannot be written
	must.Do(t, os.WriteFile(filepath.Join(first, "x"), nil, 0o600))
	for _, change := range []func(string) ([]string, error){systemStores[0].add, systemStores[0].remove} {
		if _, err := change(filepath.Join(home, "e2bctl", "tls")); err == nil || !strings.Contains(err.Error(), first) {
			t.Errorf("a directory in place of the file: got error %v", err)
		}
	}
	err := systemStores[0].forbidden(fs.ErrPermission, []string{"a", "b"})
	if want := "permission denied; as an administrator, run: a && b && sudo true"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	must.Is(t, systemStores[0].forbidden(errFull, []string{"a"}), errFull)
	for program, want := range map[string]string{"false": "exit status 1", "no-such-program": "no-such-program"} {
		if err := runUpdate(t.Context(), []string{program}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s in it", program, err, want)
		}
	}
	failing := trustOptions{Dir: filepath.Join(home, "e2bctl", "tls"), Stores: []trustStore{{t.TempDir(), ".crt", []string{"false"}}}}
	if err := trustRun(t.Context(), &failing); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("an update that fails: got error %v", err)
	}
}
