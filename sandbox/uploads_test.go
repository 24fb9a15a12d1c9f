package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSilentUploads checks when an upload whose reader returns nothing asks about its destination, and after which answers it ends.
func TestSilentUploads(t *testing.T) {
	t.Parallel()
	broken := &api.Error{Method: "GET", Path: "/"}
	gone, missing, refused := &GoneError{ID: "i1"}, &api.Error{StatusCode: http.StatusNotFound}, &api.Error{StatusCode: http.StatusForbidden}
	const limit = 5 * askInterval
	for _, test := range []struct {
		what    string
		reading bool
		limit   time.Duration
		answer  func(asked int) error
		asked   int // in a minute
		want    error
	}{
		{"nothing is read", false, limit, func(int) error { return gone }, 0, nil},
		{"it is there", true, limit, func(int) error { return nil }, int(time.Minute/askInterval) - 1, nil},
		{"it is gone", true, limit, func(int) error { return gone }, 1, ErrGone},
		{"it is missing", true, limit, func(int) error { return missing }, 1, api.ErrNotFound},
		{"it is refused", true, limit, func(int) error { return refused }, int(time.Minute/askInterval) - 1, nil},
		{"no answer", true, limit, func(int) error { return broken }, 5, broken},
		{"no answer, no limit", true, -1, func(int) error { return broken }, int(time.Minute/askInterval) - 1, nil},
		{"no answer now and then", true, limit, func(asked int) error {
			if asked%5 == 0 {
				return nil
			}
			return broken
		}, int(time.Minute/askInterval) - 1, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			s := &source{reading: test.reading, reads: 3}
			var asked int
			var attending sync.WaitGroup
			attending.Go(func() {
				s.attend(ctx, test.limit, func(asking context.Context) error {
					asked++
					if end, ok := asking.Deadline(); !ok || time.Until(end) > stateTimeout {
						t.Errorf("%s: a question may last until %v", test.what, end)
					}
					return test.answer(asked)
				}, cancel)
			})
			<-time.After(time.Minute)
			synctest.Wait()
			if cause := context.Cause(ctx); asked != test.asked || !errors.Is(cause, test.want) {
				t.Errorf("%s: asked %d times, ended by %v, want %d and %v", test.what, asked, cause, test.asked, test.want)
			}
			cancel(nil)
			attending.Wait()
		})
	}
}

// TestReadsOfAnUpload checks what an upload passes on, counts and keeps of each read of its reader.
func TestReadsOfAnUpload(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	for _, test := range []struct {
		what   string
		r      io.Reader
		length int64
		text   string
		err    error // of the upload
		kept   error // of end
	}{
		{"all", strings.NewReader("abc"), -1, "abc", nil, nil},
		{"as long as it was", strings.NewReader("abc"), 3, "abc", nil, nil},
		{"longer than it was", strings.NewReader("abcdef"), 3, "abc", nil, nil},
		{"shorter than it was", strings.NewReader("ab"), 3, "ab", io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
		{"failed", io.MultiReader(strings.NewReader("ab"), failing{mine}), -1, "ab", mine, mine},
	} {
		var told int64
		var ended error
		s := &source{
			length: test.length, progress: newProgress(func(n int64) { told = n }),
			idle: newIdleTimer(time.Hour, func(err error) { ended = err }),
		}
		reads := 0
		s.r = readerFunc(func(p []byte) (int, error) {
			if reads++; s.silent() != reads {
				t.Errorf("%s: during read %d, the one in progress is %d", test.what, reads, s.silent())
			}
			return test.r.Read(p)
		})
		text, err := io.ReadAll(s)
		s.progress.finish()
		if string(text) != test.text || !errors.Is(err, test.err) || s.silent() != 0 {
			t.Errorf("%s: got %q, error %v, is reading: %d, want %q and %v", test.what, text, err, s.silent(), test.text, test.err)
		}
		if told != int64(len(text)) || s.sent != told {
			t.Errorf("%s: %d bytes reported, %d sent, want %d", test.what, told, s.sent, len(text))
		}
		if kept := s.end(); !errors.Is(kept, test.kept) || test.kept == nil && kept != nil || ended != nil {
			t.Errorf("%s: kept %v, ended by %v, want %v", test.what, kept, ended, test.kept)
		}
		if n, err := s.Read(make([]byte, 1)); (n != 0 || !errors.Is(err, errUploadEnded)) && test.length != s.sent {
			t.Errorf("%s, after its end: read %d bytes, error %v, want %v", test.what, n, err, errUploadEnded)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestAnnouncedLengths checks which readers have a length that is announced.
func TestAnnouncedLengths(t *testing.T) {
	t.Parallel()
	file := func(size, at int64) io.Reader {
		f, err := os.Create(t.TempDir() + "/f")
		must.Do(t, err)
		t.Cleanup(func() { must.Do(t, f.Close()) })
		must.Do(t, f.Truncate(size))
		must.Do(t, second(f.Seek(at, io.SeekStart)))
		return f
	}
	directory, err := os.Open(t.TempDir())
	must.Do(t, err)
	defer directory.Close()
	closed, err := os.Open(os.DevNull)
	must.Do(t, err)
	must.Do(t, closed.Close())
	for what, test := range map[string]struct {
		r    io.Reader
		want int64
	}{
		"a string": {strings.NewReader("abc"), 3}, "nothing": {strings.NewReader(""), 0}, "a directory": {directory, -1}, "a closed file": {closed, -1},
		"a short file": {file(minFileLength-1, 0), -1}, "a file": {file(minFileLength, 0), minFileLength}, "the rest of a file": {file(minFileLength+7, 5), minFileLength + 2},
		"a short rest": {file(minFileLength, 1), -1}, "any reader": {failing{}, -1},
	} {
		if got := lengthOf(test.r); got != test.want {
			t.Errorf("%s: got %d, want %d", what, got, test.want)
		}
	}
}

// several is an error that cannot be compared.
type several []error

func (several) Error() string { return "several" }

// TestUploadOfAnArchiveThatFails checks that an error that cannot be compared, as one of archive/tar, ends an upload as any other does.
func TestUploadOfAnArchiveThatFails(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.files = func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	pack := func(_ context.Context, w io.Writer) error {
		_, _ = w.Write(make([]byte, 1<<16))
		return several{}
	}
	err := s.sandbox().Files.sendArchive(t.Context(), pack, "f", &FileParams{})
	if _, ok := errors.AsType[several](err); !ok || !strings.Contains(err.Error(), "pack the files: several") {
		t.Errorf("got error %v, want the one of the archive", err)
	}
}

// TestInputsWaitForEachOther checks that input waits for the input before it, as long as its context allows.
func TestInputsWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = silent
	s.input = func(*process.SendInputRequest) {}
	command := startCommand(t, s.sandbox(), &CommandParams{Input: true})
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	must.Do(t, command.withInput(ctx, "test", func(context.Context) error {
		cancel(mine)
		for what, err := range map[string]error{"SendInput": command.SendInput(ctx, []byte("x")), "CloseStdin": command.CloseStdin(ctx)} {
			if !errors.Is(err, mine) {
				t.Errorf("%s during other input: got error %v, want %v", what, err, mine)
			}
		}
		return nil
	}))
	must.Do(t, command.SendInput(t.Context(), []byte("x")))
	if command.Offset() != 0 {
		t.Errorf("got the offset %d of no output", command.Offset())
	}
	if err := command.process.sb.act(t.Context(), "x", func(context.Context) error { return &api.Error{StatusCode: 404} }); !errors.Is(err, os.ErrProcessDone) || !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a command that the daemon does not know: got error %v", err)
	}
}
