package sshserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// recorded is a file whose streams are counted.
type recorded struct {
	mu     sync.Mutex
	data   []byte
	opened []int64 // the offsets of all streams
	closed int
	err    error // of a stream, after the data
}

// source is a stream of a recorded file. Once it has ended, it must not be read.
type source struct {
	from  io.Reader
	of    *recorded
	ended bool
}

func (s *source) Read(p []byte) (int, error) {
	if s.ended {
		panic("a stream that has ended is read again")
	}
	n, err := s.from.Read(p)
	s.ended = err != nil
	return n, err
}

func (s *source) Close() error { s.of.closed++; return nil }

func (f *recorded) reader(done func()) *reader {
	return &reader{
		refused: func(err error) error { return fmt.Errorf("refused: %w", err) },
		closed:  done,
		open: func(offset int64) (io.ReadCloser, error) {
			if offset < 0 {
				return nil, fs.ErrNotExist
			}
			f.opened = append(f.opened, offset)
			rest := io.Reader(bytes.NewReader(f.data[min(offset, int64(len(f.data))):]))
			if f.err != nil {
				rest = io.MultiReader(rest, failing{f.err})
			}
			return &source{from: rest, of: f}, nil
		},
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestReadsAnywhere checks random reads, and that reads which follow each other need one stream.
func TestReadsAnywhere(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f := &recorded{data: content(5*behind + 777)}
	r := f.reader(nil)
	p := make([]byte, 3*behind)
	check := func(offset, n int) {
		t.Helper()
		got, err := r.ReadAt(p[:n], int64(offset))
		want := f.data[min(offset, len(f.data)):min(offset+n, len(f.data))]
		if !bytes.Equal(p[:got], want) || (err == nil) != (len(want) == n) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: got %d bytes and error %v, want %d", n, offset, got, err, len(want))
		}
	}
	for range 200 {
		check(random.IntN(len(f.data)+10), 1+random.IntN(1<<random.IntN(21)))
	}
	f.opened, f.closed = nil, 0
	must.Do(t, r.seek(0))
	const step = 32 << 10
	var offsets []int
	for at := 0; at < len(f.data); at += step {
		offsets = append(offsets, at)
	}
	for at := 0; at+8 < len(offsets); at += 8 { // eight that are answered at once
		random.Shuffle(8, func(a, b int) { offsets[at+a], offsets[at+b] = offsets[at+b], offsets[at+a] })
	}
	for _, offset := range offsets {
		check(offset, step)
	}
	if len(f.opened) != 1 {
		t.Errorf("reads that are a little out of order needed streams from %v on, want one", f.opened)
	}
}

// TestStreamsOfReads checks at which offsets a read needs another stream, and that none stays open.
func TestStreamsOfReads(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		offset int64 // from the next byte on
		opens  bool
	}{{0, false}, {behind, false}, {behind + 1, true}, {-100, false}, {-101, true}} {
		f := &recorded{data: make([]byte, 4*behind)}
		ended := 0
		r := f.reader(func() { ended++ })
		must.Do(t, r.seek(1000))
		_, err := r.ReadAt(make([]byte, 1), 1000)
		must.Do(t, err)
		r.kept = r.kept[len(r.kept)-100:]
		_, err = r.ReadAt(make([]byte, 1), r.next+tt.offset)
		must.Do(t, err)
		if opens := len(f.opened) == 2; opens != tt.opens || opens != (f.closed == 1) {
			t.Errorf("a read %d bytes on: streams from %v on, %d closed", tt.offset, f.opened, f.closed)
		}
		must.Do(t, r.Close())
		if f.closed != len(f.opened) || ended != 1 || r.stream != nil {
			t.Errorf("a read %d bytes on: in the end %d of %d streams are closed, and the file is %d times", tt.offset, f.closed, len(f.opened), ended)
		}
	}
	f := &recorded{data: []byte("text"), err: fs.ErrPermission}
	r := f.reader(func() {})
	p := make([]byte, 4)
	if n, err := r.ReadAt(p, 2); n != 2 || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a stream that breaks: got %d bytes and error %v", n, err)
	}
	if n, err := r.ReadAt(p, -1); n != 0 || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a stream that cannot be opened: got %d bytes and error %v", n, err)
	}
}

// writer returns a writer whose streams go into f.
func (f *recorded) writer() *writer {
	return &writer{open: func(offset int64, _ bool) *upload {
		f.opened = append(f.opened, offset)
		return newUpload(context.Background(), func(ctx context.Context, r io.Reader) error {
			all, err := io.ReadAll(r)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.data = append(f.data, make([]byte, max(0, int(offset)+len(all)-len(f.data)))...)
			copy(f.data[offset:], all)
			return errors.Join(f.err, err, ctx.Err())
		})
	}}
}

// TestWritesAnyOrder checks random writes that may overlap: each byte of the file is from the last write to it.
func TestWritesAnyOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		f := &recorded{}
		w := f.writer()
		var want []byte
		for n := range 40 {
			p := bytes.Repeat([]byte{byte(1 + n)}, 1+random.IntN(50))
			offset := random.IntN(300)
			want = append(want, make([]byte, max(0, offset+len(p)-len(want)))...)
			copy(want[offset:], p)
			if got, err := w.WriteAt(p, int64(offset)); got != len(p) || err != nil {
				t.Fatalf("got %d and error %v, want %d", got, err, len(p))
			}
			clear(p) // it belongs to the caller
		}
		if err := w.close(t.Context()); err != nil || !bytes.Equal(f.data, want) {
			t.Fatalf("got %v and error %v, want %v", f.data, err, want)
		}
		if w.held != 0 || len(w.early) != 0 || w.upload != nil {
			t.Errorf("in the end %d bytes are kept in %d pieces", w.held, len(w.early))
		}
	}
}

// TestStreamsOfWrites checks that writes which are a little out of order need one stream, and that no more
// than the window is kept.
func TestStreamsOfWrites(t *testing.T) {
	t.Parallel()
	for beyond, want := range map[int]int{0: 1, 1: 2} {
		f := &recorded{}
		w := f.writer()
		_, err := w.WriteAt([]byte("a"), 0)
		must.Do(t, err)
		must.Do(t, w.err)
		w.next = 0
		must.Do(t, w.flush())
		f.opened = nil
		w.upload, w.next = w.open(0, true), 0
		_, err = w.WriteAt(make([]byte, window-10), 100)
		must.Do(t, err)
		_, err = w.WriteAt(make([]byte, 10+beyond), 90-int64(beyond))
		must.Do(t, err)
		if held := w.held; (held == window) != (beyond == 0) || held > window {
			t.Errorf("%d bytes beyond the window: %d are kept", beyond, held)
		}
		_, err = w.WriteAt(bytes.Repeat([]byte("x"), 90-beyond), 0)
		must.Do(t, err)
		must.Do(t, w.close(t.Context()))
		if (len(f.opened) == 1) != (want == 1) || len(f.data) != window+90 || f.data[89-beyond] != 'x' || f.data[90-beyond] != 0 {
			t.Errorf("%d bytes beyond the window: streams from %v on, and %d bytes", beyond, f.opened, len(f.data))
		}
	}
}

// TestWritesThatFail checks that the first failure stays, that a file which is incomplete is broken off,
// and that changes are made only to a complete one.
func TestWritesThatFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	changes := ""
	change := func(name string, err error) func(context.Context) error {
		return func(context.Context) error { changes += name; return err }
	}
	f := &recorded{}
	w := f.writer()
	w.first = 10
	if _, err := w.WriteAt([]byte("x"), 9); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("before the end of the file: got error %v", err)
	}
	if _, err := w.WriteAt([]byte("x"), 10); !errors.Is(err, errors.ErrUnsupported) || len(f.opened) != 0 {
		t.Errorf("after a failure: got error %v, and streams from %v on", err, f.opened)
	}
	w.TransferError(broken)
	must.Is(t, w.close(t.Context()), errors.ErrUnsupported)

	w = f.writer()
	w.first = 10
	_, err := w.WriteAt([]byte("x"), 10)
	must.Do(t, err)
	w.atEnd(change("a", nil))
	w.TransferError(broken)
	if err := w.close(t.Context()); !errors.Is(err, broken) || changes != "" || w.upload != nil {
		t.Errorf("a client that left: got error %v and the changes %q", err, changes)
	}

	w = f.writer()
	_, err = w.WriteAt([]byte("x"), 0)
	must.Do(t, err)
	for name, err := range []error{nil, broken, nil} {
		w.atEnd(change(fmt.Sprint(name), err))
	}
	if err := w.close(t.Context()); !errors.Is(err, broken) || changes != "01" {
		t.Errorf("a change that fails: got error %v and the changes %q", err, changes)
	}

	f.err = broken
	w = f.writer()
	_, err = w.WriteAt([]byte("x"), 0)
	must.Do(t, err)
	w.atEnd(change("never", nil))
	if err := w.flush(); !errors.Is(err, broken) {
		t.Errorf("a stream that fails: got error %v", err)
	}
	if err := w.close(t.Context()); !errors.Is(err, broken) || changes != "01" {
		t.Errorf("afterwards: got error %v and the changes %q", err, changes)
	}
	for name, offsets := range map[string][]int64{"the first write": {0}, "the next write": {0, 1}, "a write elsewhere": {0, 1, 0}, "one that was kept": {2, 1, 0}, "those that overlap": {2, 2}} {
		w := &writer{open: func(int64, bool) *upload {
			return newUpload(t.Context(), func(_ context.Context, r io.Reader) error {
				_, _ = io.ReadFull(r, make([]byte, len(offsets)-1)) // all but the last one
				return broken
			})
		}}
		var err error
		for n, offset := range offsets {
			if _, err = w.WriteAt([]byte("x"), offset); err != nil && n < len(offsets)-1 {
				t.Errorf("%s: the write %d: got error %v", name, n, err)
			}
		}
		if name == "those that overlap" {
			err = w.flush()
		}
		if !errors.Is(err, broken) {
			t.Errorf("%s: got error %v, want %v", name, err, broken)
		}
		must.Is(t, w.close(t.Context()), broken)
	}
	refused := newUpload(t.Context(), func(context.Context, io.Reader) error { return broken })
	if _, err := refused.Write([]byte("x")); !errors.Is(err, broken) {
		t.Errorf("a write to a stream that has failed: got error %v", err)
	}
	must.Is(t, refused.end(nil), broken)
	early := newUpload(t.Context(), func(context.Context, io.Reader) error { return nil })
	if _, err := early.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write to a stream that has ended: got error %v", err)
	}
	must.Do(t, early.end(nil))
	ended := make(chan error, 1)
	waits := newUpload(t.Context(), func(ctx context.Context, _ io.Reader) error { <-ctx.Done(); return ctx.Err() })
	go func() { ended <- waits.end(broken) }()
	must.Is(t, patience.Receive(t, "the end of the upload", ended), context.Canceled)
}

// TestLostWrites checks that a file is not taken for a whole one if any of its streams lost bytes, whichever write
// or flush ends that stream, and that nothing is written after such a loss.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		offsets []int64
		breaks  int // the stream that loses its bytes at its end
		opened  []int64
	}{
		"the only one":                  {[]int64{0, 1}, 0, []int64{0}},
		"before one kept write":         {[]int64{0, 2}, 0, []int64{0}},
		"before two kept writes":        {[]int64{0, 2, 4}, 0, []int64{0}},
		"between two kept writes":       {[]int64{0, 2, 4}, 1, []int64{0, 2}},
		"after two kept writes":         {[]int64{0, 2, 4}, 2, []int64{0, 2, 4}},
		"before a write further front":  {[]int64{5, 0}, 0, []int64{5}},
		"before kept and overlapping":   {[]int64{0, 2, 4, 2}, 0, []int64{0}},
		"between kept and overlapping":  {[]int64{0, 2, 4, 2}, 1, []int64{0, 2}},
		"after kept and an overlapping": {[]int64{0, 2, 4, 2}, 3, []int64{0, 2, 4, 2}},
	} {
		var opened []int64
		w := &writer{open: func(offset int64, _ bool) *upload {
			n := len(opened)
			opened = append(opened, offset)
			return newUpload(t.Context(), func(_ context.Context, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				if n == tt.breaks {
					return broken
				}
				return err
			})
		}}
		w.upload, w.next = w.open(tt.offsets[0], true), tt.offsets[0]
		for n, offset := range tt.offsets {
			if _, err := w.WriteAt([]byte("x"), offset); err != nil && (n == 0 || !errors.Is(err, broken)) {
				t.Errorf("%s: the write %d: got error %v", name, n, err)
			}
		}
		must.Is(t, w.flush(), broken)
		must.Is(t, w.close(t.Context()), broken)
		if !slices.Equal(opened, tt.opened) || w.upload != nil {
			t.Errorf("%s: got streams from %v on, want %v, and all of them ended", name, opened, tt.opened)
		}
	}
	w := (&recorded{}).writer()
	_, err := w.WriteAt([]byte("x"), 2)
	must.Do(t, err)
	w.TransferError(broken)
	for range 2 { // the second one overlaps no write that is kept
		if _, err := w.WriteAt([]byte("x"), 2); !errors.Is(err, broken) {
			t.Errorf("a write after the client has left: got error %v", err)
		}
	}
	must.Is(t, w.close(t.Context()), broken)
}

// TestNames checks names of users, variables and signals, and the ends of programs.
func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"user": true, "1000:1000": true, "ü": true, strings.Repeat("x", maxUser): true, strings.Repeat("x", maxUser+1): false, "": false, "a\x00": false, "a\u0085": false, "\xff": false} {
		if got := isUserName(name); got != want {
			t.Errorf("the user %q: got %v", name, got)
		}
	}
	for c := range 256 {
		letter := strings.ContainsRune("_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", rune(c))
		if first, later := isVariable(string([]byte{byte(c)})), isVariable("A"+string([]byte{byte(c)})); first != letter || later != (letter || c >= '0' && c <= '9') {
			t.Errorf("the variables %q and A%[1]q: got %v and %v", byte(c), first, later)
		}
	}
	for number, want := range map[int]string{-1: "", 0: "", 1: "HUP", 2: "INT", 5: "5@e2bctl", 9: "KILL", 15: "TERM", 16: "16@e2bctl", 64: "64@e2bctl"} {
		if got := signalName(number); got != want {
			t.Errorf("the signal %d: got %q, want %q", number, got, want)
		}
	}
	for _, tt := range []struct {
		code, signal int
		want         exit
		known        bool
	}{{3, 0, exit{3, 0}, true}, {0, 0, exit{}, true}, {-1, 9, exit{-1, 9}, true}, {-1, 0, exit{}, false}} {
		err := &sandbox.ExitError{Result: &sandbox.CommandResult{ExitCode: tt.code, Signal: tt.signal}}
		if got, err := exited(err); got != tt.want || (err == nil) != tt.known {
			t.Errorf("%+v: got %+v and error %v", tt, got, err)
		}
	}
	if got, err := exited(io.EOF); got != (exit{}) || !errors.Is(err, io.EOF) {
		t.Errorf("another error: got %+v and %v", got, err)
	}
	for n, want := range map[uint32]int{0: 0, 80: 80, 65535: 65535, 65536: 65535, 1<<32 - 1: 65535} {
		if got := bounded(n); got != want {
			t.Errorf("%d columns: got %d, want %d", n, got, want)
		}
	}
}

// TestVariablesAreBounded checks the exact bounds of the variables of a session.
func TestVariablesAreBounded(t *testing.T) {
	t.Parallel()
	set := func(c *session, name, value string) bool {
		return c.setEnv(ssh.Marshal(struct{ Name, Value string }{name, value}))
	}
	for beyond, want := range map[int]bool{0: true, 1: false} {
		c := &session{envs: map[string]string{}}
		if !set(c, "ABC", strings.Repeat("x", 1000)) || set(c, "D", strings.Repeat("x", maxEnvBytes-1004+beyond)) != want {
			t.Errorf("%d bytes beyond the bound: the second one is accepted: %v", beyond, !want)
		}
		if wantSize := map[bool]int{true: maxEnvBytes, false: 1003}[want]; c.size != wantSize || len(c.envs["ABC"]) != 1000 || (c.envs["D"] != "") != want {
			t.Errorf("%d bytes beyond the bound: %d bytes in %d variables", beyond, c.size, len(c.envs))
		}
	}
	c := &session{envs: map[string]string{}}
	for name, value := range map[string]string{"1A": "", "": "", "A": "a\x00b"} {
		if set(c, name, value) {
			t.Errorf("the variable %q=%q was accepted", name, value)
		}
	}
	if c.setEnv([]byte("damaged")) || set(c, "LANGUAGE_", "") != true || set(c, "LANG", "") || set(c, "LC_X", "") {
		t.Errorf("got the variables %v", c.envs)
	}
	c = &session{envs: map[string]string{}}
	for n := range maxEnvs + 1 {
		if got := set(c, fmt.Sprintf("A%d", n), ""); got != (n < maxEnvs) {
			t.Errorf("the variable %d of at most %d is accepted: %v", n+1, maxEnvs, got)
		}
	}
}

// TestErrorsForClients checks which status a client gets for an error, and the bound of open files.
func TestErrorsForClients(t *testing.T) {
	t.Parallel()
	broke := 0
	f := &files{server: &server{Config: Config{Message: func(err error) string { return "message of " + err.Error() }, Broke: func() { broke++ }}}}
	for err, want := range map[error]error{
		nil: nil, syscall.ENOENT: sftp.ErrSSHFxNoSuchFile, syscall.EACCES: sftp.ErrSSHFxPermissionDenied, syscall.EPERM: sftp.ErrSSHFxPermissionDenied, errors.ErrUnsupported: sftp.ErrSSHFxOpUnsupported,
	} {
		if got := f.refused(err); got != want { //nolint:errorlint // the library compares them
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
	if got := f.refused(io.EOF); got.Error() != "message of EOF" || broke != 1 {
		t.Errorf("another error: got %v, and the sandbox was looked at %d times", got, broke)
	}
	for stderr, want := range map[string]string{
		"rm: cannot remove 'x': No such file or directory\n": syscall.ENOENT.Error(), "x: Permission denied": syscall.EACCES.Error(),
		"x: Operation not permitted": syscall.EPERM.Error(), "first\nlast\n": "last", "": "",
	} {
		if got := programError(&sandbox.ExitError{Result: &sandbox.CommandResult{ExitCode: 1, Stderr: stderr}}); got.Error() != want {
			t.Errorf("%q: got %v, want %s", stderr, got, want)
		}
	}
	must.Is(t, programError(io.EOF), io.EOF)
	must.Is(t, programError(nil), nil)
	for name, call := range map[string]func(){"opens": func() { must.Do(t, f.opens()) }, "closed": f.closed} {
		if call(); !f.mu.TryLock() {
			t.Fatalf("%s keeps the lock", name)
		}
		f.mu.Unlock()
	}
	for range maxOpen {
		must.Do(t, f.opens())
	}
	if err := f.opens(); err == nil || f.open != maxOpen {
		t.Errorf("one more: got error %v with %d open", err, f.open)
	}
	if f.closed(); f.opens() != nil {
		t.Error("after one was closed, no other can be opened")
	}
	if got, want := joined([][]string{{"a", "b c"}, {"d"}}), "a 'b c' && d"; got != want {
		t.Errorf("got the line %q, want %q", got, want)
	}
	for text, want := range map[string]uint32{"\x00\x00\xff\xff": 0o777, "\x00\x00\x81\xa4": 0o644, "\x00\x00\x01": 1 << 31, "": 1 << 31, "12345": 1 << 31} {
		if got, ok := openMode([]byte(text)); ok != (want != 1<<31) || ok && got != want {
			t.Errorf("%q: got the mode %o, %v", text, got, ok)
		}
	}
}

// TestPagesOfLists checks every page of a list.
func TestPagesOfLists(t *testing.T) {
	t.Parallel()
	at := time.Unix(7, 0)
	var l list
	for n := range 3 {
		l = append(l, fileInfo{sandbox.FileInfo{Name: fmt.Sprint(n), Size: int64(n), Mode: fs.ModeDir | 0o700, ModTime: at}})
	}
	f := l[2]
	if got, want := fmt.Sprint(f.Name(), f.Size(), f.Mode(), f.IsDir(), f.ModTime(), f.Sys()), fmt.Sprint("2", 2, fs.ModeDir|0o700, true, at, nil); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for offset := range int64(5) {
		for size := range 5 {
			to := make([]os.FileInfo, size)
			n, err := l.ListAt(to, offset)
			want := min(size, max(0, 3-int(offset)))
			if n != want || (err == nil) != (n == size && offset < 3) || err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("%d files from %d on: got %d and error %v", size, offset, n, err)
			}
			for i := range n {
				if to[i].Name() != l[int(offset)+i].Name() {
					t.Errorf("%d files from %d on: got %v", size, offset, to[i].Name())
				}
			}
		}
	}
}

// TestKeysThatCannotBeUsed checks which files are refused, and that right ones are not written again.
func TestKeysThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, err := OpenKeys(dir)
	must.Do(t, err)
	before, err := os.Stat(keys.KnownHosts)
	must.Do(t, err)
	again, err := OpenKeys(dir)
	must.Do(t, err)
	after, err := os.Stat(keys.KnownHosts)
	must.Do(t, err)
	if !os.SameFile(before, after) || !bytes.Equal(keys.Client.Marshal(), again.Client.Marshal()) || again.ClientFile != filepath.Join(dir, "id_ed25519") {
		t.Errorf("the second time: got %+v, want %+v and the same files", again, keys)
	}
	if known, err := os.ReadFile(keys.KnownHosts); err != nil || !strings.HasPrefix(string(known), HostAlias+" ssh-ed25519 ") || !strings.HasSuffix(string(known), "\n") {
		t.Errorf("the known hosts are %q (%v)", known, err)
	}
	if _, err := OpenKeys(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: got error %v", err)
	}
	for _, name := range []string{"id_ed25519", "host_ed25519"} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		must.Do(t, err)
		must.Do(t, os.WriteFile(path, []byte("no key"), 0o600))
		if _, err := OpenKeys(dir); err == nil || !strings.Contains(err.Error(), path+" is no private key") {
			t.Errorf("a damaged %s: got error %v", name, err)
		}
		must.Do(t, os.Remove(path))
		must.Do(t, os.Mkdir(path, 0o700))
		if _, err := OpenKeys(dir); !errors.Is(err, syscall.EISDIR) {
			t.Errorf("a directory in the place of %s: got error %v", name, err)
		}
		must.Do(t, errors.Join(os.Remove(path), os.WriteFile(path, good, 0o600)))
	}
	must.Do(t, errors.Join(os.Remove(keys.KnownHosts), os.Mkdir(keys.KnownHosts, 0o700)))
	if _, err := OpenKeys(dir); err == nil {
		t.Error("a directory in the place of the known hosts was accepted")
	}
	left, err := os.ReadDir(dir)
	must.Do(t, err)
	if names := slices.Collect(func(yield func(string) bool) {
		for _, entry := range left {
			_ = yield(entry.Name())
		}
	}); len(names) != 3 {
		t.Errorf("left %v, want no other files", names)
	}
}
