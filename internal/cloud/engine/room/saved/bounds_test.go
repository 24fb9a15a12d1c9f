//go:build linux

package saved

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEveryDamage checks that no byte can be missing or another.
func TestEveryDamage(t *testing.T) {
	t.Parallel()
	var forged bytes.Buffer
	e := forge(&forged)
	e.record(&record{kind: regular, name: "f", size: 2, mode: 0o600, link: 1, names: 2, attrs: []attr{{"user.a", "1"}}})
	e.extent(0, 2)
	e.bytes([]byte("hi"))
	e.extent(0, 0)
	e.record(&record{kind: again, name: "g", link: 1})
	e.record(&record{kind: symlink, name: "l", target: "f"})
	e.record(&record{kind: leave})
	must.Do(t, e.finish())
	whole := forged.Bytes()
	if _, err := read(t, whole); err != nil {
		t.Errorf("the whole: got %v", err)
	}
	for n := range whole {
		if _, err := read(t, whole[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("the first %d of %d bytes: got %v, want %v", n, len(whole), err, ErrDamaged)
		}
		other := bytes.Clone(whole)
		other[n] ^= 1
		if _, err := read(t, other); err == nil {
			t.Errorf("byte %d is another: got no error", n)
		}
	}
	var strange bytes.Buffer // whole, but of another format
	e = newEncoder(&strange)
	e.bytes([]byte(strings.Replace(magic, "1", "2", 1)))
	e.text("test")
	must.Do(t, e.finish())
	if _, err := read(t, strange.Bytes()); !errors.Is(err, ErrDamaged) {
		t.Errorf("another format: got %v, want %v", err, ErrDamaged)
	}
	other := bytes.Replace(whole, []byte("test"), []byte("best"), 1)
	if _, err := read(t, other); !errors.Is(err, ErrLayout) {
		t.Errorf("another layout: got %v, want %v", err, ErrLayout)
	}
}

// TestRecordBounds checks that each value of a record may have its bound, and nothing above.
func TestRecordBounds(t *testing.T) {
	t.Parallel()
	many := func(n int) (all []attr) {
		for range n {
			all = append(all, attr{"user.a", ""})
		}
		return all
	}
	for what, tt := range map[string]struct {
		most uint64
		of   func(n uint64) *record
	}{
		"bytes of a name":           {maxName, func(n uint64) *record { return &record{kind: regular, name: strings.Repeat("n", int(n))} }},
		"bytes of another name":     {maxName, func(n uint64) *record { return &record{kind: again, name: strings.Repeat("n", int(n)), link: 1} }},
		"bytes of a section's name": {maxTarget, func(n uint64) *record { return &record{kind: section, name: strings.Repeat("n", int(n))} }},
		"bytes of a target":         {maxTarget, func(n uint64) *record { return &record{kind: symlink, name: "n", target: strings.Repeat("t", int(n))} }},
		"mode":                      {0o7777, func(n uint64) *record { return &record{kind: fifo, name: "n", mode: uint32(n)} }},
		"attributes":                {maxAttrs, func(n uint64) *record { return &record{kind: directory, name: "n", attrs: many(int(n))} }},
		"bytes of an attribute": {maxName, func(n uint64) *record {
			return &record{kind: fifo, name: "n", attrs: []attr{{strings.Repeat("a", int(n)), ""}}}
		}},
		"bytes of an attribute's value": {maxValue, func(n uint64) *record {
			return &record{kind: fifo, name: "n", attrs: []attr{{"user.a", strings.Repeat("v", int(n))}}}
		}},
		"number of a file":          {maxSize, func(n uint64) *record { return &record{kind: fifo, name: "n", link: n, names: 2} }},
		"number of an earlier file": {maxSize, func(n uint64) *record { return &record{kind: again, name: "n", link: n} }},
		"names of a file":           {maxSize, func(n uint64) *record { return &record{kind: regular, name: "n", link: 1, names: n} }},
	} {
		for n := tt.most - 1; n <= tt.most+1; n++ {
			var data bytes.Buffer
			e := newEncoder(&data)
			want := tt.of(n)
			e.record(want)
			must.Do(t, e.w.Flush())
			d := &decoder{r: bufio.NewReader(&data)}
			got := d.record()
			if n > tt.most {
				if !errors.Is(d.err, ErrDamaged) {
					t.Errorf("%s %d: got %v, want %v", what, n, d.err, ErrDamaged)
				}
				continue
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{}, attr{})); d.err != nil || diff != "" {
				t.Errorf("%s %d: got %v (-want +got):\n%s", what, n, d.err, diff)
			}
		}
	}
}

// TestRecordsInTheirPlace checks records that are only good in some places, and numbers that other
// records bound.
func TestRecordsInTheirPlace(t *testing.T) {
	t.Parallel()
	type put func(e *encoder)
	rec := func(r record) put { return func(e *encoder) { e.record(&r) } }
	data := func(at, n int64) put {
		return func(e *encoder) { e.extent(at, n); e.bytes(make([]byte, n)) }
	}
	stop, out := data(0, 0), rec(record{kind: leave})
	file := func(size int64) put { return rec(record{kind: regular, name: "f", size: size}) }
	linked := func(name string, link, names uint64) put {
		return rec(record{kind: fifo, name: name, link: link, names: names})
	}
	again := func(name string, link uint64) put { return rec(record{kind: again, name: name, link: link}) }
	for what, tt := range map[string]struct {
		good bool
		puts []put
	}{
		"nothing":                         {true, []put{out}},
		"a file that is full":             {true, []put{file(8), data(0, 8), stop, out}},
		"a file's last byte":              {true, []put{file(8), data(7, 1), stop, out}},
		"a file that is too long":         {false, []put{file(8), data(0, 9), stop, out}},
		"a byte after a file":             {false, []put{file(8), data(8, 1), stop, out}},
		"a part that ends after a file":   {false, []put{file(8), data(1, 8), stop, out}},
		"two names":                       {true, []put{linked("a", 1, 2), again("b", 1), out}},
		"two of three names":              {true, []put{linked("a", 1, 3), again("b", 1), out}},
		"three of two names":              {false, []put{linked("a", 1, 2), again("b", 1), again("c", 1), out}},
		"a number for one name":           {false, []put{linked("a", 1, 1), out}},
		"a number for two files":          {false, []put{linked("a", 1, 2), linked("b", 1, 2), again("c", 1), out}},
		"a name of no file":               {false, []put{again("b", 1), out}},
		"a section in a section":          {false, []put{rec(record{kind: section, name: "s"}), out, out}},
		"an end in a section":             {false, []put{rec(record{kind: end}), out}},
		"a file in no section":            {false, []put{out, linked("a", 0, 0)}},
		"one end of a directory too many": {false, []put{out, out}},
		"one end of a directory too few":  {false, []put{rec(record{kind: directory, name: "d"}), out}},
		"a kind that does not exist":      {false, []put{rec(record{kind: 'x', name: "x"}), out}},
		"a directory, and one in it":      {true, []put{rec(record{kind: directory, name: "d", mode: 0o700}), rec(record{kind: directory, name: "d", mode: 0o700}), out, out, out}},
	} {
		var forged bytes.Buffer
		e := forge(&forged)
		for _, put := range tt.puts {
			put(e)
		}
		must.Do(t, e.finish())
		if _, err := read(t, forged.Bytes()); tt.good && err != nil || !tt.good && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got %v, want none: %v, or else %v", what, err, tt.good, ErrDamaged)
		}
	}
}

// TestKeptAttributes checks which attributes are saved, and under what name.
func TestKeptAttributes(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return overlayAttr + strings.Repeat("n", n-len(overlayAttr)) }
	escaped := func(name string) string { return escapedAttr + strings.TrimPrefix(name, overlayAttr) }
	longest := maxName - len(escapedAttr) + len(overlayAttr)
	for _, tt := range []struct{ name, elsewhere, overlay string }{ // the name elsewhere and in an overlay; empty: left out
		{"user.mine", "user.mine", "user.mine"},
		{"system.posix_acl_access", "system.posix_acl_access", "system.posix_acl_access"},
		{"security.capability", "security.capability", "security.capability"},
		{"security.selinux", "", ""},
		{"security.capability2", "", ""},
		{"trusted.overlay.opaque", "", ""},
		{"system.other", "", ""},
		{opaqueAttr, escapedAttr + "opaque", opaqueAttr},
		{originAttr, escapedAttr + "origin", ""},
		{"user.overlay.redirect", escapedAttr + "redirect", ""},
		{escapedAttr + "x", escapedAttr + "overlay.x", escapedAttr + "x"},
		{long(longest), escaped(long(longest)), ""},
		{long(longest + 1), "", ""},
	} {
		for want, overlay := range map[string]bool{"elsewhere " + tt.elsewhere: false, "overlay " + tt.overlay: true} {
			s := &saver{of: Section{Overlay: overlay}}
			to, kept := s.keeps(tt.name)
			if !kept {
				to = ""
			}
			if _, want, _ := strings.Cut(want, " "); to != want {
				t.Errorf("%s, in an overlay: %v: got %q, want %q", tt.name, overlay, to, want)
			}
		}
	}
}

// TestOpenReplaced checks that a file that is no longer the one whose attributes were read is not
// taken for it.
func TestOpenReplaced(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o600))
	dir, err := os.Open(top)
	must.Do(t, err)
	defer dir.Close()
	var stat unix.Stat_t
	must.Do(t, unix.Lstat(filepath.Join(top, "file"), &stat))
	for what, change := range map[string]func(*unix.Stat_t){
		"the same": func(*unix.Stat_t) {}, "another": func(s *unix.Stat_t) { s.Ino++ },
		"another kind": func(s *unix.Stat_t) { s.Mode ^= unix.S_IFREG ^ unix.S_IFIFO },
	} {
		other := stat
		change(&other)
		f, err := open(dir, "file", &other, 0)
		if (err == nil) != (what == "the same") {
			t.Errorf("%s: got %v", what, err)
		}
		if err == nil {
			must.Do(t, f.Close())
		}
	}
}
