//go:build linux

package saved

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// decoding returns a decoder of data that comes from r.
func decoding(r io.Reader) *decoder { return &decoder{r: bufio.NewReader(r)} }

// TestDamageIsTold checks that the first fault of damaged data is told, and that a failure to read them is
// no damage.
func TestDamageIsTold(t *testing.T) {
	t.Parallel()
	endless := bytes.Repeat([]byte{0xff}, 20) // no number ends in it
	broken := errors.New("broken")
	for want, tt := range map[string]struct {
		from io.Reader
		read func(d *decoder)
	}{
		"a number is too large":         {bytes.NewReader(endless), func(d *decoder) { d.signed() }},
		"a number is too large\n":       {bytes.NewReader(endless), func(d *decoder) { d.number(maxSize) }},
		"there is a record of kind 120": {strings.NewReader("x"), func(d *decoder) { d.record() }},
		"they end too early":            {strings.NewReader(""), func(d *decoder) { d.signed(); d.record() }},
		"they end too early\n":          {iotest.ErrReader(io.ErrUnexpectedEOF), func(d *decoder) { d.number(1) }},
		"they begin with":               {strings.NewReader("other data, which are none"), func(d *decoder) { d.layout() }},
	} {
		d := decoding(tt.from)
		tt.read(d)
		if !errors.Is(d.err, ErrDamaged) || !strings.Contains(d.err.Error(), strings.TrimSpace(want)) {
			t.Errorf("got %v, want %q", d.err, want)
		}
	}
	d := decoding(iotest.ErrReader(broken))
	d.signed()
	d.damaged("later")
	if d.number(1); !errors.Is(d.err, broken) || errors.Is(d.err, ErrDamaged) {
		t.Errorf("got %v, want %v alone", d.err, broken)
	}
	var forged bytes.Buffer
	e := forge(&forged)
	e.record(&record{kind: regular, name: "f", size: 3})
	e.extent(1, 3)
	must.Do(t, e.finish())
	if _, err := read(t, forged.Bytes()); err == nil || !strings.Contains(err.Error(), "a file is longer than it was") {
		t.Errorf("got %v, want that a file is longer", err)
	}
}

// TestDepth checks the bound on directories inside each other, and the values beside it.
func TestDepth(t *testing.T) {
	t.Parallel()
	for depth := maxDepth - 1; depth <= maxDepth+1; depth++ {
		d := decoding(bytes.NewReader([]byte{byte(leave)}))
		l := &loader{d: d, o: Options{Owned: true}}
		err := errors.Join(l.directory(opened(t, t.TempDir()), &record{}, "/", depth), d.err)
		if deep := depth > maxDepth; errors.Is(err, ErrDamaged) != deep || (err != nil) != deep {
			t.Errorf("%d directories deep: got %v, want an error above %d", depth, err, maxDepth)
		}
	}
}

// TestPlainPlaces checks that a place without an overlay gets no whiteouts and no marks of overlays, and
// that another gets them.
func TestPlainPlaces(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		dir := t.TempDir()
		l := &loader{plain: plain, o: Options{Owned: true}}
		must.Do(t, l.entry(int(opened(t, dir).Fd()), &record{kind: whiteout, name: "w", mode: 0o600}))
		if _, err := os.Lstat(filepath.Join(dir, "w")); os.IsNotExist(err) != plain {
			t.Errorf("plain: %v: got %v for the whiteout", plain, err)
		}
		for a, want := range map[attr]bool{
			{opaqueAttr, "y"}: !plain, {opaqueAttr, "x"}: false, {overlayAttr + "metacopy", "y"}: false, {"user.a", "y"}: true, {escapedAttr + "a", ""}: true,
		} {
			if _, wanted := l.attribute(a); wanted != want {
				t.Errorf("plain: %v: %+v is wanted: %v, want %v", plain, a, wanted, want)
			}
		}
	}
}

// TestTimesOfLinks checks that a symbolic link, which saving it reads, has its last change as the time of
// its last use.
func TestTimesOfLinks(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	link := filepath.Join(from, "link")
	must.Do(t, os.Symlink("x", link))
	used, changed := unix.NsecToTimespec(1e9), unix.NsecToTimespec(7e9+8)
	must.Do(t, unix.UtimesNanoAt(unix.AT_FDCWD, link, []unix.Timespec{used, changed}, unix.AT_SYMLINK_NOFOLLOW))
	var data bytes.Buffer
	must.Do(t, write(t, &data, from))
	dir, err := read(t, data.Bytes())
	must.Do(t, err)
	var got unix.Stat_t
	must.Do(t, unix.Lstat(filepath.Join(dir, "link"), &got))
	if got.Atim != changed || got.Mtim != changed {
		t.Errorf("got %+v and %+v, want %+v", got.Atim, got.Mtim, changed)
	}
}
