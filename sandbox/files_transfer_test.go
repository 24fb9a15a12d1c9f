package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestTransfersCompressed(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("compress me "), 1<<16)
	s := newService(t)
	var stored []byte
	s.files = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if r.Header.Get("Content-Encoding") != "gzip" {
				t.Errorf("encoding %q", r.Header.Get("Content-Encoding"))
			}
			stored, _ = io.ReadAll(r.Body)
			return
		}
		if r.Header.Get("Accept-Encoding") != preferGzip {
			t.Errorf("accepts %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		if r.URL.Query().Get("path") == "/cut" {
			_, _ = w.Write(stored[:len(stored)/2])
			return
		}
		_, _ = w.Write(stored)
	}
	files := s.sandbox().Files
	var told int64
	p := &FileParams{Gzip: true, Progress: func(n int64) { told = n }}
	must.Do(t, files.WriteFrom(t.Context(), "/x", iotest.HalfReader(bytes.NewReader(content)), p))
	if len(stored) > len(content)/10 || told != int64(len(content)) {
		t.Errorf("%d bytes were sent, %d told, of %d", len(stored), told, len(content))
	}
	told = 0
	if got, err := files.Read(t.Context(), "/x", p); err != nil || !bytes.Equal(got, content) || told != int64(len(content)) {
		t.Errorf("%d bytes, %d told, %v", len(got), told, err)
	}
	if got, err := files.Read(t.Context(), "/cut", p); !errors.Is(err, io.ErrUnexpectedEOF) || got != nil {
		t.Errorf("cut: %d bytes, %v", len(got), err)
	}
}

func TestTransfersThatStandStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		s.files = func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.URL.Query().Get("path") == "/body" {
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
			}
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			<-r.Context().Done()
		}
		files := s.sandbox().Files
		p := &FileParams{IdleTimeout: time.Minute}
		for what, do := range map[string]func() error{
			"head":   func() error { _, err := files.Read(t.Context(), "/head", p); return err },
			"body":   func() error { _, err := files.Read(t.Context(), "/body", p); return err },
			"upload": func() error { return files.WriteText(t.Context(), "/x", "x", p) },
		} {
			began := time.Now()
			if err := do(); !errors.Is(err, ErrIdle) || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: got %v, want ErrIdle", what, err)
			}
			if took := time.Since(began); took != p.IdleTimeout {
				t.Errorf("%s: ended after %v, want %v", what, took, p.IdleTimeout)
			}
		}
		// Time that the caller takes does not count for the transfer.
		r, err := files.Open(t.Context(), "/body", p)
		must.Do(t, err)
		defer r.Close()
		<-time.After(2 * p.IdleTimeout)
		if _, err := io.ReadFull(r, make([]byte, 4)); err != nil {
			t.Errorf("after a pause of the caller: %v", err)
		}
	})
}

func TestUploadToAnOldDaemon(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.files = func(_ http.ResponseWriter, r *http.Request) {
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "multipart/form-data" || r.Header.Get("Content-Encoding") != "" {
			t.Errorf("%v", r.Header)
			return
		}
		part, _, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		if got, _ := io.ReadAll(part); string(got) != "old" || r.URL.Query().Get("path") != "/x" {
			t.Errorf("%q to %s", got, r.URL)
		}
	}
	sb := s.sandbox()
	sb.remote.EnvdVersion = "0.5.6"
	if err := sb.Files.WriteText(t.Context(), "/x", "old", &FileParams{Gzip: true}); err != nil {
		t.Error(err)
	}
	sb.remote.EnvdVersion = "0.1.3"
	_, list := sb.Files.List(t.Context(), "/", &ListFilesParams{MaxDepth: 2})
	_, recursive := sb.Files.Watch(t.Context(), "/", &WatchParams{Recursive: true})
	_, info := sb.Files.Watch(t.Context(), "/", &WatchParams{IncludeInfo: true})
	_, mounts := sb.Files.Watch(t.Context(), "/", &WatchParams{AllowNetworkMounts: true})
	metadata := sb.Files.Write(t.Context(), "/x", nil, &FileParams{Metadata: map[string]string{"a": "b"}})
	for what, err := range map[string]error{"0.1.6": list, "0.1.4": recursive, "0.6.3": info, "0.6.4": mounts, "0.6.2": metadata} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("needs %s: %v", what, err)
		}
	}
}

func TestMetadataRefused(t *testing.T) {
	t.Parallel()
	files := newService(t).sandbox().Files
	for _, m := range []map[string]string{
		{"": "x"}, {"a b": "x"}, {"ä": "x"}, {"a": "x\ny"}, {"a": " x"}, {"a": "é"}, {"a": "", "A": ""},
		{strings.Repeat("k", 247): "x"}, {"a": strings.Repeat("v", 4096)},
	} {
		if err := files.Write(t.Context(), "/x", nil, &FileParams{Metadata: m}); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%.40v: %v", m, err)
		}
	}
	if _, err := files.Read(t.Context(), "/x", &FileParams{Metadata: map[string]string{"a": "b"}}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("read with metadata: %v", err)
	}
}

func TestFileMode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fs.FileMode{
		"-rw-r--r--": 0o644, "drwxr-xr-x": fs.ModeDir | 0o755, "Lrwxrwxrwx": fs.ModeSymlink | 0o777, "dtrwxrwxrwx": fs.ModeDir | fs.ModeSticky | 0o777,
		"Dcrw-rw-rw-": fs.ModeDevice | fs.ModeCharDevice | 0o666, "urwxr-xr-x": fs.ModeSetuid | 0o755,
		"": 0o600, "rwx": 0o600, "-rw-r--r-?": 0o600, "Xrwxrwxrwx": 0o600,
	} {
		if got := fileMode(text, &filesystem.EntryInfo{Mode: 0o600}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
