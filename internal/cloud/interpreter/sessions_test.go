//go:build linux

package interpreter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestModelsOfSessions checks every field of a session and of its kernel, after it is made and each time that it
// is changed, and which kernels a change removes.
func TestModelsOfSessions(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	must.Do(t, os.Mkdir(filepath.Join(s.options.Dir, "dir"), 0o700))
	h := s.Jupyter()
	var id, kernelID string
	settled := false // nothing happens to the kernel while it is asked for
	check := func(what string, answer *httptest.ResponseRecorder, status int, path, name, kind, language string) {
		t.Helper()
		var got map[string]any
		must.Do(t, json.Unmarshal(answer.Body.Bytes(), &got))
		model, _ := got["kernel"].(map[string]any)
		if id == "" {
			id, _ = got["id"].(string)
		}
		kernelID, _ = model["id"].(string)
		k := s.kernelByID(kernelID)
		if k == nil {
			t.Fatalf("%s: got %d %s, want a session", what, answer.Code, answer.Body)
		}
		state, activity := k.State()
		if now, _ := model["execution_state"].(string); !settled && slices.Contains([]string{jupyter.StateStarting, jupyter.StateIdle, jupyter.StateDead}, now) {
			model["execution_state"], model["last_activity"] = state, jupyterTime(activity)
		}
		want := map[string]any{
			"id": id, "path": path, "name": name, "type": kind, "notebook": map[string]any{"path": path, "name": name},
			"kernel": map[string]any{"id": kernelID, "name": language, "last_activity": jupyterTime(activity), "execution_state": state, "connections": 0.0},
		}
		if diff := cmp.Diff(want, got); diff != "" || answer.Code != status {
			t.Errorf("%s: got %d, want %d (-want +got):\n%s", what, answer.Code, status, diff)
		}
	}
	made := ask(h, "POST", "/api/sessions", `{"path":"dir/a","name":"n","type":"t","kernel":{"name":"broken"}}`)
	check("made", made, http.StatusCreated, "dir/a", "n", "t", "broken")
	if got := made.Header().Get("Location"); got != "/api/sessions/"+id {
		t.Errorf("made: got the location %q", got)
	}
	first := kernelID
	if cwd := s.kernelByID(first).cwd; cwd != filepath.Join(s.options.Dir, "dir") {
		t.Errorf("its kernel runs in %s", cwd)
	}
	s.work.Wait() // the kernel has failed to start
	settled = true
	check("asked for", ask(h, "GET", "/api/sessions/"+id, ""), http.StatusOK, "dir/a", "n", "t", "broken")
	check("made again", ask(h, "POST", "/api/sessions", `{"path":"dir/a","type":"other"}`), http.StatusCreated, "dir/a", "n", "t", "broken")
	check("with a path", ask(h, "PATCH", "/api/sessions/"+id, `{"path":"b"}`), http.StatusOK, "b", "n", "t", "broken")
	check("with a name and a type", ask(h, "PATCH", "/api/sessions/"+id, `{"name":"m","type":"u"}`), http.StatusOK, "b", "m", "u", "broken")
	check("with the same kernel", ask(h, "PATCH", "/api/sessions/"+id, `{"kernel":{"id":"`+first+`"}}`), http.StatusOK, "b", "m", "u", "broken")
	settled = false
	check("with another kernel", ask(h, "PATCH", "/api/sessions/"+id, `{"kernel":{"name":"python3"}}`), http.StatusOK, "b", "m", "u", "python3")
	if s.kernelByID(first) != nil || kernelID == first {
		t.Error("the kernel that was replaced is still there")
	}
	for body, want := range map[string]string{`{"type":"t"}`: "path", `{"path":"p"}`: "type"} {
		if answer := ask(h, "POST", "/api/sessions", body); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "Missing field in JSON data: "+want) {
			t.Errorf("%s: got %d %s", body, answer.Code, answer.Body)
		}
	}
	other := ask(h, "POST", "/api/sessions", `{"path":"c","type":"t"}`)
	var list []map[string]any
	must.Do(t, json.Unmarshal(ask(h, "GET", "/api/sessions", "").Body.Bytes(), &list))
	if len(list) != 2 || list[0]["id"] != id || list[1]["path"] != "c" || list[1]["name"] != "" {
		t.Errorf("got the sessions %v after %s", list, other.Body)
	}
	if answer := ask(h, "DELETE", "/api/sessions/"+id, ""); answer.Code != http.StatusNoContent || s.kernelByID(kernelID) != nil || len(s.liveSessions()) != 1 {
		t.Errorf("removed: got %d %s, and %d sessions", answer.Code, answer.Body, len(s.liveSessions()))
	}
}

// TestModelsOfKernels checks every field of the answers about kernels, contexts and the server itself.
func TestModelsOfKernels(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	must.Do(t, os.Mkdir(filepath.Join(s.options.Dir, "dir"), 0o700))
	h := s.Jupyter()
	answer := ask(h, "POST", "/api/kernels", `{"name":"BROKEN","path":"dir/none"}`)
	id := strings.TrimPrefix(answer.Header().Get("Location"), "/api/kernels/")
	k := s.kernelByID(id)
	if k == nil || k.cwd != filepath.Join(s.options.Dir, "dir") || k.isContext {
		t.Fatalf("got %d %s, and the kernel %+v", answer.Code, answer.Body, k)
	}
	s.work.Wait() // the kernel has failed to start, and from now on nothing happens to it
	s.addSocket(&socket{kernel: k})
	s.addSocket(&socket{kernel: s.kernels[0]})
	defer func() {
		for so := range s.sockets {
			s.removeSocket(so)
		}
	}()
	get := func(h http.Handler, path string) (got any) {
		t.Helper()
		must.Do(t, json.Unmarshal(ask(h, "GET", path, "").Body.Bytes(), &got))
		return got
	}
	state, activity := k.State()
	want := map[string]any{"id": id, "name": "broken", "last_activity": jupyterTime(activity), "execution_state": state, "connections": 1.0}
	if diff := cmp.Diff(any(want), get(h, "/api/kernels/"+id)); diff != "" {
		t.Errorf("a kernel (-want +got):\n%s", diff)
	}
	if list := get(h, "/api/kernels").([]any); len(list) != 2 || !cmp.Equal(list[1], any(want)) {
		t.Errorf("got the kernels %v", list)
	}
	status := map[string]any{"connections": 2.0, "kernels": 2.0, "last_activity": jupyterTime(activity), "started": jupyterTime(s.began)}
	if diff := cmp.Diff(any(status), get(h, "/api/status")); diff != "" {
		t.Errorf("the status (-want +got):\n%s", diff)
	}
	spec := map[string]any{
		"name": "broken", "resources": map[string]any{}, "spec": map[string]any{
			"argv": []any{"/bin/false", "{connection_file}"}, "display_name": "Broken", "language": "broken", "interrupt_mode": "signal", "env": map[string]any{}, "metadata": map[string]any{},
		},
	}
	if diff := cmp.Diff(any(spec), get(h, "/api/kernelspecs/broken")); diff != "" {
		t.Errorf("its spec (-want +got):\n%s", diff)
	}
	if got := specModel(&zmq.Spec{Env: map[string]string{"A": "b"}})["spec"].(map[string]any)["env"]; !cmp.Equal(got, map[string]string{"A": "b"}) {
		t.Errorf("got the variables %v", got)
	}
	contexts := []any{map[string]any{"id": s.DefaultID(), "language": "python", "cwd": s.options.Dir}}
	if diff := cmp.Diff(any(contexts), get(s.Interpreter(), "/contexts")); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
}

// TestOptionsOfKernels checks that a kernel gets every option of its server.
func TestOptionsOfKernels(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	s.options.Python, s.options.Wasm, s.options.Credential = []string{"python3"}, &kernel.Wasm{Command: []string{"wasm"}}, &syscall.Credential{}
	s.options.Memory, s.options.Warm = &child.Memory{}, &kernel.Warm{}
	k, err := s.addKernel(&runningKernel{spec: &zmq.Spec{Name: "x"}})
	must.Do(t, err)
	spec := reflect.ValueOf(k.Kernel).Elem().FieldByName("spec")
	for field, value := range spec.Fields() {
		if value.IsZero() != (field.Name == "AnswerTimeout") {
			t.Errorf("the kernel has %s: %v", field.Name, !value.IsZero())
		}
	}
	s.removeKernel(k)
	for _, tt := range []struct {
		python []string
		fits   bool
	}{{nil, true}, {[]string{"python3"}, true}, {[]string{"/usr/bin/python3", "-I"}, true}, {[]string{"./python3"}, false}, {[]string{"bin/python3"}, false}} {
		s, err := New(Options{Python: tt.python, Environ: func() ([]string, error) { return nil, nil }, Dir: t.TempDir(), Scratch: t.TempDir()})
		if (err == nil) != tt.fits {
			t.Errorf("%q: got error %v, want none: %v", tt.python, err, tt.fits)
		}
		if err == nil {
			must.Do(t, s.Close())
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	if _, err := New(Options{Scratch: file}); err == nil {
		t.Error("a server without its files was made")
	}
}

// TestClosedServer checks that a closed server has no kernels, runs nothing and takes nothing new.
func TestClosedServer(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	k := s.kernels[0]
	must.Do(t, s.Close())
	if id := s.DefaultID(); id != "" || s.Busy() || len(s.listKernels()) > 0 {
		t.Errorf("it has the default %q, busy %v, and %d kernels", id, s.Busy(), len(s.listKernels()))
	}
	if s.background(nil) {
		t.Error("it runs something")
	}
	if _, err := s.openBuffer(&socket{kernel: k}); !errors.Is(err, errNoBuffer) {
		t.Errorf("a buffer: got error %v, want %v", err, errNoBuffer)
	}
	for path, want := range map[string]int{"/api/kernels": http.StatusServiceUnavailable, "/api/sessions": http.StatusServiceUnavailable} {
		if answer := ask(s.Jupyter(), "POST", path, `{"path":"p","type":"t"}`); answer.Code != want {
			t.Errorf("%s: got %d %s, want %d", path, answer.Code, answer.Body, want)
		}
	}
}

// TestFailedRestarts checks the answers to restarts of a kernel that does not start.
func TestFailedRestarts(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	id := s.DefaultID()
	if answer := ask(s.Interpreter(), "POST", "/contexts/default/restart", ""); answer.Code != http.StatusInternalServerError || answer.Body.String() != "Failed to restart context "+id {
		t.Errorf("a context: got %d %s", answer.Code, answer.Body)
	}
	if answer := ask(s.Jupyter(), "POST", "/api/kernels/"+id+"/restart", ""); answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), `"message":"kernel: `) {
		t.Errorf("a kernel: got %d %s", answer.Code, answer.Body)
	}
}

// TestDefaultMeansPython checks which kernels the interpreter's port finds, and that "default" is Python's context.
func TestDefaultMeansPython(t *testing.T) {
	t.Parallel()
	kernels := map[string]*runningKernel{
		"a kernel": {id: "a", isDefault: true, language: "python"}, "another context": {id: "b", isContext: true, language: "python"},
		"another language": {id: "c", isContext: true, isDefault: true, language: "javascript"}, "the default": {id: "d", isContext: true, isDefault: true, language: "python"},
	}
	for name, k := range kernels {
		s := &Server{kernels: []*runningKernel{k}}
		w := httptest.NewRecorder()
		if got := s.contextByID(w, k.id); (got == k) != k.isContext || (w.Code == http.StatusNotFound) == k.isContext {
			t.Errorf("%s by its id: got %+v and %d", name, got, w.Code)
		}
		if got := s.contextByID(httptest.NewRecorder(), "default"); (got == k) != (name == "the default") {
			t.Errorf("%s as the default: got %+v", name, got)
		}
	}
}

// TestKernelsOfLanguages checks which installed kernel runs a language, and the error of a missing or broken one.
func TestKernelsOfLanguages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	install := func(name, spec string) {
		must.Do(t, os.MkdirAll(filepath.Join(dir, "kernels", name), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, "kernels", name, "kernel.json"), []byte(spec), 0o644))
	}
	s := &Server{options: Options{Dir: t.TempDir(), Environ: func() ([]string, error) { return []string{"JUPYTER_PATH=" + dir, "HOME=" + dir}, nil }}}
	check := func(what, language, want string, missing bool) {
		t.Helper()
		spec, err := s.kernelFor(language)
		_, isMissing := errors.AsType[errNoKernel](err)
		got := ""
		if spec != nil {
			got = spec.Name
		}
		if got != want || isMissing != missing {
			t.Errorf("%s: %s runs in %q, error %v, want %q, missing: %v", what, language, got, err, want, missing)
		}
	}
	for _, language := range []string{"", "python", "python3"} {
		check("at first", language, "", false)
	}
	for _, language := range []string{"javascript", "typescript", "r", "bash", "deno"} {
		check("at first", language, "", true)
	}
	const spec = `{"argv":["x"],"display_name":"x","language":"x"}`
	install("deno", spec)
	install("ir", spec)
	check("installed", "javascript", "deno", false)
	check("installed", "typescript", "deno", false)
	check("installed", "r", "ir", false)
	check("installed", "deno", "deno", false)
	install("javascript", spec)
	install("r", "{")
	check("beside others", "javascript", "javascript", false)
	check("beside others", "typescript", "javascript", false)
	check("broken", "r", "", false) // the error is that of the broken file
	if _, err := s.kernelFor("r"); err == nil {
		t.Error("a broken kernel: got no error")
	}
	s.options.Wasm = &kernel.Wasm{Command: []string{"wasm", "python"}}
	check("with WebAssembly", "javascript", "", true)
	check("with WebAssembly", "python", "", false)
	if _, err := s.kernelFor("r"); err == nil || !strings.Contains(err.Error(), "Sandboxes of the wasm engine run Python only.") {
		t.Errorf("with WebAssembly: got error %v", err)
	}
	models := s.specModels()
	python, _ := models["python3"].(map[string]any)
	if model, _ := python["spec"].(map[string]any); len(models) != 1 || !cmp.Equal(model["argv"], []string{"wasm", "python"}) {
		t.Errorf("with WebAssembly: got the kernels %v", models)
	}
}

// TestIncompleteBodies checks the answers to bodies that end too early, are no JSON, or whose parts are too long to be repeated.
func TestIncompleteBodies(t *testing.T) {
	t.Parallel()
	broken := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", iotest.ErrReader(errors.New("broken")))
	w := httptest.NewRecorder()
	if readBody(w, broken) || w.Code != http.StatusBadRequest || w.Body.String() != "the body is incomplete" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	if readJupyter(w, broken, nil) || w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Invalid JSON in body of request") {
		t.Errorf("Jupyter: got %d %s", w.Code, w.Body)
	}
	for beyond, want := range map[int]bool{0: true, 1: false} {
		body := "[" + strings.Repeat(" ", maxEcho-3+beyond) + "1]"
		w := httptest.NewRecorder()
		if readBody(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))) || strings.Contains(w.Body.String(), `"input":[1]`) != want {
			t.Errorf("%d bytes beyond the bound: got %d %s, want it to be repeated: %v", beyond, w.Code, w.Body, want)
		}
		w = httptest.NewRecorder()
		long := strings.Repeat(" ", maxJupyterBody-2+beyond) + "{}"
		if ok := readJupyter(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(long)), new(struct{})); ok != want {
			t.Errorf("Jupyter, %d bytes beyond the bound: got %d %s, want it to be read: %v", beyond, w.Code, w.Body, want)
		}
	}
}

// newBuffers returns a server whose first kernel has one buffer for each of the sessions.
func newBuffers(t *testing.T, sessions ...string) (*Server, []*sessionBuffer) {
	t.Helper()
	s := withoutPython(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range sessions {
		s.newBuffer(&socket{kernel: s.kernels[0], session: session})
	}
	return s, slices.Clone(s.buffers)
}

// TestPlacesOfBuffers checks that the oldest buffer without a connection makes room for another one, and that
// there is no room beside connections.
func TestPlacesOfBuffers(t *testing.T) {
	t.Parallel()
	s, buffers := newBuffers(t, make([]string, maxSockets-1)...)
	attach := func(b *sessionBuffer) {
		if before, ok := b.attach(&socket{shut: func() {}}); before != nil || !ok {
			t.Fatalf("got the connection %v and %v", before, ok)
		}
	}
	for i, b := range buffers {
		if i != 3 && i != 5 {
			attach(b)
		}
	}
	add := func() *sessionBuffer {
		s.mu.Lock()
		defer s.mu.Unlock()
		b := s.newBuffer(&socket{kernel: s.kernels[0]})
		if len(s.buffers) > maxSockets {
			t.Errorf("there are %d buffers", len(s.buffers))
		}
		return b
	}
	attach(add()) // the last place
	for _, i := range []int{3, 5} {
		attach(add())
		s.work.Wait()
		for j, b := range buffers {
			if b.closed != (j == i || j == 3) {
				t.Errorf("the buffer %d is closed: %v", j, b.closed)
			}
		}
	}
	if b := add(); b != nil {
		t.Error("there is room beside connections")
	}
}

// TestLifeOfABuffer checks for how long a buffer is kept without a connection, and that it is kept with one.
func TestLifeOfABuffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, buffers := newBuffers(t, "a", "b", "")
		there := func(what string, want ...bool) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			for i, b := range buffers {
				if got := slices.Contains(s.buffers, b); got != want[i] || b.closed == want[i] {
					t.Errorf("%s: the buffer %d is there: %v, closed %v, want it there: %v", what, i, got, b.closed, want[i])
				}
			}
		}
		for _, b := range buffers {
			b.put(&jupyter.Message{Channel: jupyter.IOPub}, absentBytes, false)
			b.attach(&socket{shut: func() {}})
			if b.next() == nil || b.next() != nil {
				t.Error("the connection does not get the one message")
			}
		}
		if before, ok := buffers[0].attach(new(socket)); before == nil || ok || !buffers[0].attached() {
			t.Error("a second connection took the place of the first")
		}
		<-time.After(2 * absence)
		there("with connections", true, true, true)
		buffers[0].detach()
		buffers[2].detach()
		there("without a connection", true, true, false)
		if buffers[0].attached() || buffers[2].put(&jupyter.Message{}, 0, false) != true {
			t.Error("a connection that has ended is still there")
		}
		<-time.After(absence - time.Second)
		there("shortly before the end", true, true, false)
		buffers[0].attach(new(socket))
		if buffers[0].next() == nil {
			t.Error("a message that was not acknowledged is not sent again")
		}
		<-time.After(2 * time.Second)
		there("with a later connection", true, true, false)
		buffers[0].detach()
		<-time.After(absence)
		there("at the end", false, true, false)
		must.Do(t, s.Close())
	})
}

// TestBuffersOfOneKernel checks that the end of a kernel ends its own buffers and no others, whether or not they
// have connections, and that sessions of other kernels stay.
func TestBuffersOfOneKernel(t *testing.T) {
	t.Parallel()
	s, buffers := newBuffers(t, "absent", "attached")
	k, err := s.addKernel(&runningKernel{})
	must.Do(t, err)
	ended := false
	buffers[1].attach(&socket{shut: func() { ended = true }})
	other, err := s.openBuffer(&socket{kernel: k, session: "attached", shut: func() {}, ctx: t.Context()})
	must.Do(t, err)
	if other == buffers[1] {
		t.Fatal("sessions of two kernels share a buffer")
	}
	s.sessions = []*session{{id: "first", kernel: s.kernels[0]}, {id: "second", kernel: k}}
	s.removeKernel(s.kernels[0])
	if !buffers[0].closed || !buffers[1].closed || !ended || other.closed {
		t.Errorf("closed: %v, %v and %v, and the connection has ended: %v", buffers[0].closed, buffers[1].closed, other.closed, ended)
	}
	if live := s.liveSessions(); len(live) != 1 || live[0].id != "second" {
		t.Errorf("%d sessions are left", len(live))
	}
	buffers[1].detach()
	if len(s.buffers) != 1 || s.buffers[0] != other {
		t.Errorf("%d buffers are left, want the one of the other kernel", len(s.buffers))
	}
	other.detach()
}

// TestAnswersToEarlierQuestions checks which answers are late.
func TestAnswersToEarlierQuestions(t *testing.T) {
	t.Parallel()
	_, buffers := newBuffers(t, "s")
	b := buffers[0]
	for _, channel := range []string{jupyter.Stdin, jupyter.IOPub, jupyter.Stdin, jupyter.Shell} {
		b.put(&jupyter.Message{Channel: channel}, absentBytes, false)
	}
	for id, late := range map[string]bool{b.own + "_0": true, b.own + "_1": true, b.own + "_2": false, b.own: false, "": false, "other_0": false} {
		if got := b.asksNoMore(id); got != late {
			t.Errorf("%q is late: %v, want %v", id, got, late)
		}
	}
	so := &socket{buffer: b}
	if err := so.takeStdin(&jupyter.Message{Content: json.RawMessage(`[]`)}); !errors.Is(err, errProtocol) {
		t.Errorf("an answer of another kind: got error %v, want %v", err, errProtocol)
	}
	if err := so.takeControl(&jupyter.Message{Header: jupyter.NewHeader("shutdown_request", "s", "u"), Content: json.RawMessage(`[]`)}); !errors.Is(err, errProtocol) {
		t.Errorf("a shutdown of another kind: got error %v, want %v", err, errProtocol)
	}
}

// TestRequestsOnChannels checks the messages that answer each request of a client whose kernel does not start, and
// what becomes of the kernel.
func TestRequestsOnChannels(t *testing.T) {
	t.Parallel()
	const busy, idle = `iopub status {"execution_state":"busy"}`, `iopub status {"execution_state":"idle"}`
	for name, tt := range map[string]struct {
		channel, content string
		want             []string // %s stands for the error
		removed          bool
	}{
		"interrupt_request":        {jupyter.Control, `{}`, []string{busy, `control interrupt_reply {"status":"ok"}`, idle}, false},
		"shutdown_request":         {jupyter.Control, `{"restart":false}`, []string{busy, `control shutdown_reply {"restart":false,"status":"ok"}`, idle}, true},
		"shutdown_request restart": {jupyter.Control, `{"restart":true}`, []string{busy, `control shutdown_reply {"restart":true,"status":"ok"}`, idle}, false},
		"kernel_info_request":      {jupyter.Control, `{}`, []string{busy, `control kernel_info_reply error`, idle}, false},
		"debug_request":            {jupyter.Control, `{}`, []string{busy, `control debug_reply error`, idle}, false},
		"execute_request closed":   {jupyter.Shell, `{}`, []string{busy, `shell execute_reply error`, idle}, false},
	} {
		s, buffers := newBuffers(t, "s")
		b, k := buffers[0], s.kernels[0]
		kind, closed, _ := strings.Cut(name, " ")
		if closed == "closed" {
			must.Do(t, k.Close())
		}
		b.attach(&socket{shut: func() {}})
		so := &socket{server: s, kernel: k, buffer: b}
		request := &jupyter.Message{Channel: tt.channel, Header: jupyter.NewHeader(kind, "c", "u"), Content: json.RawMessage(tt.content)}
		must.Do(t, so.take(request))
		s.work.Wait()
		var got []string
		for m := b.next(); m != nil; m = b.next() {
			if m.Parent.MsgID != request.Header.MsgID {
				continue // of a restart
			}
			var content struct{ Status string }
			must.Do(t, json.Unmarshal(m.Content, &content))
			text := string(m.Content)
			if content.Status == "error" {
				text = "error"
			}
			got = append(got, m.Channel+" "+m.Header.MsgType+" "+text)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if removed := s.kernelByID(k.id) == nil; removed != tt.removed {
			t.Errorf("%s: the kernel is gone: %v, want %v", name, removed, tt.removed)
		}
		b.detach()
	}
}

// TestMalformedMessageOfAKernel checks that a message that is no JSON is left out, and logged.
func TestMalformedMessageOfAKernel(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	so := &socket{server: &Server{options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}, ctx: t.Context()}
	n, err := so.put(&jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.NewHeader("stream", "s", "u"), Content: json.RawMessage(`{`)})
	if n != 0 || err != nil || !strings.Contains(log.String(), `msg="encode a message of a kernel" type=stream`) {
		t.Errorf("got %d, %v and the log %s", n, err, log.String())
	}
}

// TestBusy checks that a server is busy while code runs or waits in any of its kernels.
func TestBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		idle := kernel.New(kernel.Spec{Logger: slog.New(slog.DiscardHandler)})
		k := kernel.New(kernel.Spec{Logger: slog.New(slog.DiscardHandler), Environ: func() ([]string, error) {
			<-release // the request lasts until then
			return nil, errors.New("no environment")
		}})
		s := &Server{kernels: []*runningKernel{{Kernel: idle}, {Kernel: k}}}
		if s.Busy() {
			t.Error("it is busy before the first request")
		}
		request := &kernel.Request{Header: jupyter.NewHeader("execute_request", "c", "u")}
		must.Do(t, k.Attach(func(context.Context, kernel.Event) {}).Submit(request))
		synctest.Wait()
		if !s.Busy() {
			t.Error("it is not busy while code runs")
		}
		close(release)
		<-request.Done()
		synctest.Wait()
		if s.Busy() {
			t.Error("it is busy after the last request")
		}
		must.Do(t, errors.Join(idle.Close(), k.Close()))
	})
}

// TestWhoWaitsForAClient checks for how long the events of a kernel wait for a client that does not read: those of
// its own requests as long as it is there, and others for a bounded time, after which the client has lost them.
func TestWhoWaitsForAClient(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own  bool
		end  func(b *sessionBuffer, cancel context.CancelFunc) // after an hour
		want time.Duration
		lost bool
	}{
		"of another":                     {false, nil, slowPatience, true},
		"its own, until it reads":        {true, func(b *sessionBuffer, _ context.CancelFunc) { b.next(); b.acknowledge(1) }, time.Hour, false},
		"its own, until the kernel ends": {true, func(_ *sessionBuffer, cancel context.CancelFunc) { cancel() }, time.Hour, true},
		"its own, until it disconnects":  {true, func(b *sessionBuffer, _ context.CancelFunc) { b.detach() }, time.Hour, false},
		"its own, until it is dropped":   {true, func(b *sessionBuffer, _ context.CancelFunc) { b.drop() }, time.Hour, false},
		"its own, and it reads nothing":  {true, func(b *sessionBuffer, cancel context.CancelFunc) { b.acknowledge(1); cancel() }, time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, release := withoutPython(t), make(chan struct{})
			s.options.Environ = func() ([]string, error) {
				<-release // the request lasts until then
				return nil, errors.New("no environment")
			}
			k, err := s.addKernel(&runningKernel{})
			must.Do(t, err)
			s.mu.Lock()
			b := s.newBuffer(&socket{kernel: k, session: "s"})
			s.mu.Unlock()
			so := &socket{shut: func() {}}
			b.attach(so)
			b.put(&jupyter.Message{Channel: jupyter.IOPub, Content: make([]byte, attachedBytes)}, attachedBytes, false)
			e := kernel.Event{Channel: jupyter.IOPub, Type: "stream", Content: json.RawMessage(`{"name":"stdout"}`)}
			if tt.own {
				e.Request = &kernel.Request{Header: jupyter.NewHeader("execute_request", "c", "u")}
				must.Do(t, b.client.Submit(e.Request))
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.end != nil {
				time.AfterFunc(time.Hour, func() { tt.end(b, cancel) })
			}
			began := time.Now()
			b.deliver(ctx, e)
			if took := time.Since(began); took != tt.want || so.lost.Load() != tt.lost {
				t.Errorf("%s: it waited for %v, and the client has lost it: %v, want %v and %v", name, took, so.lost.Load(), tt.want, tt.lost)
			}
			close(release)
			must.Do(t, s.Close())
		})
	}
}
