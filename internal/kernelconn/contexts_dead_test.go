package kernelconn

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// mortalKernels are contexts behind an interpreter and a Jupyter server like those
// of E2B's service: a kernel can die for good. Then the interpreter does not notice,
// and the server leaves the websocket open and drops the messages that arrive.
type mortalKernels struct {
	*server

	mu       sync.Mutex
	contexts []Context
	dead     map[string]bool
	fails    string // method of the requests about contexts that fail
	sockets  map[string][]*jupytertest.Kernel
	runs     map[string][]string // code by context
	asked    []string            // requests to Jupyter
}

// withMortals calls f in a bubble, with the contexts that a sandbox has at first.
func withMortals(t *testing.T, f func(t *testing.T, m *mortalKernels)) {
	t.Helper()
	onClock(t, func(t *testing.T, s *server) {
		m := &mortalKernels{
			server: s, dead: map[string]bool{}, sockets: map[string][]*jupytertest.Kernel{}, runs: map[string][]string{},
			contexts: []Context{{ID: "python-0", Language: "python", Cwd: "/home/user"}, {ID: "javascript-0", Language: "javascript", Cwd: "/home/user"}},
		}
		s.contexts, s.rest, s.socket = m.serveContexts, m.serveKernels, m.serveSocket
		f(t, m)
	})
}

func (m *mortalKernels) serveContexts(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, verb, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/contexts"), "/"), "/")
	switch {
	case r.Method == m.fails:
		w.WriteHeader(http.StatusInsufficientStorage)
		_, _ = io.WriteString(w, "no room")
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(m.contexts)
	case id == "":
		var made Context
		_ = json.NewDecoder(r.Body).Decode(&made)
		made.ID = fmt.Sprintf("%s-%d", made.Language, len(m.contexts))
		m.contexts = append(m.contexts, made)
		_ = json.NewEncoder(w).Encode(made)
	case m.dead[id]:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "Failed to %s context %s", verb, id)
	default:
		if r.Method == http.MethodDelete {
			m.contexts = slices.DeleteFunc(m.contexts, func(c Context) bool { return c.ID == id })
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
	return !m.dead[id] && slices.ContainsFunc(m.contexts, func(c Context) bool { return c.ID == id })
}

func (m *mortalKernels) serveKernels(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, r.Method+" "+r.URL.Path)
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

// hearOfLoss checks that all clients have ended their connections to a context, because they know that it lost its
// variables.
func (m *mortalKernels) hearOfLoss(t *testing.T, id string) {
	t.Helper()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.sockets[id]); n > 0 {
		t.Errorf("%d connections to %s are left, want that its loss is noticed", n, id)
	}
}

// runIn runs code in a context.
func runIn(t *testing.T, ks *Kernels, id, code string) error {
	t.Helper()
	_, err := ks.Execute(t.Context(), Call{Context: id, Request: jupyter.ExecuteRequest{Code: code}})
	return err
}

func contextIDs(t *testing.T, ks *Kernels) (ids []string) {
	t.Helper()
	contexts, err := ks.Contexts(t.Context())
	must.Do(t, err)
	for _, c := range contexts {
		ids = append(ids, c.ID)
	}
	return ids
}

// A kernel that died for good is replaced, as often as that happens: for the default
// context, and for one that was created.
func TestDeadContextIsReplaced(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"default": false, "created": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withMortals(t, func(t *testing.T, m *mortalKernels) {
				ks := m.kernels()
				in, at := "", "python-0"
				if create {
					made, err := ks.Create(t.Context(), Context{Language: "python", Cwd: "/srv"})
					must.Do(t, err)
					in, at = made.ID, made.ID
				}
				for range 3 {
					if err := runIn(t, ks, in, "die"); !errors.Is(err, ErrDied) {
						t.Fatalf("in %s: %v", at, err)
					}
					if err := runIn(t, ks, in, "next"); err != nil {
						t.Fatalf("after %s: %v", at, err)
					}
					m.mu.Lock()
					fresh := m.contexts[len(m.contexts)-1]
					m.mu.Unlock()
					if got := m.ran(fresh.ID); fresh.ID == at || !slices.Equal(got, []string{"next"}) {
						t.Errorf("%s, in place of %s, ran %q, want another context and only the last code", fresh.ID, at, got)
					}
					if fresh.Language != "python" || create && fresh.Cwd != "/srv" {
						t.Errorf("%+v, in place of %s, want its language and directory", fresh, at)
					}
					if listed := contextIDs(t, ks); slices.Contains(listed, at) || !slices.Contains(listed, fresh.ID) {
						t.Errorf("%q are listed after %s died", listed, at)
					}
					at = fresh.ID
				}
				k, err := ks.Open(t.Context(), in, "")
				must.Do(t, err)
				if err := k.Interrupt(t.Context()); err != nil {
					t.Errorf("interrupt what took its place: %v", err)
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				if want := "POST /api/kernels/" + at + "/interrupt"; !slices.Contains(m.asked, want) {
					t.Errorf("%q were asked, want %q", m.asked, want)
				}
			})
		})
	}
}

// TestContextsFail checks that an interpreter that cannot list or create contexts is an error of the
// call, which names the cause, and that calls succeed afterwards.
func TestContextsFail(t *testing.T) {
	t.Parallel()
	withMortals(t, func(t *testing.T, m *mortalKernels) {
		ks := m.kernels()
		fail := func(method string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.fails = method
		}
		wantError := func(want string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no room") {
				t.Errorf("got %v, want an error with %q and the cause", err, want)
			}
		}
		fail(http.MethodGet)
		_, err := ks.Contexts(t.Context())
		wantError("GET /contexts", err)
		wantError("list contexts: ", runIn(t, ks, "", "code"))
		fail("")
		made, err := ks.Create(t.Context(), Context{Language: "python"})
		must.Do(t, err)
		must.Is(t, runIn(t, ks, made.ID, "die"), ErrDied)
		fail(http.MethodPost)
		wantError("create a context in place of "+made.ID, runIn(t, ks, made.ID, "code"))
		_, err = ks.Create(t.Context(), Context{Language: "python"})
		wantError("POST /contexts", err)
		fail("")
		must.Do(t, runIn(t, ks, made.ID, "code"))
	})
}

// A death between two calls is reported to the next call, once.
func TestContextDiesBetweenCalls(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"default": false, "created": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withMortals(t, func(t *testing.T, m *mortalKernels) {
				ks := m.kernels()
				in, at := "", "python-0"
				if create {
					made, err := ks.Create(t.Context(), Context{Language: "python"})
					must.Do(t, err)
					in, at = made.ID, made.ID
				}
				must.Do(t, runIn(t, ks, in, "x"))
				m.mu.Lock()
				m.die(at)
				m.mu.Unlock()
				m.hearOfLoss(t, at)
				if err := runIn(t, ks, in, "x"); !errors.Is(err, ErrRestarted) {
					t.Errorf("the next: %v", err)
				}
				if err := runIn(t, ks, in, "x"); err != nil {
					t.Errorf("the one after that: %v", err)
				}
			})
		})
	}
}

// A run continues in the context that replaced its own, and code that it waits for
// is still recognized as code of the same context.
func TestDeadContextHasNames(t *testing.T) {
	t.Parallel()
	withMortals(t, func(t *testing.T, m *mortalKernels) {
		ks := m.kernels()
		made, err := ks.Create(t.Context(), Context{Language: "python"})
		must.Do(t, err)
		for _, id := range []string{"python-0", made.ID} {
			within := WithWaiting(t.Context(), testSandbox, id)
			for _, code := range []string{"die", "x"} {
				if err := runIn(t, ks, id, code); code == "x" && err != nil {
					t.Fatalf("%s: %v", id, err)
				}
			}
			ids := contextIDs(t, ks)
			for _, name := range []string{id, ids[len(ids)-1]} {
				if _, err := ks.Execute(within, Call{Context: name}); !errors.Is(err, ErrSameContext) {
					t.Errorf("%s from %s: %v", name, id, err)
				}
			}
		}
	})
}

// Contexts.Restart and Contexts.Remove end a dead context, which the interpreter
// cannot do.
func TestEndDeadContext(t *testing.T) {
	t.Parallel()
	withMortals(t, func(t *testing.T, m *mortalKernels) {
		ks := m.kernels()
		made, err := ks.Create(t.Context(), Context{Language: "python"})
		must.Do(t, err)
		for _, in := range []string{"", made.ID} {
			for _, told := range []bool{true, false} { // whether a call learns of the death
				if told {
					must.Is(t, runIn(t, ks, in, "die"), ErrDied)
				} else {
					m.mu.Lock()
					last := m.contexts[len(m.contexts)-1].ID
					m.die(last)
					m.mu.Unlock()
					m.hearOfLoss(t, last)
				}
				if err := ks.Restart(t.Context(), ks.Named(cmp.Or(in, DefaultContext))); err != nil {
					t.Errorf("restart %q: %v", in, err)
				}
				if err := runIn(t, ks, in, "x"); err != nil {
					t.Errorf("%q after its restart: %v", in, err)
				}
			}
		}
		must.Is(t, runIn(t, ks, made.ID, "die"), ErrDied)
		if err := ks.Remove(t.Context(), ks.Named(made.ID)); err != nil {
			t.Errorf("remove: %v", err)
		}
		if err := runIn(t, ks, made.ID, "x"); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("a context that was removed: %v", err)
		}
		// A failure for another reason is returned.
		m.server.contexts = func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				http.Error(w, "no", http.StatusInternalServerError)
				return
			}
			m.serveContexts(w, r)
		}
		if err := ks.Restart(t.Context(), "javascript-0"); err == nil || !strings.Contains(err.Error(), "500") {
			t.Errorf("a restart that failed: %v", err)
		}
	})
}

// A handle that is opened later uses the default context that replaced the dead one.
// It cannot know the content of any other dead context.
func TestDeadContextForAnotherHandle(t *testing.T) {
	t.Parallel()
	withMortals(t, func(t *testing.T, m *mortalKernels) {
		first := m.kernels()
		for _, code := range []string{"die", "x"} {
			_ = runIn(t, first, "", code)
		}
		made, err := first.Create(t.Context(), Context{Language: "python"})
		must.Do(t, err)
		_ = runIn(t, first, made.ID, "die")
		second := m.kernels()
		if err := runIn(t, second, "", "y"); err != nil || !slices.Equal(m.ran("python-2"), []string{"x", "y"}) {
			t.Errorf("%v: the contexts got %q", err, m.runs)
		}
		err = runIn(t, second, made.ID, "y")
		if !errors.Is(err, api.ErrNotFound) || !strings.Contains(err.Error(), "create another context") {
			t.Errorf("another's dead context: %v", err)
		}
	})
}

// If kernels die as soon as they are created, a call ends.
func TestAllContextsAreDead(t *testing.T) {
	t.Parallel()
	withMortals(t, func(t *testing.T, m *mortalKernels) {
		m.socket = http.NotFound
		m.rest = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }
		if err := runIn(t, m.kernels(), "", "x"); !errors.Is(err, api.ErrRetryable) {
			t.Errorf("got %v, want an error that a later call may not meet", err)
		}
	})
}

// If another client restarts or ends a context between two calls, the next call
// reports it.
func TestEndedByAnotherClientBetweenCalls(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		created, removed bool
		then             []error // the results of the two calls that follow
	}{
		"default, restarted": {false, false, []error{ErrRestarted, nil}},
		"created, restarted": {true, false, []error{ErrRestarted, nil}},
		"created, removed":   {true, true, []error{api.ErrNotFound, api.ErrNotFound}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withMortals(t, func(t *testing.T, m *mortalKernels) {
				ks, other := m.kernels(), m.kernels()
				made, err := ks.Create(t.Context(), Context{Language: "python"})
				must.Do(t, err)
				in, id, end, listed := "", "python-0", other.Restart, []string{"python-0", "javascript-0", made.ID}
				if test.created {
					in, id = made.ID, made.ID
				}
				if test.removed {
					end, listed = other.Remove, listed[:2]
				}
				must.Do(t, runIn(t, ks, in, "x"))
				must.Do(t, end(t.Context(), id))
				m.hearOfLoss(t, id)
				for i, want := range test.then {
					if err := runIn(t, ks, in, "x"); !errors.Is(err, want) {
						t.Errorf("call %d: got %v, want %v", i, err, want)
					}
				}
				if diff := gocmp.Diff(listed, contextIDs(t, ks)); diff != "" {
					t.Errorf("contexts (-want +got):\n%s", diff)
				}
			})
		})
	}
}
