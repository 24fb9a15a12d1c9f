//go:build linux

package envd

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStageWithAName checks that a staged file has a name only where a filesystem requires one, and that the
// name is gone afterwards.
func TestStageWithAName(t *testing.T) {
	t.Parallel()
	for as, tt := range map[unix.Errno]struct {
		named bool
		err   error
	}{0: {}, unix.EOPNOTSUPP: {named: true}, unix.EISDIR: {named: true}, unix.EACCES: {err: unix.EACCES}} {
		dir := t.TempDir()
		var f *stagedFile
		_, err := calltest.FailNth(t, unix.SYS_OPENAT, 1, as, func() (err error) { f, err = stageIn(dir); return err })
		if !errors.Is(err, tt.err) || (f == nil) != (err != nil) {
			t.Errorf("%v: got %v and error %v, want error %v", as, f, err, tt.err)
		}
		if f == nil {
			continue
		}
		if left := names(t, dir); (f.name != "") != tt.named || (len(left) == 1) != tt.named {
			t.Errorf("%v: the file is named %q, and the directory has %v", as, f.name, left)
		}
		_, err = io.WriteString(f, "text")
		must.Do(t, errors.Join(err, f.link(dir+"/linked"), f.Close()))
		if left := names(t, dir); content(t, dir+"/linked") != "text" || !slices.Equal(left, []string{"linked"}) {
			t.Errorf("%v: linked, the directory has %v", as, left)
		}
	}
	scratch, dir := t.TempDir(), t.TempDir()
	_, err := calltest.FailNth(t, unix.SYS_OPENAT, 1, unix.EOPNOTSUPP, func() error {
		f, err := stageIn(dir + "/none")
		if f != nil {
			t.Errorf("got the file %s, want none", f.Name())
		}
		return err
	})
	must.Is(t, err, fs.ErrNotExist)
	for _, dirs := range [][]string{{scratch, dir}, {scratch + "/none", dir}, {scratch + "/none", dir + "/none"}} {
		f, err := stage(dirs...)
		if (err != nil) != strings.HasSuffix(dirs[1], "none") {
			t.Errorf("in %v: got error %v", dirs, err)
		}
		if err != nil {
			continue
		}
		if in := !strings.HasSuffix(dirs[0], "none"); strings.HasPrefix(f.Name(), scratch) != in {
			t.Errorf("in %v: the file is in %s", dirs, f.Name())
		}
		must.Do(t, f.Close())
	}
}

// TestBodyThatCannotBeStaged checks that the body of an upload stays what it was if it cannot be staged.
func TestBodyThatCannotBeStaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := &received{head: []byte("text"), size: 4}
	must.Is(t, c.stage(dir+"/none", dir+"/neither"), fs.ErrNotExist)
	if c.rest != nil {
		t.Errorf("got the staged file %s, want none", c.rest.Name())
	}
	must.Do(t, c.stage(dir))
	staged := c.rest
	must.Is(t, c.stage(dir+"/none"), fs.ErrNotExist)
	if c.rest != staged {
		t.Error("the staged file is no longer that of the body")
	}
	must.Do(t, c.close())
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left %v, want nothing", left)
	}
}

// TestUploadThatCannotBeStaged checks that an upload fails, and leaves nothing, if no directory takes its content.
func TestUploadThatCannotBeStaged(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Scratch = "/nonexistent" })
	must.Do(t, os.Symlink("none/file", d.home+"/link"))
	for _, size := range []int{0, 1, block - 1, block, block + 1, 3 * block} {
		kept, err := d.server.storeFile(d.home+"/link", strings.NewReader(strings.Repeat("x", size)), d.server.users.fallback, nil)
		if kept != nil || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d bytes: got the metadata %v and error %v, want %v", size, kept, err, fs.ErrNotExist)
		}
		if list := names(t, d.home); len(list) != 1 {
			t.Errorf("%d bytes: left %v, want the link alone", size, list)
		}
	}
}

// TestStagingFor checks in which directories a new file is prepared.
func TestStagingFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := serve(t, withScratch(t))
	for _, tt := range []struct {
		dir  string
		fail int // this call to look up a mount fails; 0: none
		want []string
	}{
		{dir, 0, []string{d.server.scratch, dir}}, {dir, 1, []string{dir}}, {dir, 2, []string{dir}},
		{"/proc", 0, []string{"/proc"}}, {dir + "/none", 0, []string{dir + "/none"}},
	} {
		_, err := calltest.FailNth(t, unix.SYS_STATX, tt.fail, unix.EIO, func() error {
			if diff := cmp.Diff(tt.want, d.server.stagingFor(tt.dir)); diff != "" {
				t.Errorf("%s, call %d fails (-want +got):\n%s", tt.dir, tt.fail, diff)
			}
			return nil
		})
		must.Do(t, err)
	}
}

// TestLinkTarget checks where chains of links lead.
func TestLinkTarget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, errors.Join(os.Mkdir(dir+"/sub", 0o700), os.Symlink("file", dir+"/sub/relative"), os.Symlink(dir+"/sub/relative", dir+"/absolute"),
		os.Symlink("../none", dir+"/sub/up"), os.Symlink("loop", dir+"/loop")))
	for path, want := range map[string]string{
		"/file": "/file", "/sub/relative": "/sub/file", "/absolute": "/sub/file", "/sub/up": "/sub/../none", "/loop": "/loop",
	} {
		if got := linkTarget(dir + path); got != dir+want {
			t.Errorf("%s leads to %s, want %s", path, got, dir+want)
		}
	}
}

// TestFill checks how much is read, and which error is the end of a body.
func TestFill(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		body io.Reader
		text string
		err  error
	}{
		"less":                      {strings.NewReader("abc"), "abc", io.EOF},
		"nothing":                   {strings.NewReader(""), "", io.EOF},
		"as much":                   {strings.NewReader("abcd"), "abcd", nil},
		"more":                      {strings.NewReader("abcde"), "abcd", nil},
		"byte by byte":              {iotest.OneByteReader(strings.NewReader("abcde")), "abcd", nil},
		"as much, with the end":     {iotest.DataErrReader(strings.NewReader("abcd")), "abcd", nil},
		"less, with the end":        {iotest.DataErrReader(strings.NewReader("abc")), "abc", io.EOF},
		"a broken body":             {io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broken)), "ab", broken},
		"broken after what is read": {io.MultiReader(strings.NewReader("abcd"), iotest.ErrReader(broken)), "abcd", nil},
		"cut off":                   {io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(io.ErrUnexpectedEOF)), "ab", io.ErrUnexpectedEOF},
	} {
		var buf [4]byte
		if n, err := fill(tt.body, buf[:]); string(buf[:n]) != tt.text || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%s: got %q and error %v, want %q and %v", name, buf[:n], err, tt.text, tt.err)
		}
	}
	buf := new([block]byte)
	for _, size := range []int{0, 1, block - 1, block, block + 1, 2 * block} {
		var got bytes.Buffer
		if err := copyBody(&got, strings.NewReader(strings.Repeat("x", size)), buf); err != nil || got.Len() != size {
			t.Errorf("%d bytes: got %d and error %v", size, got.Len(), err)
		}
	}
	if err := copyBody(io.Discard, iotest.ErrReader(broken), buf); !errors.Is(err, broken) {
		t.Errorf("a broken body: got error %v, want %v", err, broken)
	}
}

// TestReserve checks what happens to a file if the disk space for its new content cannot be reserved.
func TestReserve(t *testing.T) {
	t.Parallel()
	const small, large = 64 << 10, 128 << 10
	probe, err := os.Create(t.TempDir() + "/probe")
	must.Do(t, err)
	defer probe.Close()
	if err := unix.Fallocate(int(probe.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, small); err != nil {
		t.Skipf("the filesystem of the temporary directory reserves no space: %v", err)
	}
	for name, tt := range map[string]struct {
		as        unix.Errno
		old, size int64
		want      error
		reserved  bool
	}{
		"space":                               {0, small, large, nil, true},
		"no space":                            {unix.ENOSPC, small, large, unix.ENOSPC, false},
		"no quota":                            {unix.EDQUOT, small, large, unix.EDQUOT, false},
		"another error":                       {unix.EIO, small, large, nil, false},
		"no flags, and a longer file":         {unix.EOPNOTSUPP, large, small, nil, true},
		"no flags, and a file of that length": {unix.EOPNOTSUPP, small, small, nil, true},
		"no flags, and a shorter file":        {unix.EOPNOTSUPP, small, small + 1, nil, false},
	} {
		f, err := os.Create(t.TempDir() + "/file")
		must.Do(t, errors.Join(err, f.Truncate(tt.old)))
		_, err = calltest.FailNth(t, unix.SYS_FALLOCATE, 1, tt.as, func() error { return reserve(f, tt.old, tt.size) })
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		var stat unix.Stat_t
		must.Do(t, unix.Fstat(int(f.Fd()), &stat))
		if stat.Size != tt.old || (stat.Blocks*512 >= tt.size) != tt.reserved {
			t.Errorf("%s: the file has %d bytes, and %d blocks are reserved, want %d bytes, reserved: %v", name, stat.Size, stat.Blocks, tt.old, tt.reserved)
		}
		must.Do(t, f.Close())
	}
	full := func() error {
		d := serve(t)
		put(t, d.home+"/a", "old")
		_, err := calltest.FailNth(t, unix.SYS_FALLOCATE, 1, unix.ENOSPC, func() error {
			_, err := d.server.storeFile(d.home+"/a", strings.NewReader("new text"), d.server.users.fallback, nil)
			return err
		})
		if got := content(t, d.home+"/a"); got != "old" {
			t.Errorf("on a full disk: the file has %q, want %q", got, "old")
		}
		return err
	}
	must.Is(t, full(), unix.ENOSPC)
}

// TestFileThatBecameAPipe checks that an upload whose file was replaced by a pipe meanwhile reaches the reader
// of the pipe.
func TestFileThatBecameAPipe(t *testing.T) {
	t.Parallel()
	d := serve(t)
	pipe := d.home + "/pipe"
	must.Do(t, unix.Mkfifo(pipe, 0o600))
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must.Do(t, err)
	defer reader.Close()
	kept, err := d.server.settle(pipe, &received{head: []byte("text"), size: 4}, d.server.users.fallback, map[string]string{"key": "value"})
	if err != nil || kept != nil {
		t.Errorf("got the metadata %v and error %v, want none", kept, err)
	}
	if got, err := io.ReadAll(reader); string(got) != "text" || err != nil {
		t.Errorf("the reader got %q and error %v, want %q", got, err, "text")
	}
	if n := descriptors(t)[pipe]; n != 1 {
		t.Errorf("the pipe is open %d times, want once", n)
	}
}

// TestRoomFor checks for which uploads the disk is asked for room, and which disk.
func TestRoomFor(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/old", "")
	const huge = 1 << 62
	for _, tt := range []struct {
		path, scratch string
		length        int64
		want          error
	}{
		{d.home + "/new", "/proc", huge, unix.ENOSPC}, {d.home + "/a/b/new", "/proc", huge, unix.ENOSPC},
		{d.home + "/old", "/proc", huge, nil}, // it is prepared where the size of the disk is unknown
		{d.home + "/old", d.home, huge, unix.ENOSPC}, {"/proc/new", d.home, huge, nil},
		{"/dev/null", d.home, huge, nil}, {d.home + "/new", d.home, block + 1, nil}, {d.home + "/new", d.home, -1, nil},
	} {
		d.server.scratch = tt.scratch
		if err := d.server.roomFor(tt.path, tt.length); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%d bytes for %s, prepared in %s: got error %v, want %v", tt.length, tt.path, tt.scratch, err, tt.want)
		}
	}
}
