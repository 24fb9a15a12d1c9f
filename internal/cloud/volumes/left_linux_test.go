package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMountFailsWithoutHolding checks that a volume is not held after it could not be mounted, and
// can be deleted.
func TestMountFailsWithoutHolding(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	files, err := s.NewDir()
	must.Do(t, err)
	if _, err := s.Put(store.Volumes, "1", []byte(`{"Version":1,"Name":"a","Size":16777216}`), files); err != nil {
		t.Fatal(err)
	}
	r := open(s)
	if _, err := r.Open("1"); !errors.Is(err, ErrNoSize) {
		t.Errorf("open: got error %v, want %v", err, ErrNoSize)
	}
	if _, _, err := r.Hold("1"); !errors.Is(err, ErrNoSize) {
		t.Errorf("hold: got error %v, want %v", err, ErrNoSize)
	}
	if _, err := r.clone(r.byID["1"]); !errors.Is(err, os.ErrClosed) {
		t.Errorf("clone: got error %v, want %v", err, os.ErrClosed)
	}
	if err := r.Delete("1", never); err != nil {
		t.Errorf("got error %v, want it to be deleted", err)
	}
}

// TestOrderOfVolumes checks that volumes are listed by age, and volumes of the same age by id.
func TestOrderOfVolumes(t *testing.T) {
	t.Parallel()
	r := open(openStore(t, t.TempDir()))
	old, late := time.Unix(1, 0), time.Unix(2, 0)
	want := []Volume{{"z", "1", old}, {"a", "9", late}, {"b", "8", late}, {"c", "7", late}, {"d", "6", late}}
	for _, v := range want {
		r.byID[v.ID] = &volume{Volume: v}
	}
	for range 10 {
		if diff := cmp.Diff(want, r.List()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	clear(r.byID)
}

// TestEdgesOfTokens checks that a token is valid until the second at which it expires begins, and
// only for its volume.
func TestEdgesOfTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Store: store.Temporary(t.TempDir())})
		now := time.Now().Unix()
		for after, want := range map[int64]error{-1: ErrToken, 0: ErrToken, 1: nil, 2: nil} {
			expiry := strconv.FormatInt(now+after, 10)
			token := expiry + "." + r.sign("1", expiry)
			if err := r.Check("1", token); !errors.Is(err, want) {
				t.Errorf("%d seconds before its end: got error %v, want %v", after, err, want)
			}
			for _, other := range []string{"", "11", "2", `1":`} {
				if err := r.Check(other, token); !errors.Is(err, ErrToken) {
					t.Errorf("of volume %q: got error %v, want %v", other, err, ErrToken)
				}
			}
		}
		expiry := "soon"
		if err := r.Check("1", expiry+"."+r.sign("1", expiry)); !errors.Is(err, ErrToken) {
			t.Errorf("with no time: got error %v, want %v", err, ErrToken)
		}
	})
}

// TestLevelsOfLists checks that a list has the requested number of levels, and at least one. A path
// to anything except a directory has the same error, except a path that leads nowhere.
func TestLevelsOfLists(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	if _, err := c.Write("a/b/c", strings.NewReader("text"), Attributes{}, true); err != nil {
		t.Fatal(err)
	}
	must.Do(t, errors.Join(os.Symlink("a/b/c", filepath.Join(dir, "link")), os.Symlink("a", filepath.Join(dir, "to")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)))
	top := []string{"/a", "/link", "/pipe", "/to"}
	for depth, inside := range map[int][]string{-1: nil, 0: nil, 1: nil, 2: {"/a/b"}, 3: {"/a/b", "/a/b/c"}, 4: {"/a/b", "/a/b/c"}} {
		wantList(t, c, "/", depth, append(append([]string{"/a"}, inside...), top[1:]...)...)
	}
	wantList(t, c, "to", 1, "/to/b")
	for name, want := range map[string]error{"a/b/c": ErrNotDir, "pipe": ErrNotDir, "gone": fs.ErrNotExist, "a/b/c/d": fs.ErrNotExist, "": ErrPath} {
		if _, err := c.List(t.Context(), name, 1); !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", name, err, want)
		}
	}
}

// TestReplacedKeepsAttributes checks that a file that is replaced with force keeps the mode and
// owner that it had, unless others are requested.
func TestReplacedKeepsAttributes(t *testing.T) {
	t.Parallel()
	c, _ := opened(t)
	mode, id, other := uint32(0o640), uint32(1234), uint32(0o604)
	first := Attributes{Mode: &mode, UID: &id, GID: &id}
	made, err := c.Write("a", strings.NewReader("old"), first, false)
	must.Do(t, err)
	for _, step := range []struct {
		asked Attributes
		mode  uint32
	}{{Attributes{}, mode}, {Attributes{Mode: &other}, other}, {Attributes{}, other}} {
		e, err := c.Write("a", strings.NewReader("new"), step.asked, true)
		if err != nil || e.Owner != made.Owner || e.Mode != step.mode {
			t.Errorf("got %+v and error %v, want mode %#o and the owner %v", e, err, step.mode, made.Owner)
		}
	}
	wantNothingLeft(t, c)
}

// TestNothingStaysOpen checks that no operation leaves a file or directory open, whether it
// succeeds or fails.
func TestNothingStaysOpen(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	_, err := c.Write("d/e/file", strings.NewReader("text"), Attributes{}, true)
	must.Do(t, err)
	must.Do(t, errors.Join(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Symlink("d", filepath.Join(dir, "link"))))
	mode := uint32(0o600)
	names := []string{"", "/", "d", "d/e", "d/e/file", "pipe", "link", "link/e/file", "gone", "gone/x", "d/e/file/x"}
	before := openBelow(t, c.dir)
	for _, name := range names {
		for _, force := range []bool{false, true} {
			_, _ = readAll(c, name)
			_, _ = c.Stat(name)
			_, _ = c.List(t.Context(), name, 3)
			_, _ = c.SetAttributes(name, Attributes{})
			_, _ = c.MakeDir(name, Attributes{Mode: &mode}, force)
			_, _ = c.Write(name, strings.NewReader("text"), Attributes{}, force)
			_, _ = c.MakeDir(name+"/new/newer", Attributes{}, force)
			_ = c.Remove(t.Context(), name+"/new")
			if diff := cmp.Diff(before, openBelow(t, c.dir)); diff != "" {
				t.Fatalf("after operations on %q (-before +after):\n%s", name, diff)
			}
		}
	}
	for _, name := range names {
		_ = c.Remove(t.Context(), name)
	}
	if diff := cmp.Diff(before, openBelow(t, c.dir)); diff != "" {
		t.Errorf("after removals (-before +after):\n%s", diff)
	}
	wantNothingLeft(t, c)
}

// openBelow returns the open files below a directory, and for each the number of its descriptors.
func openBelow(t *testing.T, dir string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, name := range fdtest.Open(t, dir) {
		found[name]++
	}
	return found
}

// TestSizedGivesNoRights checks that the file system of a volume ignores set-user-ID bits and
// devices, even after the thread for mounts has ended and a new one was started.
func TestSizedGivesNoRights(t *testing.T) {
	t.Parallel()
	r := sized(t, openStore(t, t.TempDir()), MinSize)
	for _, id := range []string{"1", "2"} {
		create(t, r, id, "n"+id)
		held, release, err := r.Hold(id)
		must.Do(t, err)
		clone, err := held.Clone()
		must.Do(t, err)
		var stat unix.Statfs_t
		const flags = unix.ST_NOSUID | unix.ST_NODEV
		if err := unix.Fstatfs(int(clone.Fd()), &stat); err != nil || stat.Flags&flags != flags {
			t.Errorf("got the flags %#x and error %v, want %#x among them", stat.Flags, err, flags)
		}
		release()
		must.Do(t, errors.Join(clone.Close(), r.Close(), r.Close()))
	}
}

// TestSmallestSize checks that the smallest size is allowed, and that CheckSize leaves nothing in
// the store.
func TestSmallestSize(t *testing.T) {
	t.Parallel()
	const tooFew = "too few"
	for size, refused := range map[int64]bool{MinSize - 1: true, MinSize: false, MinSize + 1: false} {
		dir := t.TempDir()
		s := openStore(t, dir)
		before := storetest.Take(t, s, dir)
		r := New(Options{Store: s, Size: size})
		err := r.CheckSize(t.Context())
		if os.Geteuid() == 0 && (err != nil && strings.Contains(err.Error(), tooFew)) != refused {
			t.Errorf("%d bytes: got error %v, want them refused: %v", size, err, refused)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		s.Wait()
		storetest.Same(t, before, storetest.Take(t, s, dir))
	}
}

// TestListEndsAtTheLongestPath checks that a list contains no path that other calls refuse: it does
// not list a directory whose path has the maximum length.
func TestListEndsAtTheLongestPath(t *testing.T) {
	t.Parallel()
	c, _ := opened(t)
	deep := strings.Repeat("/"+strings.Repeat("d", 200), maxPath/201)
	deep += "/" + strings.Repeat("e", maxPath-len(deep)-1)
	if _, err := c.MakeDir(deep, Attributes{}, true); err != nil {
		t.Fatal(err)
	}
	parent, err := openDir(c.root, strings.TrimPrefix(deep, "/"))
	must.Do(t, err)
	defer parent.Close()
	must.Do(t, unix.Mkdirat(int(parent.Fd()), "below", 0o700))
	all, err := c.List(t.Context(), "/", maxPath)
	if err != nil || len(all) != maxPath/201+1 || all[len(all)-1].Path != deep {
		t.Errorf("got %d entries and error %v, want %d, the last one with the longest path", len(all), err, maxPath/201+1)
	}
}

// TestRemoveWhileOthersWrite checks that a directory is removed completely, even if a sandbox that
// has it open continues to create and delete files there.
func TestRemoveWhileOthersWrite(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	for range 10 {
		must.Do(t, second(c.MakeDir("a", Attributes{}, true)))
		inside, err := os.Open(filepath.Join(dir, "a"))
		must.Do(t, err)
		var writers sync.WaitGroup
		begun := make(chan struct{}, 1)
		for n := range 4 {
			writers.Go(func() {
				for i := range 1000 { // until it is gone
					name := fmt.Sprint(n, "-", i)
					if unix.Mknodat(int(inside.Fd()), name, unix.S_IFREG|0o600, 0) != nil {
						return
					}
					select {
					case begun <- struct{}{}:
					default:
					}
					if i%3 == 0 {
						_ = unix.Unlinkat(int(inside.Fd()), name, 0)
					}
				}
			})
		}
		<-begun
		err = c.Remove(t.Context(), "a")
		writers.Wait()
		must.Do(t, errors.Join(err, inside.Close()))
		wantNothingLeft(t, c)
	}
}
