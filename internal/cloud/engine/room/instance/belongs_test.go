//go:build linux

package instance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// groupIn makes a control group with a name wherever this process may, and returns it.
func groupIn(t *testing.T, name string) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	must.Do(t, err)
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, hierarchy := range []string{strings.TrimPrefix(parts[1], "name="), "unified", ""} {
			group := filepath.Join("/sys/fs/cgroup", hierarchy, parts[2], name)
			if os.Mkdir(group, 0o755) == nil {
				t.Cleanup(func() { _ = os.Remove(group) })
				return group
			}
		}
	}
	t.Skip("this user may not make control groups")
	return ""
}

// TestReapNothingOfOthers checks that only files of the instance that a lock file belongs to are
// removed. If the lock file names anything else, nothing at all is removed.
func TestReapNothingOfOthers(t *testing.T) {
	t.Parallel()
	type made struct{ base, dir, other, temp string }
	for name, tt := range map[string]struct {
		spec func(t *testing.T, m made) Spec
		kept bool
	}{
		"inside":  {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesIn(m.dir)} }, false},
		"beside":  {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesBeside(m.dir, m.temp)} }, false},
		"gone":    {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesBeside(m.dir, m.base)} }, false},
		"nothing": {func(*testing.T, made) Spec { return Spec{} }, false},
		"a group": {func(t *testing.T, m made) Spec {
			return Spec{Groups: []string{groupIn(t, Group(m.dir)), filepath.Join(m.base, Group(m.dir))}}
		}, false},

		"another directory":           {func(_ *testing.T, m made) Spec { return Spec{Roots: m.other} }, true},
		"a directory with that begin": {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesBeside(m.dir, m.temp) + "x"} }, true},
		"a directory within that":     {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesBeside(m.dir, m.temp) + "/kept"} }, true},
		"the directory that it is in": {func(_ *testing.T, m made) Spec { return Spec{Roots: m.temp} }, true},
		"sandboxes of another":        {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesIn(m.other)} }, true},
		"sandboxes beside of another": {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesBeside(m.other, m.temp)} }, true},
		"sandboxes by a detour":       {func(_ *testing.T, m made) Spec { return Spec{Roots: m.other + "/../temp/" + name("sandboxes", m.dir)} }, true},
		"a relative name":             {func(_ *testing.T, m made) Spec { return Spec{Roots: name("sandboxes", m.dir)} }, true},
		"sandboxes of a group's name": {func(_ *testing.T, m made) Spec { return Spec{Roots: filepath.Join(m.temp, Group(m.dir))} }, true},
		"a file":                      {func(_ *testing.T, m made) Spec { return Spec{Roots: SandboxesBeside(m.dir, m.other)} }, true},
		"a group that is a directory": {func(_ *testing.T, m made) Spec { return Spec{Groups: []string{filepath.Join(m.temp, Group(m.dir))}} }, true},
		"a group of another name":     {func(t *testing.T, m made) Spec { return Spec{Groups: []string{groupIn(t, Group(m.other))}} }, true},
		"all groups":                  {func(*testing.T, made) Spec { return Spec{Groups: []string{"/sys/fs/cgroup/none"}} }, true},
		"a good group and then another": {func(_ *testing.T, m made) Spec {
			return Spec{Groups: []string{filepath.Join(m.base, Group(m.dir)), m.other}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			m := made{base, filepath.Join(base, "run", "cloud-old"), filepath.Join(base, "other"), filepath.Join(base, "temp")}
			for _, dir := range []string{
				filepath.Join(base, "run", "cloud-own"), SandboxesIn(m.dir), SandboxesIn(m.other), SandboxesBeside(m.dir, m.temp) + "/kept", SandboxesBeside(m.dir, m.temp) + "x",
				SandboxesBeside(m.other, m.temp), filepath.Join(m.temp, Group(m.dir)),
			} {
				must.Do(t, os.MkdirAll(dir, 0o700))
			}
			spec := tt.spec(t, m)
			spec.Dir = m.dir
			lock := filepath.Join(m.dir, lockName)
			must.Do(t, errors.Join(os.WriteFile(lock, []byte(text(spec)), 0o600), os.WriteFile(SandboxesBeside(m.dir, m.other), nil, 0o600)))
			want := tree(t, base)
			err := ReapStale(t.Context(), filepath.Join(base, "run", "cloud-own"))
			if tt.kept {
				if err == nil || !strings.Contains(err.Error(), lock) {
					t.Errorf("got error %v, want one about %s", err, lock)
				}
				for _, group := range spec.Groups {
					if _, err := os.Lstat(group); err != nil && strings.HasSuffix(group, Group(m.other)) {
						t.Errorf("the group: %v", err)
					}
				}
			} else {
				if err != nil {
					t.Error(err)
				}
				for path := range want {
					if inside(path, m.dir) || spec.Roots != "" && inside(path, spec.Roots) {
						delete(want, path)
					}
				}
				for _, group := range spec.Groups {
					if _, err := os.Lstat(group); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%s: got error %v, want it to be gone", group, err)
					}
				}
			}
			if diff := cmp.Diff(want, tree(t, base)); diff != "" {
				t.Errorf("what there is (-want +got):\n%s", diff)
			}
		})
	}
}

func inside(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// TestReapNothingOfOtherUsers checks that a file with the right name stays if it is another user's,
// or is reached by a link.
func TestReapNothingOfOtherUsers(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, temp, other := filepath.Join(base, "cloud-old"), filepath.Join(base, "temp"), filepath.Join(base, "other")
	beside := SandboxesBeside(dir, temp)
	makes := map[string]func() error{"a link": func() error { return os.Symlink(other, beside) }}
	if os.Geteuid() == 0 {
		makes["another user's"] = func() error { return errors.Join(os.Mkdir(beside, 0o700), os.Chown(beside, 1, 1)) }
	}
	for _, path := range []string{dir, temp, other} {
		must.Do(t, os.Mkdir(path, 0o700))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, lockName), []byte(text(Spec{Dir: dir, Roots: beside})), 0o600))
	for name, mk := range makes {
		must.Do(t, mk())
		want := tree(t, base)
		if err := ReapStale(t.Context(), filepath.Join(base, "cloud-own")); err == nil {
			t.Errorf("%s: no error", name)
		}
		if diff := cmp.Diff(want, tree(t, base)); diff != "" {
			t.Errorf("%s: what there is (-want +got):\n%s", name, diff)
		}
		must.Do(t, os.RemoveAll(beside))
	}
}
