package doctor

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// parserScript plays apparmor_parser. It keeps the loaded profile in the file loaded beside it. The files
// old and broken beside it make it refuse the rules of a profile, and the loading of one. A profile without namespaces is
// refused, too.
const parserScript = `#!/bin/sh
cd "$(dirname "$0")"
case "$1" in
--skip-kernel-load) [ ! -e old ] && grep -q userns "$4" || { echo syntax error; exit 1; } ;;
--replace) [ ! -e broken ] || { echo no policy; exit 1; }; cp "$2" loaded ;;
--remove) rm loaded ;;
esac
`

// newMender returns the mender of a machine whose AppArmor refuses namespaces. The machine's files are
// below a directory of the test.
func newMender(t *testing.T, program string) *mender {
	t.Helper()
	m := &mender{root: t.TempDir(), owner: os.Getuid(), admin: true, program: program}
	m.parser = m.at("/sbin/apparmor_parser")
	for path, content := range map[string]string{restriction: "1\n", appArmor + "/profiles": "", "/sbin/apparmor_parser": parserScript, "/etc/apparmor.d/other": "", "/usr/local/bin/other": "", program: "program"} {
		m.put(t, path, content)
	}
	m.try = func(_ context.Context, path string) error {
		loaded, err := os.ReadFile(m.at("/sbin/loaded"))
		if err != nil || !strings.Contains(string(loaded), " "+strings.TrimPrefix(path, m.root)+" flags=") {
			return errors.New("clone: permission denied")
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "program" {
			return errors.Join(errors.New("it is not the program"), err)
		}
		return nil
	}
	m.ask = func(context.Context, string) error { return nil }
	return m
}

// put writes a file of the machine.
func (m *mender) put(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(m.at(path)), 0o755))
	must.Do(t, os.WriteFile(m.at(path), []byte(content), 0o755))
}

// files returns the contents of all files of the machine.
func (m *mender) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	must.Do(t, filepath.WalkDir(m.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, m.root)] = string(text)
		return err
	}))
	return all
}

// TestMend checks which files a program gets that AppArmor refuses namespaces.
func TestMend(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		program string
		prepare func(t *testing.T, m *mender)
		want    string   // the program with the profile
		added   []string // files
	}{
		"that root owns":       {"/opt/e2bctl", nil, "/opt/e2bctl", []string{"/etc/apparmor.d/opt.e2bctl", "/sbin/loaded"}},
		"of the packages":      {packagedProgram, nil, packagedProgram, []string{"/etc/apparmor.d/e2bctl", "/sbin/loaded"}},
		"with an unusual path": {"/opt/a b/e2bctl", nil, copyPath, []string{"/etc/apparmor.d/usr.local.bin.e2bctl", "/sbin/loaded", copyPath}},
		"that others write to": {"/home/me/e2bctl", func(t *testing.T, m *mender) {
			must.Do(t, os.Chmod(m.at("/home/me"), 0o777))
		}, copyPath, []string{"/etc/apparmor.d/usr.local.bin.e2bctl", "/sbin/loaded", copyPath}},
		"that is copied already": {"/home/me/e2bctl", func(t *testing.T, m *mender) {
			must.Do(t, os.Chmod(m.at("/home/me/e2bctl"), 0o757))
			m.put(t, copyPath, "program")
		}, copyPath, []string{"/etc/apparmor.d/usr.local.bin.e2bctl", "/sbin/loaded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMender(t, tt.program)
			if tt.prepare != nil {
				tt.prepare(t, m)
			}
			before := m.files(t)
			var asked []string
			m.ask = func(_ context.Context, question string) error { asked = append(asked, question); return nil }
			view, err := m.mend(t.Context())
			want, failed := profileOf(tt.want)
			must.Do(t, errors.Join(err, failed))
			question := "Allow user namespaces to " + tt.want
			if slices.Contains(tt.added, copyPath) {
				question = "Copy " + tt.program + " to " + copyPath + ", and allow user namespaces to the copy"
			}
			if question += " by the AppArmor profile " + want.path() + "?"; !slices.Equal(asked, []string{question}) {
				t.Errorf("asked %q, want %q", asked, question)
			}
			if view != (fixView{Changed: true, Program: tt.want, Profile: want.path()}) {
				t.Errorf("got %+v", view)
			}
			after := m.files(t)
			if after[want.path()] != want.Text || after["/sbin/loaded"] != want.Text {
				t.Errorf("got the profile %q, want %q", after[want.path()], want.Text)
			}
			maps.DeleteFunc(after, func(path, _ string) bool { _, found := before[path]; return found })
			if added := slices.Sorted(maps.Keys(after)); !slices.Equal(added, tt.added) {
				t.Errorf("added %q, want %q", added, tt.added)
			}
			if info, err := os.Stat(m.at(tt.want)); err != nil || info.Mode().Perm()&0o111 == 0 {
				t.Errorf("the program is %v, %v", info, err)
			}
			if view, err = m.mend(t.Context()); err != nil || view != (fixView{Program: m.program}) && tt.want == m.program {
				t.Errorf("again: got %+v, %v, want no change", view, err)
			}
		})
	}
}

// TestMendRefuses checks that a mend that fails names the reason, and leaves the machine as it was.
func TestMendRefuses(t *testing.T) {
	t.Parallel()
	put := func(path, content string) func(*testing.T, *mender) {
		return func(t *testing.T, m *mender) { m.put(t, path, content) }
	}
	shared := func(t *testing.T, m *mender) { must.Do(t, os.Chmod(m.at("/opt/e2bctl"), 0o777)) }
	for want, prepare := range map[string]func(t *testing.T, m *mender){
		"kernel.apparmor_restrict_unprivileged_userns is not 1": put(restriction, "0\n"),
		"on the machine, not in a container":                    func(t *testing.T, m *mender) { must.Do(t, os.RemoveAll(m.at(appArmor))) },
		"apt-get install apparmor":                              func(_ *testing.T, m *mender) { m.parser = "" },
		"run: sudo /opt/e2bctl doctor --fix":                    func(_ *testing.T, m *mender) { m.admin = false },
		"does not know profiles for user namespaces":            put("/sbin/old", ""),
		"no policy": put("/sbin/broken", ""),
		"while there is /etc/apparmor.d/disable/opt.e2bctl: remove it first": put("/etc/apparmor.d/disable/opt.e2bctl", ""),
		"/etc/apparmor.d/opt.e2bctl is another profile":                      put("/etc/apparmor.d/opt.e2bctl", "profile"),
		"/usr/local/bin/e2bctl is another program than /opt/e2bctl": func(t *testing.T, m *mender) {
			shared(t, m)
			m.put(t, copyPath, "another")
		},
		"is a directory": func(t *testing.T, m *mender) {
			shared(t, m)
			must.Do(t, os.Mkdir(m.at(copyPath), 0o755))
		},
		"mend the isolation: open ": func(t *testing.T, m *mender) { must.Do(t, os.RemoveAll(m.at("/etc/apparmor.d"))) },
		"remove what did not help: ": func(t *testing.T, m *mender) {
			m.try = func(context.Context, string) error {
				_ = os.Remove(m.at("/sbin/loaded")) // so that the parser cannot remove it
				return errors.New("clone: permission denied")
			}
		},
		"others than root may write to ": func(t *testing.T, m *mender) {
			shared(t, m)
			must.Do(t, os.Chmod(m.at("/usr/local/bin"), 0o775))
		},
		"did not help, and is removed again: clone: permission denied": func(t *testing.T, m *mender) {
			shared(t, m) // so that a copy is removed, too
			m.try = func(context.Context, string) error { return errors.New("clone: permission denied") }
		},
		"not confirmed": func(_ *testing.T, m *mender) {
			m.ask = func(context.Context, string) error { return errors.New("not confirmed") }
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			m := newMender(t, "/opt/e2bctl")
			prepare(t, m)
			before := m.files(t)
			view, err := m.mend(t.Context())
			if err == nil || !strings.Contains(err.Error(), want) || view != (fixView{}) {
				t.Errorf("got %+v, %v, want %q", view, err, want)
			}
			const left = "remove what did not help: "
			if strings.Contains(err.Error(), left) && want != left {
				t.Errorf("got %v, want nothing that could not be removed", err)
			}
			if after := m.files(t); !maps.Equal(before, after) {
				t.Errorf("the files were %v and are %v", before, after)
			}
		})
	}
}

// TestMendRaces checks that a program that appears while a question waits for its answer is not replaced, and not
// removed.
func TestMendRaces(t *testing.T) {
	t.Parallel()
	m := newMender(t, "/opt/e2bctl")
	must.Do(t, os.Chmod(m.at(m.program), 0o777))
	want := m.files(t)
	want[copyPath] = "other"
	m.ask = func(context.Context, string) error { m.put(t, copyPath, "other"); return nil }
	view, err := m.mend(t.Context())
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "copy /opt/e2bctl to "+copyPath) || view != (fixView{}) {
		t.Errorf("got %+v, %v", view, err)
	}
	if diff := cmp.Diff(want, m.files(t)); diff != "" {
		t.Errorf("the files (-want +got):\n%s", diff)
	}
}

// TestInterruptedMend checks that an interrupted mend asks nothing, and that one that is interrupted later removes what it made.
func TestInterruptedMend(t *testing.T) {
	t.Parallel()
	for at, asked := range []int{0, 1} {
		m, tries, questions := newMender(t, "/opt/e2bctl"), 0, 0
		reason := errors.New("Ctrl-C")
		ctx, cancel := context.WithCancelCause(t.Context())
		m.try = func(ctx context.Context, _ string) error {
			if tries == at {
				cancel(reason)
			}
			tries++
			return errors.Join(errors.New("clone: permission denied"), context.Cause(ctx))
		}
		m.ask = func(context.Context, string) error { questions++; return nil }
		before := m.files(t)
		view, err := m.mend(ctx)
		if !errors.Is(err, reason) || view != (fixView{}) || questions != asked || tries != at+1 {
			t.Errorf("got %+v, %v after %d tries and %d questions, want %d and %d", view, err, tries, questions, at+1, asked)
		}
		if after := m.files(t); !maps.Equal(before, after) {
			t.Errorf("the files were %v and are %v", before, after)
		}
	}
}

// TestTriedProfile checks that the file with the profile that the parser tries is removed, and that a mend that cannot make
// it fails.
func TestTriedProfile(t *testing.T) {
	m, dir := newMender(t, "/opt/e2bctl"), t.TempDir()
	t.Setenv("TMPDIR", dir)
	_, err := m.mend(t.Context())
	must.Do(t, err)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want no file", left, err)
	}
	m = newMender(t, "/opt/e2bctl")
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	if view, err := m.mend(t.Context()); !errors.Is(err, fs.ErrNotExist) || view != (fixView{}) {
		t.Errorf("without a directory: got %+v, %v", view, err)
	}
}

// TestCopiedProgram checks that a copy has the content and may be run, that nothing else is left, and that no file is
// replaced.
func TestCopiedProgram(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.Do(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, os.WriteFile(at("program"), []byte("program"), 0o600))
	must.Do(t, copyProgram(at("program"), at("copy")))
	text, err := os.ReadFile(at("copy"))
	must.Do(t, err)
	info, err := os.Stat(at("copy"))
	must.Do(t, err)
	if string(text) != "program" || info.Mode() != 0o755 {
		t.Errorf("got %q with %v", text, info.Mode())
	}
	must.Is(t, copyProgram(at("copy"), at("program")), fs.ErrExist)
	must.Is(t, copyProgram(at("none"), at("another")), fs.ErrNotExist)
	must.Is(t, copyProgram(at("program"), at("none/another")), fs.ErrNotExist)
	must.Is(t, copyProgram(dir, at("another")), syscall.EISDIR)
	same, err := sumOf(at("copy"))
	must.Do(t, err)
	if sum, err := sumOf(at("program")); err != nil || !bytes.Equal(sum, same) {
		t.Errorf("got the sums %x and %x, %v", sum, same, err)
	}
	if sum, err := sumOf(dir); !errors.Is(err, syscall.EISDIR) || sum != nil || !strings.HasPrefix(err.Error(), "read "+dir) {
		t.Errorf("of a directory: got %x, %v", sum, err)
	}
	if names := slices.Sorted(maps.Keys((&mender{root: dir}).files(t))); !slices.Equal(names, []string{"/copy", "/program"}) {
		t.Errorf("got the files %q", names)
	}
	if open := fdtest.Open(t, dir); len(open) > 0 {
		t.Errorf("left open: %q", open)
	}
}

// TestOnlyRootWrites checks that a program of another user than root and the owner is refused.
func TestOnlyRootWrites(t *testing.T) {
	t.Parallel()
	const program = "/opt/e2bctl"
	m := newMender(t, program)
	if os.Geteuid() == 0 { // whose files are safe in any case
		m.owner = 65533
		must.Do(t, os.Chown(m.at(program), m.owner, -1))
	}
	must.Do(t, m.onlyRootWrites(program))
	must.Is(t, m.onlyRootWrites("/opt/none"), fs.ErrNotExist)
	m.owner++
	if err, want := m.onlyRootWrites(program), m.at(program)+" does not belong to root"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestProfile checks that the packages of distributions have the same profile, and that a path with a
// character that profiles interpret is refused.
func TestProfile(t *testing.T) {
	t.Parallel()
	packaged, err := os.ReadFile("../../../../internal/packaging/linux/e2bctl.apparmor")
	must.Do(t, err)
	got, err := profileOf(packagedProgram)
	if err != nil || got.Text != string(packaged) {
		t.Errorf("got %q, %v, want %q", got.Text, err, packaged)
	}
	for _, path := range []string{"", "/", "e2bctl", "/opt/*", "/opt/a*b", "/opt/{a,b}", "/opt/a b", "/opt/@{HOME}", "/opt/../e2bctl", "/opt/\n", "/opt/e2bctl,"} {
		if got, err := profileOf(path); err == nil || !strings.Contains(err.Error(), "move the program") {
			t.Errorf("%q: got %+v, %v", path, got, err)
		}
	}
}
