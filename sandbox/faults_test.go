package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFaultsOfClients checks what a client does if the service fails halfway.
func TestFaultsOfClients(t *testing.T) {
	t.Parallel()
	must.Do(t, (*Client)(nil).Close())
	s := newService(t)
	c := s.client()
	const list = `[{"sandboxID":"i1"},{"sandboxID":"i2"},{"sandboxID":"i3"}]`
	lists := 0 // the status of a list
	s.control = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && lists != 0:
			w.WriteHeader(lists)
			_, _ = io.WriteString(w, list)
		case strings.HasSuffix(r.URL.Path, "/i1"):
			w.WriteHeader(http.StatusNotFound) // somebody else has killed it
		case strings.HasSuffix(r.URL.Path, "/i2"):
			w.WriteHeader(http.StatusForbidden)
		}
	}
	reap := &ReapParams{Metadata: map[string]string{"a": "b"}}
	for _, p := range []*ReapParams{nil, {}} {
		if killed, err := c.Reap(t.Context(), p); err == nil || killed != nil || s.seen("") > 0 {
			t.Errorf("Reap without labels: got %v, error %v and %d requests, want an error alone", killed, err, s.seen(""))
		}
	}
	lists = http.StatusForbidden
	if killed, err := c.Reap(t.Context(), reap); !errors.Is(err, api.ErrForbidden) || killed != nil || s.seen(http.MethodDelete) > 0 {
		t.Errorf("Reap, the list is refused: got %v, error %v and %d requests to kill", killed, err, s.seen(http.MethodDelete))
	}
	if _, err := c.GetOrCreate(t.Context(), "n"); !errors.Is(err, api.ErrForbidden) || !strings.Contains(err.Error(), `look for "n"`) {
		t.Errorf("GetOrCreate, the list is refused: got error %v", err)
	}
	lists = http.StatusOK
	killed, err := c.Reap(t.Context(), reap)
	if diff := cmp.Diff([]string{"i3"}, killed); diff != "" || !errors.Is(err, api.ErrForbidden) || strings.Contains(err.Error(), "i1") || !strings.Contains(err.Error(), "reap i2") {
		t.Errorf("Reap: got error %v, want one of i2 alone; killed (-want +got):\n%s", err, diff)
	}
	if got, want := c.URL(&Info{ID: "i1"}, 80), "i1.test.invalid"; !strings.Contains(got, want) && !strings.HasPrefix(got, s.url) {
		t.Errorf("got the URL %s, want one of %s", got, want)
	}
	mine := errors.New("mine")
	bad := createOption(func(*config) error { return mine })
	if _, err := c.GetOrCreate(t.Context(), "n", bad); !errors.Is(err, mine) {
		t.Errorf("GetOrCreate, an option fails: got %v", err)
	}
	if _, err := c.NewPool(nil, bad); !errors.Is(err, mine) {
		t.Errorf("NewPool, an option fails: got %v", err)
	}
	must.Do(t, c.Close())
	if _, err := c.Connect(t.Context(), testID); !errors.Is(err, ErrClosed) {
		t.Errorf("Connect, the client is closed: got %v, want %v", err, ErrClosed)
	}
	if _, err := c.Create(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Create, the client is closed: got %v, want %v", err, ErrClosed)
	}
}

// TestFaultsOfOwnClients checks the functions that create a client of their own.
func TestFaultsOfOwnClients(t *testing.T) {
	t.Parallel()
	s := newService(t)
	refused := true
	s.control = func(w http.ResponseWriter, _ *http.Request) {
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
	}
	opts := []CreateOption{WithAPIKey(testKey), WithAPIURL(s.url), WithSandboxURL(s.url), WithMaxRetries(0)}
	called := false
	use := func(context.Context, *Sandbox) error { called = true; return nil }
	for what, more := range map[string]CreateOption{"the service refuses": WithMaxRetries(0), "no option": nil} {
		if sb, err := Create(t.Context(), append(opts[:4:4], more)...); err == nil || sb != nil {
			t.Errorf("Create, %s: got %v and error %v", what, sb, err)
		}
		if err := Use(t.Context(), use, append(opts[:4:4], more)...); err == nil || called {
			t.Errorf("Use, %s: got error %v, called: %v", what, err, called)
		}
	}
	if n := s.seen("POST"); n != 2 {
		t.Errorf("%d requests to create were sent, want 2", n)
	}
	refused = false
	must.Do(t, Use(t.Context(), use, opts...))
	if !called || s.seen("DELETE") != 1 {
		t.Errorf("Use: called: %v, killed %d times, want once", called, s.seen("DELETE"))
	}
}

// TestFaultsOfFiles checks the paths that are refused here, and answers that cannot be right.
func TestFaultsOfFiles(t *testing.T) {
	t.Parallel()
	s := newService(t)
	answer := ""
	s.files = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, answer)
	}
	name := ""
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != filesystemconnect.FilesystemListDirProcedure {
			return false
		}
		data, err := proto.Marshal(&filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Name: name}}})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/proto")
		_, _ = w.Write(data)
		return true
	}
	files := s.sandbox().Files
	for what, err := range map[string]error{
		"Read": second(files.Read(t.Context(), "a\x00b", nil)), "Write": files.Write(t.Context(), "a\x00b", nil, nil), "Open": second(files.Open(t.Context(), "a\x00", &FileParams{Gzip: true})),
	} {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s of a path with a zero byte: got %v, want %v", what, err, fs.ErrInvalid)
		}
	}
	for content, want := range map[string]error{"": io.ErrUnexpectedEOF, "no gzip at all": nil} {
		answer = content
		if _, err := files.Open(t.Context(), "a", nil); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("the content %q as gzip: got error %v, want %v", content, err, want)
		}
	}
	for _, entry := range []string{"", ".", "..", "a/b", "/", "a\x00", "good", "...", "a b"} {
		name = entry
		good := strings.HasPrefix(entry, "good") || entry == "..." || entry == "a b"
		if list, err := files.List(t.Context(), "d", nil); (err == nil) != good || good && list[0].Name != entry {
			t.Errorf("an entry of the name %q: got %+v and error %v, want it: %v", entry, list, err, good)
		}
	}
	var header http.Header
	s.files = func(_ http.ResponseWriter, r *http.Request) { header = r.Header }
	must.Do(t, files.Write(t.Context(), "a", nil, &FileParams{Metadata: map[string]string{"key": "value", "Other": "2"}}))
	if header.Get("X-Metadata-Key") != "value" || header.Get("X-Metadata-Other") != "2" {
		t.Errorf("got the headers %v, want both labels", header)
	}
}

// TestFaultsOfDirectories checks what happens when a directory of this machine is missing, or is none.
func TestFaultsOfDirectories(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		_ = started(stream, 1)
		switch {
		case strings.Contains(strings.Join(r.GetProcess().GetArgs(), " "), "missing"), r.GetProcess().GetEnvs()["SOURCE"] == "./missing":
			return ended(stream, 102, "exit status 102")
		}
		data := &strings.Builder{}
		archive := tar.NewWriter(data)
		_ = archive.WriteHeader(&tar.Header{Name: "f", Size: 1, Mode: 0o644})
		_, _ = archive.Write([]byte("x"))
		_ = archive.Close()
		_ = errors.Join(stdout(stream, []byte(data.String()[:100])), stdout(stream, []byte(data.String()[100:])))
		return ended(stream, 0, "exit status 0")
	}
	sb := s.sandbox()
	volume := listing{"/": {{Name: "f", Type: "file", Size: 4, Mode: 0o644}}}.open(t)
	local := t.TempDir()
	file, none := filepath.Join(local, "file"), filepath.Join(local, "none")
	must.Do(t, os.WriteFile(file, []byte("kept"), 0o600))
	for what, err := range map[string]error{
		"UploadDir of none": sb.Files.UploadDir(t.Context(), none, "d", nil), "UploadDir to a volume of none": volume.UploadDir(t.Context(), none, "d", nil),
		"DownloadDir to a file": sb.Files.DownloadDir(t.Context(), "d", file, nil), "DownloadDir of a volume to a file": volume.DownloadDir(t.Context(), "/", file, nil),
		"DownloadDir below a file": sb.Files.DownloadDir(t.Context(), "d", file+"/d", nil), "ReadTar of none": sb.Files.ReadTar(t.Context(), "missing", io.Discard, nil),
	} {
		_, ok := errors.AsType[*fs.PathError](err)
		if none := strings.HasSuffix(what, "none"); err == nil || !ok || none != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got error %v, want a *fs.PathError, of a missing file: %v", what, err, none)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("the file has %q, error %v", text, err)
	}
	var packed strings.Builder
	var sent int64
	must.Do(t, sb.Files.ReadTar(t.Context(), "d/", &packed, &TarParams{Progress: func(n int64) { sent = n }}))
	if sent == 0 || int(sent) != packed.Len() {
		t.Errorf("ReadTar reported %d bytes of %d", sent, packed.Len())
	}
	must.Do(t, sb.Files.DownloadDir(t.Context(), "d", filepath.Join(local, "deep", "er"), nil))
	if text, err := os.ReadFile(filepath.Join(local, "deep", "er", "f")); err != nil || string(text) != "x" {
		t.Errorf("the file that was downloaded has %q, error %v", text, err)
	}
}

// TestRedirectsOfPortsAreKept checks that no call follows a redirect of a server in the sandbox: it would send a token to another host.
func TestRedirectsOfPortsAreKept(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	s := newService(t)
	to := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}
	s.files, s.contexts, s.execute, s.rest = to, to, to, to
	sb := s.sandbox()
	for what, err := range map[string]error{
		"Read": second(sb.Files.Read(t.Context(), "a", nil)), "ListContexts": second(sb.Contexts.List(t.Context())), "Write": sb.Files.Write(t.Context(), "a", nil, nil),
	} {
		if err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the other host received %d requests", n)
	}
}

// TestFaultsOfTerminals checks the edges of reading and waiting.
func TestFaultsOfTerminals(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		_ = showed(stream, []byte("hello"))
		<-ctx.Done()
		return ctx.Err()
	}
	sb := s.sandbox()
	terminal := openTerminal(t, sb, nil)
	part := make([]byte, 2)
	for want := int64(0); want <= 4; want += 2 {
		if n, err := terminal.Read(nil); n != 0 || err != nil || terminal.Offset() != want {
			t.Errorf("after %d bytes: read %d into nothing, error %v, offset %d", want, n, err, terminal.Offset())
		}
		if want < 4 {
			must.Do(t, second(io.ReadFull(terminal, part)))
		}
	}
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	if err := terminal.Wait(ctx); !errors.Is(err, mine) || !strings.Contains(err.Error(), fmt.Sprint("terminal 42 in ", testID)) {
		t.Errorf("Wait: got error %v, want %v", err, mine)
	}
	must.Do(t, terminal.Close())
	if killed := s.killed(); len(killed) != 1 || killed[0] != 42 {
		t.Errorf("Close has killed %v, want 42", killed)
	}
	s.list = []*process.ProcessInfo{{Pid: 1, Tag: optional("t")}, {Pid: 2, Tag: optional("t")}}
	if _, err := sb.PTY.Connect(t.Context(), ByTag("t"), nil); err == nil || !strings.Contains(err.Error(), "2 processes have that tag") {
		t.Errorf("Connect to one of two: got error %v", err)
	}
	for _, p := range []*CommandListParams{nil, {}, {Tag: "t"}} {
		if list, err := sb.Commands.List(t.Context(), p); err != nil || len(list) != 2 {
			t.Errorf("%+v: got the commands %v and error %v, want both", p, list, err)
		}
	}
	if list, err := sb.Commands.List(t.Context(), &CommandListParams{Tag: "u"}); err != nil || len(list) != 0 {
		t.Errorf("the commands of another tag: %v, error %v", list, err)
	}
}

// TestReasonOfAClosedPort checks that a port that can never open has the reason of the service.
func TestReasonOfAClosedPort(t *testing.T) {
	t.Parallel()
	p := portClient{newService(t).sandbox(), 3000}
	for extra, want := range map[string]string{"": "nothing listens on port 3000 of the sandbox", `,"noPorts":true`: "nothing listens on port 3000 of the sandbox: it has none"} {
		err := p.routed([]byte(`{"sandboxId":"` + testID + `","port":3000,"message":"it has none"` + extra + `}`))
		if !errors.Is(err, ErrPortClosed) || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", extra, err, want)
		}
	}
}
