package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	s := newService(t)
	stored := map[string][]byte{}
	s.files = func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Query().Get("path")
		if user := r.URL.Query().Get("username"); user != "root" {
			t.Errorf("user = %q", user)
		}
		if r.Method == http.MethodPost {
			if r.Header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("content type %q", r.Header.Get("Content-Type"))
			}
			stored[path], _ = io.ReadAll(r.Body)
			fmt.Fprintf(w, `[{"path":%q}]`, path)
			return
		}
		if r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("accepts %q", r.Header.Get("Accept-Encoding"))
		}
		_, _ = w.Write(stored[path])
	}
	sb := s.sandbox()
	root := &FileParams{User: "root"}
	for path, data := range map[string][]byte{"/a b&c?d=é%": []byte("x"), "~/empty": {}, "/big": bytes.Repeat([]byte("0123456789"), 1<<18)} {
		must.Do(t, sb.Files.Write(t.Context(), path, data, root))
		got, err := sb.Files.Read(t.Context(), path, root)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d, %v", path, len(got), len(data), err)
		}
	}
	stored["/nothing"] = []byte("something")
	if err := sb.Files.WriteFiles(t.Context(), []FileContent{{Path: "/nothing"}}, root); err != nil || len(stored["/nothing"]) != 0 {
		t.Errorf("%q, %v", stored["/nothing"], err)
	}
	if err := sb.Files.WriteFrom(t.Context(), "/one", iotest.OneByteReader(strings.NewReader("streamed")), root); err != nil || string(stored["/one"]) != "streamed" {
		t.Errorf("%q, %v", stored["/one"], err)
	}
}

func TestFilesErrors(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{404: fs.ErrNotExist, 400: fs.ErrInvalid, 403: fs.ErrPermission, 507: syscall.ENOSPC} {
		s := newService(t)
		s.files = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"code":%d,"message":"path '/x' is so"}`, status)
		}
		sb := s.sandbox()
		_, read := sb.Files.Read(t.Context(), "/x", nil)
		write := sb.Files.Write(t.Context(), "/x", []byte("y"), nil)
		for _, err := range []error{read, write} {
			path, ok := errors.AsType[*fs.PathError](err)
			if !ok || !errors.Is(err, want) || !strings.HasSuffix(path.Path, ":/x") || !strings.Contains(err.Error(), "is so") {
				t.Errorf("%d: %v", status, err)
			}
		}
	}
}

func TestFilesCutAndCancelled(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.files = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		if r.URL.Query().Get("path") == "/cut" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}
	sb := s.sandbox()
	if data, err := sb.Files.Read(t.Context(), "/cut", nil); !errors.Is(err, io.ErrUnexpectedEOF) || data != nil {
		t.Errorf("a download that was cut: %q, %v", data, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := sb.Files.Open(ctx, "/slow", nil)
	must.Do(t, err)
	if _, err := io.ReadFull(r, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	cancel()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
	for range 2 {
		r.Close()
	}
	// A file that is left open does not keep the handle from closing.
	r, err = sb.Files.Open(t.Context(), "/slow", nil)
	must.Do(t, err)
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	r.Close()
	mine := errors.New("mine")
	s.mu.Lock()
	s.gone = false // Close has ended the sandbox
	s.mu.Unlock()
	if err := s.sandbox().Files.WriteFrom(t.Context(), "/x", iotest.ErrReader(mine), nil); !errors.Is(err, mine) {
		t.Errorf("a reader that fails: %v", err)
	}
}

// An upload of a directory that fails says which directory, and leaves no archive
// behind, not even with a daemon that keeps a part of one.
func TestUploadDirFails(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var sent string
	s.files = func(w http.ResponseWriter, r *http.Request) {
		sent = r.URL.Query().Get("path")
		w.WriteHeader(http.StatusInsufficientStorage)
	}
	removed := make(chan string, 1)
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != filesystemconnect.FilesystemRemoveProcedure {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		var request filesystem.RemoveRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		removed <- request.GetPath()
		w.Header().Set("Content-Type", "application/proto")
		return true
	}
	sb := s.sandbox()
	err := sb.Files.UploadDir(t.Context(), t.TempDir(), "project", nil)
	path, ok := errors.AsType[*fs.PathError](err)
	if !ok || path.Op != "upload" || path.Path != sb.ID()+":project" || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want an *fs.PathError about the upload of project, which is ENOSPC", err)
	}
	if strings.Contains(err.Error(), sent) {
		t.Errorf("got %v, which names the temporary file %s", err, sent)
	}
	if got := <-removed; got != sent || sent == "" {
		t.Errorf("%q was sent, %q removed", sent, got)
	}
}

// Files that were no longer written do not count as success.
func TestWriteFilesCancelled(t *testing.T) {
	t.Parallel()
	s := newService(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.files = func(http.ResponseWriter, *http.Request) { cancel() }
	files := make([]FileContent, 3*parallelWrites)
	for i := range files {
		files[i] = FileContent{Path: fmt.Sprint(i), Content: strings.NewReader("x")}
	}
	sb := s.sandbox()
	for range 2 {
		if err := sb.Files.WriteFiles(ctx, files, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was cancelled", err)
		}
	}
}

// TestWriteFilesFourAtOnce checks how many files are written at once, by the time that readers take.
func TestWriteFilesFourAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		s.files = func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
		files := make([]FileContent, 3*parallelWrites)
		for i := range files {
			files[i] = FileContent{Path: fmt.Sprint(i), Content: readerFunc(func([]byte) (int, error) {
				<-time.After(time.Second)
				return 0, io.EOF
			})}
		}
		sb := s.sandbox()
		began := time.Now()
		must.Do(t, sb.Files.WriteFiles(t.Context(), files, nil))
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("%d files, each of which takes a second, took %v, want 3s", len(files), took)
		}
	})
}
