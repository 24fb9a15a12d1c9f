//go:build linux

package inside

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEtc compares the files of /etc with testdata/etc.txt, which UPDATE_ETC=1 writes. It leaves out the
// accounts of the distribution's packages, which follow those of the sandbox.
func TestEtc(t *testing.T) {
	t.Parallel()
	const golden = "testdata/etc.txt"
	var text strings.Builder
	for _, ranged := range []bool{true, false} {
		files := etc(&wire.InitSpec{Runner: wire.Runner{Ranged: ranged}, Path: "/of/programs"})
		for _, name := range slices.Sorted(maps.Keys(files)) {
			lines := strings.SplitAfter(files[name].text, "\n")
			if name == "/etc/passwd" || name == "/etc/group" {
				lines = lines[:2]
			}
			if ranged || strings.Contains(files[name].text, "user:") {
				fmt.Fprintf(&text, "%s %v ranged: %v\n%s\n", name, files[name].mode, ranged, strings.Join(lines, ""))
			}
		}
	}
	if os.Getenv("UPDATE_ETC") != "" {
		must.Do(t, os.WriteFile(golden, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must.Do(t, err)
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("the files of /etc have changed (-file +now):\n%s", diff)
	}
}

// TestOtherAccounts checks that a distribution's account never takes the name of one of the sandbox's, and
// that there are some without the distribution's list.
func TestOtherAccounts(t *testing.T) {
	t.Parallel()
	if got := withSystem([]string{"a:1"}, "no such list", "a:2", "ab:3"); got != "a:1\nab:3\n" {
		t.Errorf("got %q", got)
	}
	for ranged, names := range map[bool][]string{true: {"root", "user"}, false: {"user", "root"}} {
		files := etc(&wire.InitSpec{Runner: wire.Runner{Ranged: ranged}})
		for _, name := range []string{"/etc/passwd", "/etc/group"} {
			seen := map[string]int{}
			for line := range strings.Lines(files[name].text) {
				account, _, _ := strings.Cut(line, ":")
				seen[account]++
			}
			for account, n := range seen {
				if n != 1 {
					t.Errorf("%s has %s %d times", name, account, n)
				}
			}
			if first := strings.HasPrefix(files[name].text, names[0]+":"); !first || seen[names[1]] != 1 || seen["daemon"] != 1 {
				t.Errorf("ranged %v: %s is %q", ranged, name, files[name].text)
			}
		}
	}
}

// TestOpenLocal checks that everybody may write to the directories of /usr/local, and that nothing takes
// the place of a link of the host.
func TestOpenLocal(t *testing.T) { //nolint:paralleltest // it changes the umask
	inStage(t, nil)
	must.Do(t, openLocal("root"))
	made := shown(t, "root")
	for _, name := range []string{"local", "local/bin", "local/etc", "local/lib", "local/lib/node_modules", "local/sbin", "local/share", "local/src"} {
		info, err := os.Lstat("/usr/" + name)
		if mode, want := made[name], err != nil || info.IsDir(); mode != "drwxrwxrwx" && want || mode != "" && !want {
			t.Errorf("%s: got %q; the host has %v", name, mode, info)
		}
	}
	if err := openLocal("root"); err == nil {
		t.Error("a directory that is in the way is no error")
	}
}
