//go:build linux

package envd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	var inside sync.WaitGroup
	inside.Add(maxRequests)
	leave := make(chan struct{})
	h := boundRequests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			inside.Done()
			<-leave
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	ask := func(method, path, contentType string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{}"))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var all sync.WaitGroup
	for range maxRequests {
		all.Go(func() { ask("PUT", "/", "") })
	}
	inside.Wait()
	const bound = "the bound is 4096"
	if w := ask("GET", "/health", ""); w.Code != 204 {
		t.Errorf("/health: %d, want 204", w.Code)
	}
	if w := ask("GET", "/files", ""); w.Code != 429 || !strings.Contains(w.Body.String(), `{"code":429,`) || !strings.Contains(w.Body.String(), bound) {
		t.Errorf("/files: %d %s, want status 429, %q in it and %q in it", w.Code, w.Body, `{"code":429,`, bound)
	}
	if w := ask("POST", "/process.Process/List", "application/json"); w.Code != 429 || !strings.Contains(w.Body.String(), `"resource_exhausted"`) || !strings.Contains(w.Body.String(), bound) {
		t.Errorf("List: %d %s, want status 429, %q in it and %q in it", w.Code, w.Body, `"resource_exhausted"`, bound)
	}
	if w := ask("POST", "/process.Process/Start", "application/connect+json"); w.Code != 200 || w.Body.Bytes()[0] != 2 || !strings.Contains(w.Body.String(), bound) {
		t.Errorf("Start: %d %q, want 200, the flags of the end of a stream and %q in it", w.Code, w.Body, bound)
	}
	close(leave)
	all.Wait()
	if w := ask("GET", "/files", ""); w.Code != 204 {
		t.Errorf("/files afterwards: %d, want 204", w.Code)
	}
}

// TestInputIsBounded sends input to a process that does not read until input is
// refused; the process can still be killed.
func TestInputIsBounded(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, pid := d.begin(t, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "sleep", Args: []string{"600"}}}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	send := func(size int) error {
		_, err := d.processes().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
			Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, size)}},
		}))
		return err
	}
	var first sync.WaitGroup
	first.Go(func() { _ = send(2 * maxWaiting) }) // a single message may be of any size
	r, err := d.server.processes.find(byPid(pid))
	must.Do(t, err)
	patience.Until(t, "input that waits", func() bool { return r.stdin.waiting.Load() == 2*maxWaiting })
	if err := send(1); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "the bound of what may wait for it is 1048576 bytes") {
		t.Errorf("SendInput: %v, want the bound named", err)
	}
	d.kill(t, pid, process.Signal_SIGNAL_SIGKILL)
	if got, err := collect(s); err != nil || got.end.GetStatus() != "signal: killed" {
		t.Errorf("got %+v, %v, want status %q and no error", got, err, "signal: killed")
	}
	first.Wait()
	if n := r.stdin.waiting.Load(); n != 0 {
		t.Errorf("%d bytes still count as waiting, want 0", n)
	}
}

func TestTagIsBounded(t *testing.T) {
	t.Parallel()
	d := serve(t)
	req := shell("true")
	req.Tag = proto.String(strings.Repeat("x", maxTag+1))
	s, err := d.processes().Start(t.Context(), connect.NewRequest(req))
	must.Do(t, err)
	defer s.Close()
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeInvalidArgument || !strings.Contains(s.Err().Error(), "the bound is 4096") {
		t.Errorf("%v, want the bound named", s.Err())
	}
	longest := shell("true")
	longest.Tag = proto.String(strings.Repeat("x", maxTag))
	d.run(t, longest)
}

// TestThousandAtOnce runs a thousand processes at the same time, without a blocked
// thread for each, and ends them by closing their input.
func TestThousandAtOnce(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const many = 1000
	processes := d.processes()
	streams := make([]startStream, many)
	pids := make([]uint32, many)
	for i := range many {
		streams[i], pids[i] = d.begin(t, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}}))
	}
	list, err := processes.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != many {
		t.Fatalf("%d processes are listed, %v, want %d and no error", len(list.Msg.GetProcesses()), err, many)
	}
	if tasks, err := os.ReadDir("/proc/self/task"); err != nil || len(tasks) > many/2 {
		t.Errorf("%d threads for %d processes, %v, want at most %v and no error", len(tasks), many, err, many/2)
	}
	for i, pid := range pids {
		if _, err := processes.CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPid(pid)})); err != nil {
			t.Fatal(err)
		}
		if r, err := collect(streams[i]); err != nil || r.end.GetStatus() != "exit status 0" {
			t.Fatalf("%d: got %v, %v, want status %q and no error", i, r.end, err, "exit status 0")
		}
	}
	patience.Until(t, "an empty list", func() bool {
		list, err := processes.List(t.Context(), connect.NewRequest(&process.ListRequest{}))
		return err == nil && len(list.Msg.GetProcesses()) == 0
	})
}
