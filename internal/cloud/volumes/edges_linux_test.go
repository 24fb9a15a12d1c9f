package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestBounds checks that each bound of a path, a name, a mode and an id allows the value below it
// and its own value, and refuses the value above.
func TestBounds(t *testing.T) {
	t.Parallel()
	element := strings.Repeat("e", maxElement)
	path := strings.Repeat("p/", maxPath/2)[:maxPath]
	for name, want := range map[string]bool{
		"": false, "a\x00b": false, "a": true, "/": true, "..": true, element[1:]: true, element: true, element + "e": false, "a/" + element + "e/b": false,
		path[1:]: true, path: true, path + "p": false,
	} {
		if got, err := clean(name); (err == nil) != want || err != nil && !errors.Is(err, ErrPath) {
			t.Errorf("%.20q of %d bytes: got %.20q and error %v, want it to be a path: %v", name, len(name), got, err, want)
		}
	}
	for n, want := range map[int]bool{0: false, 1: true, maxName - 1: true, maxName: true, maxName + 1: false} {
		if got := validName(strings.Repeat("n", n)); got != want {
			t.Errorf("a name of %d bytes: got %v, want %v", n, got, want)
		}
	}
	for value, want := range map[uint32][2]bool{0: {true, true}, maxMode - 1: {true, true}, maxMode: {true, true}, maxMode + 1: {true, false}, maxID - 1: {true, false}, maxID: {true, false}, maxID + 1: {false, false}} {
		for i, a := range []Attributes{{UID: &value}, {Mode: &value}, {GID: &value}} {
			if err := a.check(); (err == nil) != want[i%2] {
				t.Errorf("%#o as %+v: got error %v, want it to be allowed: %v", value, a, err, want[i%2])
			}
		}
	}
}

// TestVolumesAreBounded checks that the number of volumes is bounded, and that deleting a volume
// makes room for another.
func TestVolumesAreBounded(t *testing.T) {
	t.Parallel()
	r := open(openStore(t, t.TempDir()))
	create(t, r, "first", "first")
	for n := range Max - 1 { // in memory alone
		r.byID[fmt.Sprint(n)] = &volume{Volume: Volume{ID: fmt.Sprint(n), Name: fmt.Sprint("n", n)}}
	}
	if _, err := r.Create("more", "more"); !errors.Is(err, ErrTooMany) {
		t.Errorf("got error %v, want %v", err, ErrTooMany)
	}
	must.Do(t, r.Delete("first", never))
	create(t, r, "more", "more")
}

// TestListIsBounded checks that the number of entries in a list is bounded for all its directories
// together, and that the list stops with its context.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	for _, name := range []string{"a", "b"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for before, want := range map[int]error{0: nil, maxEntries - 3: nil, maxEntries - 2: nil, maxEntries - 1: ErrTooLong, maxEntries: ErrTooLong} {
		all, err := c.appendDir(t.Context(), make([]Entry, before), ".") // after those of other directories
		if !errors.Is(err, want) || err == nil && len(all) != before+2 {
			t.Errorf("after %d others: got %d entries and error %v, want %v", before, len(all), err, want)
		}
	}
	cause := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	end(cause)
	if all, err := c.List(ctx, "/", 2); !errors.Is(err, cause) {
		t.Errorf("got %d entries and error %v, want %v", len(all), err, cause)
	}
}

// TestRemoveWithoutTime checks an entry that Remove had no time to delete: it is no longer in the
// volume, and is deleted after a restart.
func TestRemoveWithoutTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	r := open(s)
	create(t, r, "1", "data")
	write(t, r, "1", "a/b/c", "text")
	c, err := r.Open("1")
	must.Do(t, err)
	defer c.Close()
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := c.Remove(ctx, "a"); err != nil {
		t.Errorf("got error %v, want none: it is out of the volume", err)
	}
	if _, err := c.Stat("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, fs.ErrNotExist)
	}
	if left, err := os.ReadDir(filepath.Join(c.dir, removedName)); err != nil || len(left) != 1 {
		t.Errorf("got %v and error %v, want it to wait for its end", left, err)
	}
	open(s)
	wantNothingLeft(t, c)
}

// TestAttributesOfEntries checks that mode and owner are set on the entry itself, and never on the
// target of a link. Each change updates the time of the change.
func TestAttributesOfEntries(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	if _, err := c.Write("a", strings.NewReader("text"), Attributes{}, false); err != nil {
		t.Fatal(err)
	}
	must.Do(t, os.Symlink("a", filepath.Join(dir, "link")))
	before, err := c.Stat("a")
	must.Do(t, err)
	mode := uint32(0o600)
	if e, err := c.SetAttributes("link", Attributes{Mode: &mode}); !errors.Is(err, ErrNotFile) {
		t.Errorf("of a link: got %+v and error %v, want %v", e, err, ErrNotFile)
	}
	if now, err := c.Stat("a"); err != nil || now != before {
		t.Errorf("got %+v and error %v, want %+v", now, err, before)
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 7, time.UTC)
	must.Do(t, os.Chtimes(filepath.Join(dir, "a"), old.Add(time.Hour), old))
	e, err := c.SetAttributes("a", Attributes{Mode: &mode})
	if err != nil || e.Mode != mode || e.Owner != before.Owner {
		t.Errorf("got %+v and error %v, want the mode changed and nothing else", e, err)
	}
	if !e.Modified.Equal(old) || !e.Accessed.Equal(old.Add(time.Hour)) {
		t.Errorf("got %+v, want the times as they were", e)
	}
	if e.Changed.Before(before.Changed) {
		t.Errorf("got the change at %v, want it not before %v", e.Changed, before.Changed)
	}
}

// TestOwnersOfASingleID checks owners where sandboxes have a single id: files of this process
// belong to root, and all other files to nobody.
func TestOwnersOfASingleID(t *testing.T) {
	t.Parallel()
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	for stat, want := range map[[2]uint32]Owner{{uid, gid}: {0, 0}, {uid + 1, gid}: {nobody, 0}, {uid, gid + 1}: {0, nobody}, {uid + 1, gid + 1}: {nobody, nobody}} {
		status := &unix.Stat_t{Uid: stat[0], Gid: stat[1]}
		if got := (ids{one: true}).owner(status); got != want {
			t.Errorf("%v: got %v, want %v", stat, got, want)
		}
		if got := (ids{}).owner(status); got != (Owner{stat[0], stat[1]}) {
			t.Errorf("%v with many ids: got %v, want them", stat, got)
		}
	}
}

// TestOpenFailsWithoutHolding checks that a volume is not held after its files could not be opened.
func TestOpenFailsWithoutHolding(t *testing.T) {
	t.Parallel()
	r := open(openStore(t, t.TempDir()))
	create(t, r, "1", "data")
	must.Do(t, os.Remove(filepath.Join(r.byID["1"].dir, filesName)))
	if _, err := r.Open("1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, fs.ErrNotExist)
	}
	if err := r.Delete("1", never); err != nil {
		t.Errorf("got error %v, want it to be deleted", err)
	}
}

// TestRecordsOfVolumes checks that a record with an unknown version or an invalid field is not
// read, and is not changed.
func TestRecordsOfVolumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	create(t, open(s), "good", "good")
	for id, value := range map[string]string{
		"newer": `{"Version":2,"Name":"newer"}`, "older": `{"Version":0,"Name":"older"}`, "negative": `{"Version":1,"Name":"negative","Size":-1}`,
		"named": `{"Version":1,"Name":"../x"}`, "garbage": `{`, "empty": ``,
	} {
		files, err := s.NewDir()
		must.Do(t, err)
		if _, err := s.Put(store.Volumes, id, []byte(value), files); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(store.Volumes, "bare", []byte(`{"Version":1,"Name":"bare"}`), ""); err != nil {
		t.Fatal(err)
	}
	before := storetest.Take(t, s, dir)
	if all := open(s).List(); len(all) != 1 || all[0].ID != "good" {
		t.Errorf("got %+v, want the good one", all)
	}
	storetest.Same(t, before, storetest.Take(t, s, dir))
}

// TestDiskFails checks that after a fault of the disk at any change of a creation or deletion, the
// volume is as before, in memory and after a restart. The same call succeeds when the disk works
// again.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		dir := t.TempDir()
		s := openStore(t, dir)
		r := open(s)
		fault := storetest.FailNth(s, n)
		_, err := r.Create("1", "data")
		made := err == nil
		if made {
			err = r.Delete("1", never)
		}
		storetest.Mend(s)
		which := fault.Which()
		if _, known := r.Get("1"); (known == nil) != (made && err != nil) {
			t.Errorf("at %q: got error %v, and of the volume %v", which, err, known)
		}
		if err != nil && !made {
			if _, err := r.Create("1", "data"); err != nil {
				t.Errorf("after %q, again: got error %v", which, err)
			}
		}
		if err != nil {
			if err := r.Delete("1", never); err != nil {
				t.Errorf("after %q, at last: got error %v", which, err)
			}
		}
		s.Wait()
		if is := storetest.Take(t, s, dir); which != store.Rename && len(is.Unnamed) > 0 {
			t.Errorf("after %q %q are left", which, is.Unnamed)
		}
		if all := open(s).List(); len(all) != 0 {
			t.Errorf("after %q the next server has %v, want nothing", which, all)
		}
		if which == "" {
			break
		}
	}
}

// TestWriteReplaces checks that a file that replaces another kind of entry has the default owner
// and mode. Missing directories receive the requested owner and the default mode.
func TestWriteReplaces(t *testing.T) {
	t.Parallel()
	c, dir := opened(t)
	must.Do(t, errors.Join(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Symlink("gone", filepath.Join(dir, "link"))))
	for _, name := range []string{"pipe", "link", "new"} {
		if e, err := c.Write(name, strings.NewReader("text"), Attributes{}, true); err != nil || e.Mode != defaultFileMode || e.Kind != File {
			t.Errorf("%s: got %+v and error %v, want a file with the default mode", name, e, err)
		}
	}
	mode := uint32(0o600)
	if e, err := c.Write("x/y/file", strings.NewReader("text"), Attributes{Mode: &mode}, true); err != nil || e.Mode != mode {
		t.Errorf("got %+v and error %v, want the mode that was asked for", e, err)
	}
	for _, name := range []string{"x", "x/y"} {
		if e, err := c.Stat(name); err != nil || e.Mode != defaultDirMode {
			t.Errorf("%s: got %+v and error %v, want a directory with the default mode", name, e, err)
		}
	}
	for force, want := range map[bool]error{true: nil, false: fs.ErrExist} {
		if _, err := c.MakeDir("x", Attributes{}, force); !errors.Is(err, want) {
			t.Errorf("a directory that is there, by force %v: got error %v, want %v", force, err, want)
		}
	}
	if _, err := c.Write("once", strings.NewReader("text"), Attributes{}, false); err != nil {
		t.Error(err)
	}
	wantNothingLeft(t, c)
}

// TestWriteIsRefusedFirst checks that a write that cannot succeed is refused before any of its
// content is read.
func TestWriteIsRefusedFirst(t *testing.T) {
	t.Parallel()
	c, _ := opened(t)
	must.Do(t, second(c.Write("file", strings.NewReader("text"), Attributes{}, false)))
	must.Do(t, second(c.MakeDir("dir", Attributes{}, false)))
	tooLarge := uint32(maxMode + 1)
	for _, tt := range []struct {
		name  string
		a     Attributes
		force bool
		want  error
	}{
		{"file", Attributes{}, false, fs.ErrExist}, {"dir", Attributes{}, false, ErrIsDir}, {"dir", Attributes{}, true, ErrIsDir}, {"/", Attributes{}, true, ErrIsDir},
		{"none/file", Attributes{}, false, fs.ErrNotExist}, {"file/x", Attributes{}, false, fs.ErrNotExist}, {"", Attributes{}, true, ErrPath}, {"new", Attributes{Mode: &tooLarge}, true, ErrAttributes},
	} {
		content := strings.NewReader("other")
		if _, err := c.Write(tt.name, content, tt.a, tt.force); !errors.Is(err, tt.want) || content.Len() != len("other") {
			t.Errorf("%q with force %v: got error %v, and %d bytes are left, want %v and all", tt.name, tt.force, err, content.Len(), tt.want)
		}
	}
	if text, err := readAll(c, "file"); err != nil || text != "text" {
		t.Errorf("got %q and error %v, want it unchanged", text, err)
	}
	wantNothingLeft(t, c)
}

// TestGivenUpFilesTakeNoSpace checks that an incomplete file takes no space after its write failed,
// even while another process has it open, as a child of this process does for a moment while it
// starts.
func TestGivenUpFilesTakeNoSpace(t *testing.T) {
	t.Parallel()
	c, _ := opened(t)
	var held *os.File
	defer func() { _ = held.Close() }()
	content := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<16)), readerFunc(func([]byte) (int, error) {
		staged, err := filepath.Glob(filepath.Join(c.dir, newName, "*"))
		if err != nil || len(staged) != 1 {
			t.Errorf("got %q and error %v, want one unfinished file", staged, err)
		} else if held, err = os.Open(staged[0]); err != nil {
			t.Error(err)
		}
		return 0, syscall.EIO
	}))
	if _, err := c.Write("file", content, Attributes{}, true); !errors.Is(err, syscall.EIO) {
		t.Errorf("got error %v, want %v", err, syscall.EIO)
	}
	if of, err := held.Stat(); err != nil || of.Sys().(*syscall.Stat_t).Blocks != 0 {
		t.Errorf("got %+v and error %v, want a file without blocks", of, err)
	}
	wantNothingLeft(t, c)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
