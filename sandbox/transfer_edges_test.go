package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// A transfer that stands still ends after the usual time, after the one that was asked for,
// or never; time between two reads is the caller's.
func TestIdleTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		s.files = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("path") == "/two" {
				_, _ = io.WriteString(w, "abcd")
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		files := s.sandbox().Files
		for _, tt := range []struct {
			asked, after time.Duration
			want         error
		}{
			{0, DefaultIdleTimeout, ErrIdle}, {time.Second, time.Second, ErrIdle}, {-1, 24 * time.Hour, context.DeadlineExceeded},
		} {
			p := &FileParams{IdleTimeout: tt.asked}
			local := t.TempDir()
			for what, do := range map[string]func(ctx context.Context) error{
				"Read":  func(ctx context.Context) error { return second(files.Read(ctx, "/x", p)) },
				"Write": func(ctx context.Context) error { return files.WriteText(ctx, "/x", "x", p) },
				"UploadDir": func(ctx context.Context) error {
					return files.UploadDir(ctx, local, "x", &UploadDirParams{IdleTimeout: tt.asked})
				},
			} {
				ctx, end := context.WithTimeout(t.Context(), 24*time.Hour)
				began := time.Now()
				if err := do(ctx); !errors.Is(err, tt.want) || errors.Is(err, ErrIdle) != errors.Is(tt.want, ErrIdle) || time.Since(began) != tt.after {
					t.Errorf("%s, %v: got %v after %v, want %v after %v", what, tt.asked, err, time.Since(began), tt.want, tt.after)
				}
				end()
			}
		}
		r, err := files.Open(t.Context(), "/two", &FileParams{IdleTimeout: time.Minute})
		must.Do(t, err)
		defer r.Close()
		for _, want := range []string{"ab", "cd"} {
			got := make([]byte, 2)
			if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
				t.Errorf("got %q and %v, want %q", got, err, want)
			}
			<-time.After(time.Hour)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A file that breaks off is an error that names it, however it is read.
func TestBrokenReadNamesItsFile(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.files = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	files := s.sandbox().Files
	for what, do := range map[string]func() ([]byte, error){
		"Read": func() ([]byte, error) { return files.Read(t.Context(), "/x", nil) },
		"Open": func() ([]byte, error) {
			r, err := files.Open(t.Context(), "/x", nil)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(r)
		},
	} {
		got, err := do()
		if path, ok := errors.AsType[*fs.PathError](err); !ok || path.Op != "read" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: got %q and %v, want an error of the read of a path", what, got, err)
		}
	}
}

// failingBody is a body whose end fails.
type failingBody struct{ io.Reader }

func (failingBody) Close() error { return io.ErrClosedPipe }

func TestCloseOfAFileEndsItsRequest(t *testing.T) {
	t.Parallel()
	ended := 0
	r := &fileReader{body: failingBody{}, end: func() { ended++ }}
	if err := r.Close(); !errors.Is(err, io.ErrClosedPipe) || ended != 1 {
		t.Errorf("got %v and %d ends, want the error of the body and one", err, ended)
	}
}

// TestUploadsSayTheirLength checks that an upload has a length if that is certain: the number of
// bytes left in a reader.
func TestUploadsSayTheirLength(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var length int64
	var got []byte
	s.files = func(_ http.ResponseWriter, r *http.Request) {
		length = r.ContentLength
		got, _ = io.ReadAll(r.Body)
	}
	files := s.sandbox().Files
	begun := strings.NewReader("--abc")
	_, _ = begun.Seek(2, io.SeekStart)
	for name, tt := range map[string]struct {
		r    io.Reader
		want int64
		text string
	}{
		"strings": {strings.NewReader("abc"), 3, "abc"}, "bytes": {bytes.NewReader([]byte("abc")), 3, "abc"}, "a buffer": {bytes.NewBufferString("abc"), 3, "abc"},
		"one begun": {begun, 3, "abc"}, "an empty one": {strings.NewReader(""), 0, ""}, "nil": {nil, 0, ""},
		"another": {iotest.OneByteReader(strings.NewReader("abc")), -1, "abc"}, "another empty one": {iotest.DataErrReader(strings.NewReader("")), -1, ""},
	} {
		if err := files.WriteFrom(t.Context(), "/x", tt.r, nil); err != nil || length != tt.want || string(got) != tt.text {
			t.Errorf("%s: got %q of the length %d and %v, want %q and %d", name, got, length, err, tt.text, tt.want)
		}
	}
}

// readerFunc is a reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// After the end of an upload neither its reader nor its progress is touched.
func TestEndedUploadLeavesItsReader(t *testing.T) {
	t.Parallel()
	reads, told := 0, 0
	var s *source
	s = &source{
		r:        readerFunc(func(p []byte) (int, error) { reads++; s.end(); return len(p), nil }),
		length:   -1,
		idle:     newIdleTimer(-1, nil),
		progress: newProgress(func(int64) { told++ }),
	}
	for range 2 {
		if n, err := s.Read(make([]byte, 8)); n != 0 || !errors.Is(err, errUploadEnded) {
			t.Errorf("got %d bytes and %v, want %v", n, err, errUploadEnded)
		}
	}
	if reads != 1 || told != 0 {
		t.Errorf("%d reads and %d reports, want one read, which the end overtook, and none", reads, told)
	}
}

// TestUploadsOfFiles checks that the upload of a file has the length that the file has at the
// start, and that a file that changes meanwhile is an error or sent as it was.
func TestUploadsOfFiles(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	text := bytes.Repeat([]byte("0123456789abcdef"), minFileLength/16)
	type upload struct{ length, bytes int64 }
	var change func() error // what happens when the request has come
	came := make(chan upload, 1)
	s := newService(t)
	s.files = func(_ http.ResponseWriter, r *http.Request) {
		if err := change(); err != nil {
			t.Error(err)
		}
		n, _ := io.Copy(io.Discard, r.Body)
		came <- upload{r.ContentLength, n}
	}
	nothing := func() error { return nil }
	whole, more := int64(len(text)), int64(len(text)+100)
	for _, tt := range []struct {
		name   string
		size   int64
		offset int64
		change func() error
		length int64
		want   error
	}{
		{"short", whole - 1, 0, nothing, -1, nil},
		{"long", whole, 0, nothing, whole, nil},
		{"begun", more, 100, nothing, whole, nil},
		{"almost at its end", more, 101, nothing, -1, nil},
		{"that grows", 8 * whole, 0, func() error { return os.Truncate(name, 9*whole) }, 8 * whole, nil},
		{"that shrinks", 64 * whole, 0, func() error { return os.Truncate(name, 0) }, 64 * whole, io.ErrUnexpectedEOF},
	} {
		must.Do(t, os.WriteFile(name, text, 0o600))
		must.Do(t, os.Truncate(name, tt.size))
		file, err := os.Open(name)
		must.Do(t, err)
		_, err = file.Seek(tt.offset, io.SeekStart)
		must.Do(t, err)
		change = tt.change
		err = s.sandbox().Files.WriteFrom(t.Context(), "/x", file, nil)
		got := <-came
		if !errors.Is(err, tt.want) || got.length != tt.length || tt.want == nil && got.bytes != tt.size-tt.offset {
			t.Errorf("a file %s: got %+v and %v, want %d bytes, the length %d and %v", tt.name, got, err, tt.size-tt.offset, tt.length, tt.want)
		}
		must.Do(t, file.Close())
	}
}

// transfers is a daemon that notes what is asked of it.
type transfers struct {
	*service
	mu   sync.Mutex
	did  []string
	wait chan struct{} // gets one for each thing done in the background
}

func newTransfers(t *testing.T, upload http.HandlerFunc, start func(ctx context.Context, r *process.StartRequest, stream *startStream) error) *transfers {
	s := &transfers{service: newService(t), wait: make(chan struct{}, 10)}
	note := func(what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.did = append(s.did, what)
	}
	s.files = func(w http.ResponseWriter, r *http.Request) {
		note("upload as " + r.URL.Query().Get("username") + r.Header.Get("Content-Encoding"))
		upload(w, r)
	}
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != filesystemconnect.FilesystemRemoveProcedure {
			return false
		}
		user, _, _ := r.BasicAuth()
		note("remove as " + user)
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		s.wait <- struct{}{}
		return true
	}
	s.start = func(ctx context.Context, r *process.StartRequest, stream *startStream) error {
		args := r.GetProcess().GetArgs()
		if strings.Contains(args[len(args)-1], "for n in {1..20}") {
			note("remove the tree")
			defer func() { s.wait <- struct{}{} }()
			return errors.Join(started(stream, 1), ended(stream, 0, "exit status 0"))
		}
		note("unpack")
		return start(ctx, r, stream)
	}
	return s
}

// TestFailedUploadOfADirectoryCleansUp checks that a failed upload of a directory leaves neither
// its archive nor unpacked files. If its own command ended, that command has removed them already.
func TestFailedUploadOfADirectoryCleansUp(t *testing.T) {
	t.Parallel()
	local := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(local, "large"), make([]byte, 4<<20), 0o600))
	whole := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	exits := func(code int32) func(context.Context, *process.StartRequest, *startStream) error {
		return func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
			return errors.Join(started(stream, 1), ended(stream, code, fmt.Sprintf("exit status %d", code)))
		}
	}
	for name, tt := range map[string]struct {
		upload     http.HandlerFunc
		start      func(context.Context, *process.StartRequest, *startStream) error
		background int
		want       []string
		ok         bool
	}{
		"all is well":           {whole, exits(0), 0, []string{"upload as megzip", "unpack"}, true},
		"refused":               {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, exits(0), 1, []string{"remove as me", "upload as megzip"}, false},
		"cut off":               {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, exits(0), 1, []string{"remove as me", "upload as megzip"}, false},
		"tar fails":             {whole, exits(2), 0, []string{"upload as megzip", "unpack"}, false},
		"the command is broken": {whole, func(context.Context, *process.StartRequest, *startStream) error { return errors.New("broken") }, 2, []string{"remove as me", "remove the tree", "upload as megzip", "unpack"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransfers(t, tt.upload, tt.start)
			err := s.sandbox().Files.UploadDir(t.Context(), local, "x", &UploadDirParams{User: "me", Gzip: true})
			if (err == nil) != tt.ok {
				t.Errorf("got %v, want it to work: %v", err, tt.ok)
			}
			for range tt.background {
				<-s.wait
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			slices.Sort(s.did)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, s.did); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDownloadOfADirectoryEnds checks that a download of a directory ends whatever a sandbox
// sends, with the most informative error.
func TestDownloadOfADirectoryEnds(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	must.Do(t, errors.Join(tw.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 4, Mode: 0o644}), second(io.WriteString(tw, "text")), tw.Close()))
	padded := append(archive.Bytes(), make([]byte, 256<<10)...)
	garbage := bytes.Repeat([]byte("x"), 4096)
	for name, tt := range map[string]struct {
		sent []byte
		code int32
		want error // nil: it works
		says string
	}{
		"an archive":                {archive.Bytes(), 0, nil, ""},
		"one that is padded":        {padded, 0, nil, ""},
		"one of a tar that failed":  {archive.Bytes(), 2, new(ExitError), "exit"},
		"nothing there":             {nil, 102, fs.ErrNotExist, ""},
		"no directory":              {nil, 120, syscall.ENOTDIR, ""},
		"garbage":                   {garbage, 0, tar.ErrHeader, ""},
		"garbage, and tar failed":   {garbage, 2, tar.ErrHeader, ""},
		"half":                      {archive.Bytes()[:514], 0, io.ErrUnexpectedEOF, ""},
		"half, and tar failed":      {archive.Bytes()[:514], 2, new(ExitError), "exit"},
		"nothing, and tar succeeds": {nil, 0, io.ErrUnexpectedEOF, ""},
		"much after an error":       {bytes.Repeat(garbage, 1000), 0, tar.ErrHeader, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
				err := started(stream, 1)
				for sent := range slices.Chunk(tt.sent, 32<<10) {
					err = errors.Join(err, stdout(stream, sent))
				}
				return errors.Join(err, ended(stream, tt.code, fmt.Sprintf("exit status %d", tt.code)))
			}
			var told int64
			local := t.TempDir()
			err := s.sandbox().Files.DownloadDir(t.Context(), "x", local, &DownloadDirParams{Progress: func(n int64) { told = n }})
			switch _, exited := errors.AsType[*ExitError](err); {
			case tt.says == "exit" && !exited:
				t.Errorf("got %v, want that of the command", err)
			case tt.says == "" && !errors.Is(err, tt.want):
				t.Errorf("got %v, want %v", err, tt.want)
			case tt.want == nil && told != int64(len(tt.sent)):
				t.Errorf("told %d bytes, want %d", told, len(tt.sent))
			}
			if text, err := os.ReadFile(filepath.Join(local, "a")); tt.want == nil && (err != nil || string(text) != "text") {
				t.Errorf("got %q and %v, want the file", text, err)
			}
		})
	}
}

// A path that no call can carry is refused before anything is sent or run.
func TestDirectoryOfNoName(t *testing.T) {
	t.Parallel()
	s := newTransfers(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, func(context.Context, *process.StartRequest, *startStream) error {
		return errors.New("it was run")
	})
	files := s.sandbox().Files
	for _, path := range []string{"a\x00b", "a\xff"} {
		for what, err := range map[string]error{
			"DownloadDir": files.DownloadDir(t.Context(), path, t.TempDir(), nil),
			"UploadDir":   files.UploadDir(t.Context(), t.TempDir(), path, nil),
			"ReadTar":     files.ReadTar(t.Context(), path, io.Discard, nil),
			"WriteTar":    files.WriteTar(t.Context(), path, bytes.NewReader(make([]byte, tarEnd)), nil),
		} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s %q: %v, want fs.ErrInvalid", what, path, err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.did) > 0 {
		t.Errorf("the daemon was asked to %q, want nothing", s.did)
	}
}
