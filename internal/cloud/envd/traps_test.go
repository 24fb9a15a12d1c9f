//go:build linux

package envd

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestProcessTraps covers the traps of the wire reference that no other test names. The
// numbers are those of the traps.
func TestProcessTraps(t *testing.T) {
	t.Parallel()
	d := serve(t)
	t.Run("3 the end waits for who inherited the output", func(t *testing.T) {
		t.Parallel()
		d := serve(t)
		d.server.processes.grace = patience.Limit // unlike the service, which waits for ever
		r := d.run(t, shell(`mkfifo release; (read x <release; echo late) & echo >release; exit 0`))
		if r.stdout != "late\n" || r.end.GetExitCode() != 0 {
			t.Errorf("got %+v, want stdout %q and exit code 0", r, "late\n")
		}
	})
	t.Run("6 stdin is a pipe unless it is refused", func(t *testing.T) {
		t.Parallel()
		s, pid := d.begin(t, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}}))
		if _, err := d.processes().CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPid(pid)})); err != nil {
			t.Fatal(err)
		}
		if r, err := collect(s); err != nil || r.end.GetExitCode() != 0 {
			t.Errorf("got %+v, %v, want exit code 0 and no error", r, err)
		}
	})
	t.Run("8 any of several tags", func(t *testing.T) {
		t.Parallel()
		for _, tag := range []string{"one", "two", "three"} {
			req := shell(`exec sleep 600`)
			req.Tag = proto.String(tag)
			s, pid := d.begin(t, connect.NewRequest(req))
			watching := d.attach(t, t.Context(), byTag(tag))
			if got := watching.event().GetStart().GetPid(); got != pid {
				t.Errorf("%s is %d, want %d", tag, got, pid)
			}
			t.Cleanup(func() { s.Close() })
		}
	})
	t.Run("10 the start event is flushed at once", func(t *testing.T) {
		t.Parallel()
		s, pid := d.begin(t, connect.NewRequest(shell(`exec sleep 600`)))
		if s.event().GetStart() == nil || pid == 0 {
			t.Errorf("first event %v", s.event())
		}
	})
	t.Run("11 numbers of fields", func(t *testing.T) {
		t.Parallel()
		// StreamInputRequest{data: {input: {stdin: "x"}}}: 2 is data, 2 is input, 1 is stdin.
		want := "\x12\x05\x12\x03\x0a\x01x"
		got, err := proto.Marshal(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{
			Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}}}})
		if err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		got, err = proto.Marshal(&process.ProcessEvent_EndEvent{ExitCode: -1})
		if err != nil || string(got) != "\x08\x01" { // zigzag
			t.Errorf("got %q, %v, want %q and no error", got, err, "\x08\x01")
		}
	})
	t.Run("15 only two signals", func(t *testing.T) {
		t.Parallel()
		_, pid := d.begin(t, connect.NewRequest(shell(`exec sleep 600`)))
		for _, signal := range []process.Signal{0, 1, 2, 15, 9} {
			_, err := d.processes().SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPid(pid), Signal: signal}))
			switch {
			case signal == 15 && err != nil:
				t.Errorf("%d: %v", signal, err)
			case signal < 9 && (connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "invalid signal: ")):
				t.Errorf("%d: %v, want unimplemented", signal, err)
			}
		}
	})
}

// TestFileTraps covers the traps of files and plain HTTP.
func TestFileTraps(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.DefaultWorkdir = o.Users[0].Home + "/work" })
	must.Do(t, os.Mkdir(d.home+"/work", 0o755))
	put(t, d.home+"/a", "of the home")
	put(t, d.home+"/work/a", "of the workdir")
	put(t, d.home+"/a\nb \u20ac", "odd")
	for _, test := range []struct {
		trap, method, target string
		header               []string
		status               int
		body                 string
		want                 map[string]string
	}{
		{"16 relative to the home", "GET", "/files?path=a", nil, 200, "of the home", nil},
		{"16 empty is the workdir", "GET", "/files", nil, 400, `{"code":400,"message":"path '` + d.home + `/work' is a directory"}` + "\n", nil},
		{"20 no HEAD", "HEAD", "/files?path=a", nil, 405, "", map[string]string{"Content-Type": ""}},
		{"20 gzip has no length of the file", "GET", "/files?path=a", []string{"Accept-Encoding", "gzip", "If-Range", ""}, 200, "", map[string]string{"Accept-Ranges": "", "Last-Modified": "", "Content-Encoding": "gzip"}},
		{"the last bytes", "GET", "/files?path=a", []string{"Range", "bytes=-4"}, 206, "home", map[string]string{"Content-Range": "bytes 7-10/11", "Vary": "Accept-Encoding"}},
		{"if nothing matches", "GET", "/files?path=a", []string{"If-None-Match", "*", "Accept-Encoding", "gzip"}, 304, "", nil},
		{"stale range", "GET", "/files?path=a", []string{"Range", "bytes=0-1", "If-Range", "Mon, 02 Jan 2006 15:04:05 GMT"}, 200, "of the home", nil},
		{"odd name", "GET", "/files?path=a%0Ab%20%E2%82%AC", nil, 200, "odd", map[string]string{"Content-Disposition": "inline; filename*=utf-8''a%0Ab%20%E2%82%AC"}},
		{"zero byte", "GET", "/files?path=a%00b", nil, 400, `{"code":400,"message":"path has a zero byte"}` + "\n", nil},
		{"29 a stranger", "GET", "/files?path=a", []string{"Authorization", basic("you")}, 401, `{"code":"unauthenticated","message":"invalid username: 'you'"}`, nil},
		{"29 not Basic at all", "GET", "/files?path=a", []string{"Authorization", "Bearer x"}, 200, "of the home", nil},
	} {
		res, body := d.do(t, test.method, test.target, "", test.header...)
		if res.Header.Get("Content-Encoding") == "gzip" {
			body = ""
		}
		if res.StatusCode != test.status || body != test.body {
			t.Errorf("%s: %d %q, want %d %q", test.trap, res.StatusCode, body, test.status, test.body)
		}
		for key, want := range test.want {
			if got := res.Header.Get(key); got != want {
				t.Errorf("%s: %s: %q, want %q", test.trap, key, got, want)
			}
		}
	}
	// 25: a size is a string, permissions are Go's.
	if _, body := d.do(t, "POST", "/filesystem.Filesystem/Stat", `{"path":"a"}`, "Content-Type", "application/json"); !strings.Contains(compact(t, []byte(body)), `"size":"11"`) ||
		!strings.Contains(compact(t, []byte(body)), `"permissions":"-rw-r--r--"`) {
		t.Errorf("got %q, want %q in it and %q in it", body, `"size":"11"`, `"permissions":"-rw-r--r--"`)
	}
}

func frames(t *testing.T, body string) []string {
	t.Helper()
	var list []string
	for rest := []byte(body); len(rest) > 0; {
		if len(rest) < 5 || len(rest) < 5+int(binary.BigEndian.Uint32(rest[1:5])) {
			t.Fatalf("cut at %q, want a whole frame", rest)
		}
		n := 5 + int(binary.BigEndian.Uint32(rest[1:5]))
		list = append(list, string(rest[:n]))
		rest = rest[n:]
	}
	return list
}

// TestConnectTraps covers the traps of the protocol.
func TestConnectTraps(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const (
		unary, stream = "application/json", "application/connect+json"
		list, start   = "/process.Process/List", "/process.Process/Start"
		run           = `{"process":{"cmd":"/bin/sh","args":["-c","exit 0"]},"stdin":false,"unknown":1}`
	)
	zipped := zip(t, run)
	compressed := "\x01" + string(binary.BigEndian.AppendUint32(nil, uint32(len(zipped)))) + zipped
	for _, test := range []struct {
		trap, target, contentType, body string
		header                          []string
		status                          int
		want                            string // in the last frame, or the body
		zipped                          byte   // 1: the answer is compressed
	}{
		{"30 a stream fails with 200", start, stream, envelope(`{"process":{"cmd":"true","cwd":"/no/such"}}`), nil, 200, `{"error":{"code":"invalid_argument","message":"cwd '/no/such' does not exist"}}`, 0},
		{"32 a compressed envelope", start, stream, compressed, []string{"Connect-Content-Encoding", "gzip"}, 200, `{}`, 1},
		{"32 asked to compress", start, stream, envelope(run), []string{"Connect-Accept-Encoding", "gzip"}, 200, `{}`, 1},
		{"32 the word identity", start, stream, envelope(run), []string{"Connect-Accept-Encoding", "identity", "Connect-Content-Encoding", "identity"}, 200, `{}`, 0},
		{"32 another compression", start, stream, envelope(run), []string{"Connect-Content-Encoding", "br"}, 200, `"code":"unimplemented"`, 0},
		{"32 a compressed message", list, unary, zip(t, `{}`), []string{"Content-Encoding", "gzip"}, 200, `{}`, 1},
		{"32 not compressed", list, unary, `{}`, []string{"Content-Encoding", "gzip"}, 400, `"code":"invalid_argument"`, 0},
		{"33 no message", start, stream, "", nil, 200, `{"error":{"code":`, 0},
		{"33 half an envelope", start, stream, envelope(run)[:20], nil, 200, `protocol error: promised 78 bytes`, 0},
		{"33 two messages", start, stream, envelope(run) + envelope(run), nil, 200, `{"error":{"code":"unimplemented"`, 0},
		{"33 an envelope over the bound", start, stream, "\x00\x7f\xff\xff\xff{}", nil, 200, `{"error":{"code":"resource_exhausted"`, 0},
		{"a body over the bound", list, unary, strings.Repeat(" ", maxMessage+1), nil, 429, `"code":"resource_exhausted"`, 0},
		{"a bomb", list, unary, bomb(t), []string{"Content-Encoding", "gzip"}, 429, `"code":"resource_exhausted"`, 0},
		{"not JSON", list, unary, `{`, nil, 400, `"code":"invalid_argument"`, 0},
		{"no codec", list, "application/xml", `{}`, nil, 415, ``, 0},
		{"a version", list, unary, `{}`, []string{"Connect-Protocol-Version", "1"}, 200, `{}`, 0},
		{"another version", list, unary, `{}`, []string{"Connect-Protocol-Version", "2"}, 400, `"code":"invalid_argument"`, 0},
		{"a timeout that is none", list, unary, `{}`, []string{"Connect-Timeout-Ms", "soon"}, 400, `parse timeout: `, 0},
		{"a timeout of eleven digits", list, unary, `{}`, []string{"Connect-Timeout-Ms", "12345678901"}, 400, `parse timeout: `, 0},
	} {
		res, body := d.do(t, "POST", test.target, test.body, append([]string{"Content-Type", test.contentType}, test.header...)...)
		if test.contentType == stream {
			all := frames(t, body)
			last := all[len(all)-1]
			if want := byte(2 | test.zipped); last[0] != want {
				t.Errorf("%s: the last of %d frames has flags %d, want %d", test.trap, len(all), last[0], want)
			}
			body = last[5:]
		}
		if test.zipped == 1 {
			body = unzip(t, body)
		}
		if res.StatusCode != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %s, want %d with %q", test.trap, res.StatusCode, body, test.status, test.want)
		}
		// 31: clients compare it literally.
		if got := res.Header.Get("Content-Type"); test.status != 415 && got != test.contentType {
			t.Errorf("%s: Content-Type %q, want %q", test.trap, got, test.contentType)
		}
	}
}

// bomb returns a small message that unpacks to more than the limit.
func bomb(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.Copy(w, io.LimitReader(blanks{}, maxMessage+1))
	must.Do(t, err)
	must.Do(t, w.Close())
	return b.String()
}

type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestVanishedClients closes the connection in every state of a stream: nothing of it stays
// except the process, which another client can end.
func TestVanishedClients(t *testing.T) {
	t.Parallel()
	d := serve(t)
	address := strings.TrimPrefix(d.url, "http://")
	body := envelope(`{"process":{"cmd":"/bin/sh","args":["-c","echo started; while :; do echo more more more more; done"]},"tag":"vanished"}`)
	terminal := envelope(`{"process":{"cmd":"/bin/sh","args":["-c","while :; do echo more more more more; done"]},"pty":{"size":{"cols":80,"rows":24}},"tag":"vanished"}`)
	for name, test := range map[string]struct {
		body string
		sent int // of the body
		read int // of the answer
	}{
		"in its request":         {body, 30, 0},
		"before the start event": {body, len(body), 0},
		"after the first bytes":  {body, len(body), 1},
		"in the output":          {body, len(body), 100 << 10},
		"in a terminal's output": {terminal, len(terminal), 100 << 10},
	} {
		conn, err := dialPatiently(t.Context(), "tcp", address)
		must.Do(t, err)
		head := "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\nContent-Length: " + strconv.Itoa(len(test.body)) + "\r\n\r\n"
		if _, err := io.WriteString(conn, head+test.body[:test.sent]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(test.read)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
		if test.sent < len(test.body) {
			continue
		}
		var r *running
		patience.Until(t, name+": the process", func() bool {
			r, err = d.server.processes.find(byTag("vanished"))
			return err == nil
		})
		patience.Until(t, name+": the end of the subscription", func() bool { return len(r.output.current()) == 0 })
		d.kill(t, r.pid, process.Signal_SIGNAL_SIGKILL)
		patience.Until(t, name+": the end of the process", func() bool {
			_, err := d.server.processes.find(byTag("vanished"))
			return err != nil
		})
	}
}

// FuzzConnect sends arbitrary bytes in place of envelopes and messages. None of the
// methods starts or changes anything.
func FuzzConnect(f *testing.F) {
	a, err := New(Options{Users: []User{{Name: "me", Home: f.TempDir()}}})
	must.Do(f, err)
	f.Cleanup(func() { a.Close() })
	h := a.Handler()
	methods := []string{"/process.Process/Connect", "/process.Process/StreamInput", "/process.Process/SendInput", "/process.Process/Update", "/filesystem.Filesystem/Stat", "/filesystem.Filesystem/GetWatcherEvents"}
	types := []string{"application/connect+json", "application/connect+proto", "application/json", "application/proto", "application/grpc-web+proto"}
	for i := range methods {
		for j := range types {
			f.Add(uint8(i), uint8(j), "", []byte(envelope(`{"process":{"pid":1}}`)))
			f.Add(uint8(i), uint8(j), "gzip", []byte("\x01\x00\x00\x00\x05\x1f\x8b\x08\x00\x00"))
		}
	}
	f.Add(uint8(0), uint8(1), "", []byte("\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, method, kind uint8, coding string, body []byte) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, methods[int(method)%len(methods)], bytes.NewReader(body))
		contentType := types[int(kind)%len(types)]
		r.Header.Set("Content-Type", contentType)
		for _, key := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
			r.Header.Set(key, coding)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !strings.HasPrefix(contentType, "application/connect+") || w.Code != http.StatusOK {
			return
		}
		all := frames(t, w.Body.String())
		if len(all) == 0 || all[len(all)-1][0]&2 == 0 {
			t.Errorf("%d frames without an end", len(all))
		}
	})
}

// FuzzFiles sends arbitrary headers and bodies to the plain routes.
func FuzzFiles(f *testing.F) {
	home := f.TempDir()
	a, err := New(Options{Users: []User{{Name: "me", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home}}})
	must.Do(f, err)
	f.Cleanup(func() { a.Close() })
	must.Do(f, os.WriteFile(home+"/file", []byte("0123456789"), 0o644))
	h := a.Handler()
	f.Add("bytes=0-1,3-4", "Basic bWU6", "multipart/form-data; boundary=b", "", []byte("--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n"))
	f.Add("bytes=-0", "Basic ====", "multipart/form-data", "gzip", []byte("\x1f\x8b\x08\x00"))
	f.Add("bytes=9223372036854775807-", "basic Og==", "application/octet-stream", "br", []byte{})
	f.Fuzz(func(t *testing.T, span, authorization, contentType, coding string, body []byte) {
		for _, r := range []*http.Request{
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/files?path=file", nil),
			// All go to one path, regardless of the form.
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/files?path=upload", bytes.NewReader(body)),
		} {
			r.Header.Set("Range", span)
			r.Header.Set("Authorization", authorization)
			r.Header.Set("Content-Type", contentType)
			r.Header.Set("Content-Encoding", coding)
			r.Header.Set("Accept-Encoding", coding)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code == http.StatusInternalServerError && r.Method == http.MethodGet {
				t.Errorf("%s: got %d %s, want any other status", r.Method, w.Code, w.Body)
			}
		}
		list, err := os.ReadDir(home)
		if err != nil || len(list) > 2 {
			t.Errorf("there is %v, %v, want at most 2 files and no error", list, err)
		}
	})
}

// TestTerminalNobodyReads: a process on a terminal waits for its reader and can still be
// killed, and resizing meanwhile does no harm.
func TestTerminalNobodyReads(t *testing.T) {
	t.Parallel()
	d := serve(t)
	d.hesitate(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, pid := d.begin(t, connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "while :; do echo more more more more; done"}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}},
	}))
	r, err := d.server.processes.find(byPid(pid))
	must.Do(t, err)
	patience.Until(t, "a full queue", func() bool {
		all := r.output.current()
		return len(all) == 1 && len(all[0].chunks) == queuedChunks
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(1); ; i++ {
			_, err := d.processes().Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: byPid(pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: i, Rows: i}}}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				return
			}
			if err != nil && connect.CodeOf(err) != connect.CodeInternal {
				t.Errorf("Update: %v", err)
				return
			}
		}
	}()
	// Other processes are not held up.
	if r := d.run(t, shell("echo other")); r.stdout != "other\n" {
		t.Errorf("another process: %+v, want stdout %q", r, "other\n")
	}
	if _, err := d.files().Stat(ctx, connect.NewRequest(&filesystem.StatRequest{})); err != nil {
		t.Error(err)
	}
	d.kill(t, pid, process.Signal_SIGNAL_SIGKILL)
	patience.Receive(t, "the end of the calls", done)
}
