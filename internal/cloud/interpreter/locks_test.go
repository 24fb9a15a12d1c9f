//go:build linux

package interpreter

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// wantFree checks that a lock is free. A lock that was kept is released, so that the test ends.
func wantFree(t *testing.T, lock, after string, mu *sync.Mutex) {
	t.Helper()
	if !mu.TryLock() {
		t.Errorf("%s keeps the lock %s", after, lock)
	}
	mu.Unlock()
}

// TestNoCallKeepsALock checks that the locks of a server are free after each call.
func TestNoCallKeepsALock(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	h := s.Jupyter()
	so := &socket{server: s, kernel: s.kernels[0]}
	added := func(kernel string) *runningKernel {
		k, _ := s.addKernel(&runningKernel{id: kernel, cwd: s.options.Dir})
		return k
	}
	var k *runningKernel
	var first *session
	sessionID := func() string {
		if first == nil {
			first = s.sessions[0]
		}
		return first.id
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"DefaultID", func() { s.DefaultID() }}, {"listKernels", func() { s.listKernels() }}, {"find", func() { s.kernelByID("none") }},
		{"addKernel", func() { k = added("k") }}, {"addKernel of one that is there", func() { added("k") }},
		{"addSocket", func() { s.addSocket(so) }}, {"connections", func() { s.connections(k) }}, {"removeSocket", func() { s.removeSocket(so) }},
		{"background", func() { s.background(func(context.Context) {}) }}, {"defaultContext", func() { _, _ = s.defaultContext("python") }},
		{"defaultContext of nothing", func() { _, _ = s.defaultContext("none") }},
		{"postSession", func() { ask(h, "POST", "/api/sessions", `{"path":"a","type":"t"}`) }}, {"postSession again", func() { ask(h, "POST", "/api/sessions", `{"path":"a","type":"t"}`) }},
		{"postSession without a kernel", func() { ask(h, "POST", "/api/sessions", `{"path":"b","type":"t","kernel":{"id":"none"}}`) }},
		{"getSessions", func() { ask(h, "GET", "/api/sessions", "") }}, {"withSession", func() { ask(h, "GET", "/api/sessions/"+sessionID(), "") }},
		{"withSession of none", func() { ask(h, "GET", "/api/sessions/none", "") }}, {"patchSession", func() { ask(h, "PATCH", "/api/sessions/"+sessionID(), `{"path":"c"}`) }},
		{"deleteSession", func() { s.deleteSession(httptest.NewRecorder(), nil, first) }}, {"forgetSession", func() { s.forgetSession(first) }},
		{"openBuffer of no kernel", func() { _, _ = s.openBuffer(&socket{kernel: new(runningKernel)}) }},
		{"removeKernel", func() { s.removeKernel(k) }}, {"Close", func() { must.Do(t, s.Close()) }},
		{"addKernel after the end", func() { added("") }}, {"addSocket after the end", func() { s.addSocket(so) }},
		{"background after the end", func() { s.background(nil) }}, {"openBuffer after the end", func() { _, _ = s.openBuffer(so) }},
	} {
		step.do()
		wantFree(t, "of the server", step.name, &s.mu)
		wantFree(t, "of the creation", step.name, &s.creating)
	}
	if len(s.kernels)+len(s.sessions)+len(s.sockets) > 0 {
		t.Errorf("%d kernels, %d sessions and %d connections are left", len(s.kernels), len(s.sessions), len(s.sockets))
	}
}

// TestNoCallKeepsALockOfABuffer checks that the lock of a buffer is free after each call.
func TestNoCallKeepsALockOfABuffer(t *testing.T) {
	t.Parallel()
	s, buffers := newBuffers(t, "a", "b", "c", "d")
	m := func() *jupyter.Message { return &jupyter.Message{Channel: jupyter.Stdin, Content: []byte("{}")} }
	large := kernel.Event{Type: "stream", Content: []byte(strings.Repeat("x", absentBytes))}
	so := &socket{shut: func() {}}
	for i, name := range []string{"detach", "retire", "drop", "lose"} {
		b := buffers[i]
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"put", func() { b.put(m(), absentBytes, false) }}, {"put without space", func() { b.put(m(), 0, false) }}, {"attach", func() { b.attach(so) }},
			{"attach again", func() { b.attach(so) }}, {"attached", func() { b.attached() }}, {"next", func() { b.next() }}, {"next of none", func() { b.next() }},
			{"position", func() { b.position() }}, {"asksNoMore", func() { b.asksNoMore("") }}, {"acknowledge", func() { b.acknowledge(1) }}, {"acknowledge again", func() { b.acknowledge(1) }},
			{"deliver", func() { b.deliver(t.Context(), kernel.Event{Request: new(kernel.Request)}) }}, {"answer", func() { b.answer(m()) }},
			{"detach", b.detach}, {"deliver without space", func() { b.deliver(t.Context(), large) }},
			{name, map[string]func(){"detach": b.detach, "retire": b.retire, "drop": b.drop, "lose": b.lose}[name]},
			{"put after the end", func() { b.put(m(), absentBytes, false) }}, {"attach after the end", func() { b.attach(so) }},
		} {
			step.do()
			s.work.Wait()
			wantFree(t, "of the buffer", step.name, &b.mu)
			wantFree(t, "of the server", step.name, &s.mu)
		}
		if n := s.kernels[0].Connections(); !b.closed || len(s.buffers) != 3-i || n != 3-i {
			t.Errorf("%s: closed %v, and %d buffers and %d clients of the kernel are left, want %d", name, b.closed, len(s.buffers), n, 3-i)
		}
	}
}
