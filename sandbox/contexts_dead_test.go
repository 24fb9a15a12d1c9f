package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// mortalKernels are contexts behind an interpreter and a Jupyter server like
// those of E2B's service: a kernel can die for good, and then the interpreter
// does not notice, and the server leaves the websocket open and drops what
// arrives.
type mortalKernels struct {
	*service

	mu       sync.Mutex
	contexts []CodeContext
	dead     map[string]bool
	sockets  map[string][]*jupytertest.Kernel
	runs     map[string][]string // code by context
}

func newMortalKernels(t *testing.T) *mortalKernels {
	m := &mortalKernels{
		service: newService(t), dead: map[string]bool{}, sockets: map[string][]*jupytertest.Kernel{}, runs: map[string][]string{},
		contexts: []CodeContext{{ID: "python-0", Language: "python", Cwd: "/home/user"}, {ID: "javascript-0", Language: "javascript", Cwd: "/home/user"}},
	}
	m.service.contexts, m.rest, m.socket = m.serveContexts, m.serveKernels, m.serveSocket
	return m
}

func (m *mortalKernels) serveContexts(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/contexts"), "/"), "/")
	switch {
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(m.contexts)
	case id == "":
		var made CodeContext
		_ = json.NewDecoder(r.Body).Decode(&made)
		made.ID = fmt.Sprintf("%s-%d", made.Language, len(m.contexts))
		m.contexts = append(m.contexts, made)
		_ = json.NewEncoder(w).Encode(made)
	case m.dead[id]:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "Failed to %s context %s", verb, id)
	default:
		if r.Method == http.MethodDelete {
			m.contexts = slices.DeleteFunc(m.contexts, func(c CodeContext) bool { return c.ID == id })
			m.say(id, false)
		} else {
			m.say(id, true)
		}
		_, _ = io.WriteString(w, "null")
	}
}

// say makes a kernel tell all clients that it was asked to shut down.
func (m *mortalKernels) say(id string, restart bool) {
	for _, k := range m.sockets[id] {
		k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": restart})
	}
}

func (m *mortalKernels) alive(id string) bool {
	return !m.dead[id] && slices.ContainsFunc(m.contexts, func(c CodeContext) bool { return c.ID == id })
}

func (m *mortalKernels) serveKernels(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.URL.Path != "/api/kernels" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	kernels := []map[string]string{} // not null
	for _, c := range m.contexts {
		if m.alive(c.ID) {
			kernels = append(kernels, map[string]string{"id": c.ID})
		}
	}
	_ = json.NewEncoder(w).Encode(kernels)
}

func (m *mortalKernels) serveSocket(w http.ResponseWriter, r *http.Request) {
	id := strings.Split(r.URL.Path, "/")[3]
	m.mu.Lock()
	alive := m.alive(id)
	m.mu.Unlock()
	if !alive {
		http.Error(w, "Kernel does not exist: "+id, http.StatusNotFound)
		return
	}
	k, err := jupytertest.Upgrade(m.t, w, r)
	if err != nil {
		m.t.Error(err)
		return
	}
	defer k.Socket.Close()
	m.mu.Lock()
	m.sockets[id] = append(m.sockets[id], k)
	m.mu.Unlock()
	for request := k.Next(); request != nil; request = k.Next() {
		m.execute(id, k, request)
	}
	m.mu.Lock()
	m.sockets[id] = slices.DeleteFunc(m.sockets[id], func(other *jupytertest.Kernel) bool { return other == k })
	m.mu.Unlock()
}

func (m *mortalKernels) execute(id string, k *jupytertest.Kernel, request *jupyter.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead[id] {
		return
	}
	m.runs[id] = append(m.runs[id], jupytertest.Code(request))
	k.Begin(request)
	if jupytertest.Code(request) == "die" {
		m.die(id)
		return
	}
	k.Reply(request, "ok")
	k.Status(request, "idle")
}

// die ends a kernel for good.
func (m *mortalKernels) die(id string) {
	m.dead[id] = true
	for _, k := range m.sockets[id] {
		k.Status(nil, "dead")
	}
}

// ran returns the code that a context received.
func (m *mortalKernels) ran(id string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.runs[id])
}

// hearOfLoss waits until all clients know that a context lost its variables: then
// they have ended their connections.
func (m *mortalKernels) hearOfLoss(t *testing.T, id string) {
	t.Helper()
	eventually(t, "the loss is noticed", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.sockets[id]) == 0
	})
}

func contextIDs(t *testing.T, sb *Sandbox) (ids []string) {
	t.Helper()
	contexts, err := sb.Contexts.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contexts {
		ids = append(ids, c.ID)
	}
	return ids
}

// A kernel that died for good is replaced, as often as that happens: for the
// default context, and for one that was created.
func TestDeadContextIsReplaced(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"default": false, "created": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMortalKernels(t)
			sb := m.sandbox()
			in, at := &RunCodeParams{}, "python-0"
			if create {
				made, err := sb.Contexts.Create(t.Context(), &CodeContextParams{Language: "python", Cwd: "/srv"})
				if err != nil {
					t.Fatal(err)
				}
				in.Context, at = made.ID, made.ID
			}
			for range 3 {
				if _, err := sb.RunCode(t.Context(), "die", in); !errors.Is(err, ErrKernelDied) {
					t.Fatalf("in %s: %v", at, err)
				}
				if execution, err := sb.RunCode(t.Context(), "next", in); err != nil || execution.Count != 7 {
					t.Fatalf("after %s: %+v, %v", at, execution, err)
				}
				m.mu.Lock()
				fresh := m.contexts[len(m.contexts)-1]
				m.mu.Unlock()
				if got := m.ran(fresh.ID); fresh.ID == at || !slices.Equal(got, []string{"next"}) || fresh.Language != "python" || create && fresh.Cwd != "/srv" {
					t.Errorf("%+v, in place of %s, ran %q", fresh, at, got)
				}
				if listed := contextIDs(t, sb); slices.Contains(listed, at) || !slices.Contains(listed, fresh.ID) {
					t.Errorf("%q are listed after %s died", listed, at)
				}
				at = fresh.ID
			}
			if err := sb.Contexts.Interrupt(t.Context(), in.Context); err != nil || m.seen("POST /api/kernels/"+at+"/interrupt") != 1 {
				t.Errorf("interrupt what took its place: %v", err)
			}
		})
	}
}

// A death between two calls is reported to the next call, once.
func TestContextDiesBetweenCalls(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"default": false, "created": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMortalKernels(t)
			sb := m.sandbox()
			in, at := &RunCodeParams{}, "python-0"
			if create {
				made, err := sb.Contexts.Create(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				in.Context, at = made.ID, made.ID
			}
			if _, err := sb.RunCode(t.Context(), "x", in); err != nil {
				t.Fatal(err)
			}
			m.mu.Lock()
			m.die(at)
			m.mu.Unlock()
			m.hearOfLoss(t, at)
			if execution, err := sb.RunCode(t.Context(), "x", in); !errors.Is(err, ErrKernelRestarted) || execution != nil {
				t.Errorf("the next: %v", err)
			}
			if _, err := sb.RunCode(t.Context(), "x", in); err != nil {
				t.Errorf("the one after that: %v", err)
			}
		})
	}
}

// A run continues in the context that replaced its own, and code that it waits
// for is still recognized as code of the same context.
func TestDeadContextHasNames(t *testing.T) {
	t.Parallel()
	m := newMortalKernels(t)
	sb := m.sandbox()
	made, err := sb.Contexts.Create(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"python-0", made.ID} {
		within := kernelconn.WithWaiting(t.Context(), sb.ID(), id)
		for _, code := range []string{"die", "x"} {
			if _, err := sb.RunCode(t.Context(), code, &RunCodeParams{Context: id}); code == "x" && err != nil {
				t.Fatalf("%s: %v", id, err)
			}
		}
		ids := contextIDs(t, sb)
		for _, name := range []string{id, ids[len(ids)-1]} {
			if _, err := sb.RunCode(within, "x", &RunCodeParams{Context: name}); !errors.Is(err, ErrSameContext) {
				t.Errorf("%s from %s: %v", name, id, err)
			}
		}
	}
}

// Contexts.Restart and Contexts.Remove do what the interpreter cannot do with a dead
// context.
func TestEndDeadContext(t *testing.T) {
	t.Parallel()
	m := newMortalKernels(t)
	sb := m.sandbox()
	made, err := sb.Contexts.Create(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []*RunCodeParams{{}, {Context: made.ID}} {
		for _, told := range []bool{true, false} { // whether a call is told of the death
			if told {
				if _, err := sb.RunCode(t.Context(), "die", in); !errors.Is(err, ErrKernelDied) {
					t.Fatal(err)
				}
			} else {
				m.mu.Lock()
				last := m.contexts[len(m.contexts)-1].ID
				m.die(last)
				m.mu.Unlock()
				m.hearOfLoss(t, last)
			}
			if err := sb.Contexts.Restart(t.Context(), in.Context); err != nil {
				t.Errorf("restart %q: %v", in.Context, err)
			}
			if _, err := sb.RunCode(t.Context(), "x", in); err != nil {
				t.Errorf("%q after its restart: %v", in.Context, err)
			}
		}
	}
	if _, err := sb.RunCode(t.Context(), "die", &RunCodeParams{Context: made.ID}); !errors.Is(err, ErrKernelDied) {
		t.Fatal(err)
	}
	if err := sb.Contexts.Remove(t.Context(), made.ID); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := sb.RunCode(t.Context(), "x", &RunCodeParams{Context: made.ID}); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a context that was removed: %v", err)
	}
	// A failure for another reason is returned.
	m.service.contexts = func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		m.serveContexts(w, r)
	}
	if err := sb.Contexts.Restart(t.Context(), "javascript-0"); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("a restart that failed: %v", err)
	}
}

// A handle that is opened later uses the default context that replaced the dead
// one; it cannot know what was in any other dead context.
func TestDeadContextForAnotherHandle(t *testing.T) {
	t.Parallel()
	m := newMortalKernels(t)
	first := m.sandbox()
	for _, code := range []string{"die", "x"} {
		_, _ = first.RunCode(t.Context(), code, nil)
	}
	made, err := first.Contexts.Create(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = first.RunCode(t.Context(), "die", &RunCodeParams{Context: made.ID})
	second, err := m.client().Connect(t.Context(), testID)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := second.RunCode(t.Context(), "y", nil); err != nil || !slices.Equal(m.ran("python-2"), []string{"x", "y"}) {
		t.Errorf("%v: the contexts got %q", err, m.runs)
	}
	_, err = second.RunCode(t.Context(), "y", &RunCodeParams{Context: made.ID})
	if !errors.Is(err, api.ErrNotFound) || !strings.Contains(err.Error(), "create another context") {
		t.Errorf("another's dead context: %v", err)
	}
}

// If kernels die as soon as they are created, a call ends.
func TestAllContextsAreDead(t *testing.T) {
	t.Parallel()
	m := newMortalKernels(t)
	m.socket = http.NotFound
	m.rest = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }
	sb := m.sandbox()
	if _, err := sb.RunCode(t.Context(), "x", nil); !errors.Is(err, api.ErrRetryable) || sb.CodeTransport() != CodeTransportAuto {
		t.Errorf("%v, over %q", err, sb.CodeTransport())
	}
	// If the port has no kernel server, the other transport is used.
	m.rest = http.NotFound
	m.service.execute = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
	}
	if _, err := sb.RunCode(t.Context(), "x", nil); err != nil || sb.CodeTransport() != CodeTransportHTTP {
		t.Errorf("%v, over %q", err, sb.CodeTransport())
	}
}

// Code that a client ends together with its kernel is not merely interrupted.
func TestRestartedByAnotherClient(t *testing.T) {
	t.Parallel()
	interrupt := func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Say(m, jupyter.IOPub, "error", jupyter.ErrorContent{Name: "KeyboardInterrupt"})
		k.Say(m, jupyter.Shell, "execute_reply", map[string]any{"status": "error", "ename": "KeyboardInterrupt"})
		k.Status(m, "idle")
	}
	for name, test := range map[string]struct {
		last func(k *jupytertest.Kernel, m *jupyter.Message)
		want error
		why  string
	}{
		"restarted, said first": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": true})
			interrupt(k, m)
		}, ErrKernelDied, "a client restarted its context"},
		"restarted, said last": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			interrupt(k, m)
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": true})
		}, ErrKernelDied, "a client restarted its context"},
		"removed": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": false})
			interrupt(k, m)
		}, ErrKernelDied, "a client removed its context"},
		"heeding no interrupt": {func(k *jupytertest.Kernel, _ *jupyter.Message) {
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]any{"status": "ok", "restart": true})
		}, ErrKernelDied, "a client restarted its context"},
		"interrupted": {interrupt, nil, "KeyboardInterrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
				k.Begin(m)
				k.Stream(m, "stdout", "so far")
				test.last(k, m)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			execution, err := s.sandbox().RunCode(ctx, "x", nil)
			failed, ok := errors.AsType[*ExecutionError](err)
			if test.want != nil && !errors.Is(err, test.want) || test.want == nil && (!ok || failed.Name != "KeyboardInterrupt") || !strings.Contains(err.Error(), test.why) {
				t.Errorf("%v", err)
			}
			if execution == nil || execution.Stdout != "so far" {
				t.Errorf("%+v", execution)
			}
		})
	}
}

// What another client does to a context between two calls is reported to the next
// call.
func TestEndedByAnotherClientBetweenCalls(t *testing.T) {
	t.Parallel()
	m := newMortalKernels(t)
	sb := m.sandbox()
	made, err := sb.Contexts.Create(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := m.client().Connect(t.Context(), testID)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, test := range map[string]struct {
		id   string
		end  func(context.Context, string) error
		then []error // of the two calls that follow
	}{
		"default, restarted": {"", other.Contexts.Restart, []error{ErrKernelRestarted, nil}},
		"created, restarted": {made.ID, other.Contexts.Restart, []error{ErrKernelRestarted, nil}},
		"created, removed":   {made.ID, other.Contexts.Remove, []error{api.ErrNotFound, api.ErrNotFound}},
	} {
		t.Run(name, func(t *testing.T) {
			in := &RunCodeParams{Context: test.id}
			if name == "created, removed" {
				fresh, err := sb.Contexts.Create(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				in.Context = fresh.ID
			}
			if _, err := sb.RunCode(t.Context(), "x", in); err != nil {
				t.Fatal(err)
			}
			id := in.Context
			if id == "" {
				id = "python-0"
			}
			if err := test.end(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			m.hearOfLoss(t, id)
			var got []error
			for range test.then {
				_, err := sb.RunCode(t.Context(), "x", in)
				got = append(got, err)
			}
			for i, want := range test.then {
				if !errors.Is(got[i], want) {
					t.Errorf("call %d: %v, want %v", i, got[i], want)
				}
			}
		})
	}
	if diff := cmp.Diff([]string{"python-0", "javascript-0", made.ID}, contextIDs(t, sb)); diff != "" {
		t.Error(diff)
	}
}
