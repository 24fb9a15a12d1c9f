package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

var errLost = errors.New("the connection is lost")

// lossyHost runs all code, and loses the reply to one piece of it.
type lossyHost struct {
	*pythonHost
	lost string
}

func (h *lossyHost) execute(ctx context.Context, id string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	if request.Code != h.lost {
		return h.pythonHost.execute(ctx, id, request, handler)
	}
	request.UserExpressions = nil // the guard's report stays in the kernel
	_, err := h.pythonHost.execute(ctx, id, request, handler)
	return jupyter.ExecuteReply{}, errors.Join(err, errLost)
}

// cuts returns the names that the guard refused in steps that were cut off, by the number of the step.
// It reads them from an audit.
func cuts(t *testing.T, audit string) map[int][]string {
	t.Helper()
	found := map[int][]string{}
	for line := range strings.Lines(audit) {
		var e struct {
			Event   string
			N       int
			Blocked []Violation
		}
		must.Do(t, json.Unmarshal([]byte(line), &e))
		if e.Event != "cut" {
			continue
		}
		if found[e.N] != nil {
			t.Errorf("step %d was reported twice: %s", e.N, audit)
		}
		found[e.N] = []string{}
		for _, v := range e.Blocked {
			found[e.N] = append(found[e.N], v.Name)
		}
	}
	return found
}

// TestReportOfLostStep checks that violations of code whose reply was lost are in the audit,
// whether or not another step follows. They belong to no other step, nor to another kernel.
func TestReportOfLostStep(t *testing.T) {
	t.Parallel()
	const lost = "try:\n    import os\nexcept ImportError:\n    pass"
	for name, tt := range map[string]struct {
		after func(t *testing.T, h *lossyHost, r *Run)
		want  map[int][]string
	}{
		"the end": {func(*testing.T, *lossyHost, *Run) {}, map[int][]string{2: {"os"}}},
		"a step":  {func(t *testing.T, _ *lossyHost, r *Run) { mustExec(t, r, "1"); mustExec(t, r, "2") }, map[int][]string{2: {"os"}}},
		"another kernel": {func(t *testing.T, h *lossyHost, r *Run) {
			h.restart(t)
			if _, err := r.Get(t.Context(), "x"); !errors.Is(err, sandbox.ErrKernelDied) {
				t.Errorf("Get: %v, want sandbox.ErrKernelDied", err)
			}
			for i, restarted := range []bool{true, false} {
				step, err := r.Exec(t.Context(), "import subprocess")
				if err != nil || step.Restarted != restarted || len(step.Violations) != 1 || step.Violations[0].Name != "subprocess" {
					t.Errorf("step %d after it: got %+v and %v, want its own violation, restarted: %v", i+1, step, err, restarted)
				}
			}
		}, map[int][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &lossyHost{newPythonHost(t, "plain"), lost}
			var rs runs
			var audit bytes.Buffer
			r, err := rs.begin(t.Context(), h, "kernel", Params{Guard: &Guard{}, Audit: &audit})
			must.Do(t, err)
			defer r.Close()
			mustExec(t, r, "1")
			if _, err := r.Exec(t.Context(), lost); !errors.Is(err, errLost) {
				t.Fatalf("got %v, want that the connection is lost", err)
			}
			tt.after(t, h, r)
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, cuts(t, audit.String())); diff != "" {
				t.Errorf("cut off (-want +got):\n%s\n%s", diff, audit.String())
			}
		})
	}
}

// A step that ends because the step of another run around it took too long, is not said to have
// taken too long itself.
func TestTimeoutOfTheStepAround(t *testing.T) {
	t.Parallel()
	var rs runs
	h := &blockingHost{newPythonHost(t, "plain"), "forever", make(chan struct{})}
	r, err := rs.begin(t.Context(), h, "kernel", Params{})
	must.Do(t, err)
	defer r.Close()
	around, end := context.WithCancelCause(t.Context())
	go func() {
		<-h.started
		end(ErrStepTimeout)
	}()
	step, err := r.Exec(around, "forever")
	if !errors.Is(err, ErrStepTimeout) || step == nil || step.Error != nil || strings.Contains(step.Observation(), "Interrupted") {
		t.Errorf("got %+v and %v, want the error of the step around, and nothing of it in the step", step, err)
	}
	if r.late {
		t.Error("the step was noted as late")
	}
}

// The value of a step is its final answer, whatever the code does after that.
func TestFinalAnswerIsTheValue(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	r := h.begin(t, &rs, Params{})
	step := mustExec(t, r, "try:\n    final_answer(1)\nexcept BaseException:\n    pass\n'after it'")
	if got := string(step.Value.Bytes()); !step.Final || got != `{"v":1,"value":1}` {
		t.Errorf("got %s, final: %v, want the final answer 1", got, step.Final)
	}
}

// TestOverrun checks that a step that took too long keeps the exception that the interrupt raised,
// with its place. If there is no exception, the error of the step describes its end.
func TestOverrun(t *testing.T) {
	t.Parallel()
	raised := &sandbox.ExecutionError{Name: "KeyboardInterrupt", Traceback: "line 3"}
	for _, tt := range []struct {
		raised      *sandbox.ExecutionError
		interrupted *sandbox.InterruptedError
		want        string
	}{
		{raised, nil, ""},
		{raised, &sandbox.InterruptedError{Ended: true}, ""},
		{nil, nil, "it did not stop within"},
		{nil, &sandbox.InterruptedError{Ended: true, Ran: time.Second}, "it ended without an exception"},
		{nil, &sandbox.InterruptedError{Starting: true}, "the kernel was still starting"},
		{nil, &sandbox.InterruptedError{}, "it was not seen to begin"},
		{nil, &sandbox.InterruptedError{Ran: time.Second}, "it did not stop within"},
	} {
		s := &Step{Execution: sandbox.Execution{Error: tt.raised}}
		s.overrun(time.Minute, tt.interrupted)
		if s.overran != time.Minute {
			t.Errorf("%+v: the limit is noted as %v", tt, s.overran)
		}
		if tt.raised != nil {
			if s.Error != raised {
				t.Errorf("%+v: got %+v, want the exception as it was", tt, s.Error)
			}
			continue
		}
		if e := s.Error; e == nil || e.Name != "TimeoutError" || !strings.Contains(e.Value, "longer than 1m0s") || !strings.Contains(e.Value, tt.want) {
			t.Errorf("%+v: got %+v, want a TimeoutError with %q", tt.interrupted, e, tt.want)
		}
	}
}
