package kernelconn

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

// The code that follows cancelled code is not sent before the server has answered the interrupt:
// a late interrupt would hit it.
func TestLateInterruptDoesNotHitTheNextCell(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		var mu sync.Mutex
		var order []string
		happened := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		interrupted, release := make(chan struct{}), make(chan struct{})
		end := sync.OnceFunc(func() { close(interrupted) })
		s.rest = func(w http.ResponseWriter, _ *http.Request) {
			end() // the code ends at once, and the answer is late
			<-release
			happened("the interrupt is over")
			w.WriteHeader(http.StatusNoContent)
		}
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Begin(m)
			if jupytertest.Code(m) == "hang" {
				k.Stream(m, "stdout", "x")
				<-interrupted
			} else {
				happened("the next code runs")
			}
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		ks := s.kernels()
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := run(ctx, ks, "hang", printing(cancel)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		waiting := make(chan struct{})
		go func() {
			defer close(release)
			<-waiting
			<-time.After(time.Minute) // in this time, code that does not wait would be sent
		}()
		_, err := run(t.Context(), ks, "next", Handler{Queued: func(int) error {
			close(waiting)
			return nil
		}})
		if err != nil {
			t.Error(err)
		}
		ks.Close()
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]string{"the interrupt is over", "the next code runs"}, order); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Code that the kernel dropped without running it is sent once more. Code that was seen to
// run is not, regardless of its reply.
func TestCodeThatRanIsNotSentAgain(t *testing.T) {
	t.Parallel()
	signs := map[string]any{
		"":               nil, // it did not run
		"execute_input":  jupyter.ExecuteInput{ExecutionCount: 1},
		"stream":         jupyter.StreamContent{Name: "stdout", Text: "x"},
		"execute_result": map[string]any{"data": map[string]any{"text/plain": "1"}},
		"display_data":   map[string]any{"data": map[string]any{"text/plain": "1"}},
		"error":          map[string]any{"ename": "E", "evalue": "", "traceback": []string{}},
	}
	for sign, content := range signs {
		for _, status := range []string{"aborted", "abort", "error"} {
			want := 1
			if sign == "" && status != "error" {
				want = 2
			}
			t.Run(sign+" "+status, func(t *testing.T) {
				t.Parallel()
				onClock(t, func(t *testing.T, s *server) {
					sent := make(chan string, 10)
					s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
						if jupytertest.Code(m) == "" { // an empty request to prove the connection
							k.Begin(m)
							k.Reply(m, "ok")
							k.Status(m, "idle")
							return
						}
						sent <- jupytertest.Code(m)
						k.Status(m, "busy")
						if sign != "" {
							k.Say(m, jupyter.IOPub, sign, content)
						}
						k.Reply(m, status)
						k.Status(m, "idle")
					})
					_, err := run(t.Context(), s.kernels(), "code", Handler{})
					if n := len(sent); n != want {
						t.Errorf("it was sent %d times, want %d", n, want)
					}
					if dropped := errors.Is(err, api.ErrRetryable); dropped != (want == 2) || !dropped && err != nil {
						t.Errorf("got %v, want api.ErrRetryable: %v", err, want == 2)
					}
				})
			})
		}
	}
}

// TestEnvsDoNotStay runs the code for a kernel's environment in a Python: the variables of
// the sandbox do not replace others, and those of a call are gone after it, as is every name
// that this needed.
func TestEnvsDoNotStay(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine: the code is not run")
	}
	const show = "print([__import__('os').environ.get(k) for k in ('OLD', 'ALWAYS', 'CALL')], hasattr(__import__('sys'), '_e2bctl_env'), sorted(k for k in globals() if k[0] != '_'))"
	call := replaceEnvs(map[string]string{"OLD": "call", "CALL": "'\"; é\n"})
	program := strings.Join([]string{completeEnvs(map[string]string{"OLD": "no", "ALWAYS": "here"}), show, call, show, restoreEnvs, show, restoreEnvs, show}, "\n")
	cmd := exec.CommandContext(t.Context(), path, "-I", "-")
	cmd.Stdin = strings.NewReader(program)
	cmd.Env = []string{"OLD=before", "PYTHONIOENCODING=utf-8", "PYTHONUTF8=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const without = "['before', 'here', None] False []"
	want := []string{without, `['call', 'here', '\'"; é\n'] True []`, without, without}
	if diff := cmp.Diff(want, slices.Collect(strings.SplitSeq(strings.TrimSpace(string(out)), "\n"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
