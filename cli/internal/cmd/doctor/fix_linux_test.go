package doctor

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// parserScript plays apparmor_parser. It keeps the loaded profile in the file loaded beside it. The files
// old and broken beside it make it refuse the rules of a profile, and the loading of one.
const parserScript = `#!/bin/sh
cd "$(dirname "$0")"
case "$1" in
--skip-kernel-load) [ ! -e old ] || { echo syntax error; exit 1; } ;;
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
			view, err := m.mend(t.Context())
			want, failed := profileOf(tt.want)
			must.Do(t, errors.Join(err, failed))
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
			if after := m.files(t); !maps.Equal(before, after) {
				t.Errorf("the files were %v and are %v", before, after)
			}
		})
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
