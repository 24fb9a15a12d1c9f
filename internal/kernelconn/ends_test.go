package kernelconn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEndsOfCalls checks the error of a call whose code does not end as usual, when the call returns, and the records of
// the kernel after it.
func TestEndsOfCalls(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		says, then       func(*jupytertest.Kernel, *jupyter.Message) // then says the rest, just before the cause is no longer awaited
		want             error
		text             string
		took             time.Duration
		primed, replaced bool // the environment is set; another kernel takes its place
	}{
		"a malformed reply": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Say(m, jupyter.Shell, "execute_reply", []int{})
		}, nil, ErrLost, "malformed", 0, false, false},
		"a death with a reason": {func(k *jupytertest.Kernel, _ *jupyter.Message) {
			k.Status(nil, "restarting")
		}, func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Say(m, jupyter.IOPub, "error", map[string]string{"evalue": "memory"})
		}, ErrDied, ": memory", causeTimeout - time.Millisecond, false, true},
		"a death without one": {func(k *jupytertest.Kernel, _ *jupyter.Message) {
			k.Status(nil, "dead")
		}, nil, ErrDied, "", causeTimeout, false, true},
		"a client's restart": {func(k *jupytertest.Kernel, _ *jupyter.Message) {
			k.Say(nil, jupyter.IOPub, "shutdown_reply", map[string]bool{"restart": true})
		}, nil, ErrDied, "a client restarted its context", 0, false, true},
		"dropped twice": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Reply(m, "aborted")
			k.Status(m, "idle")
		}, nil, api.ErrRetryable, "dropped the code twice", 0, true, false},
		"an exception": {func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Begin(m)
			k.Reply(m, "error")
			k.Status(m, "idle")
		}, nil, nil, "", 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
					for m := range requests {
						if jupytertest.Code(m) == "x" {
							if tt.says(k, m); tt.then != nil {
								<-time.After(causeTimeout - time.Millisecond)
								tt.then(k, m)
							}
							continue
						}
						printX(k, m)
					}
				})
				ks := s.kernels()
				k, err := ks.Open(t.Context(), "", "")
				must.Do(t, err)
				began := time.Now()
				_, err = run(cancelling(t, time.Hour), ks, "x", Handler{})
				if took := time.Since(began); !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.text) || took != tt.took {
					t.Errorf("got %v after %v, want %v with %q after %v", err, took, tt.want, tt.text, tt.took)
				}
				synctest.Wait()
				if k.primed.Load() != tt.primed || ks.replaced[testContext] != tt.replaced || k.isCut() != tt.replaced || !k.heard.Load() {
					t.Errorf("primed %v, replaced %v, cut %v and heard %v; want %v and %v", k.primed.Load(), ks.replaced, k.isCut(), k.heard.Load(), tt.primed, tt.replaced)
				}
				_, err = run(cancelling(t, time.Hour), ks, "next", Handler{})
				must.Do(t, err)
			})
		})
	}
}

// TestQuestionIsGivenUpInACut checks that a request that runs no code ends with its caller, also while its websocket is
// opened again, and that it is not interrupted.
func TestQuestionIsGivenUpInACut(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		j := newJournal()
		s.rest = j.rest("")
		s.settle = func(context.Context) bool { return true }
		s.kernel = func(k *jupytertest.Kernel) {
			k.Next()
			s.socket = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
		}
		ks := s.kernels()
		err := ks.Ask(cancelling(t, 10*time.Second), Question{Kind: "complete"}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "has not answered") {
			t.Errorf("got %v, want that the kernel has not answered in time", err)
		}
		j.note("end")
		j.check(t, "10s end")
		s.socket, s.kernel = nil, reading(answerNext)
		_, err = run(cancelling(t, time.Minute), ks, "x", Handler{})
		must.Do(t, err)
	})
}

// TestGivenUpInACut cuts a websocket, and then cancels the call. It checks that the call ends at once, and that
// the next call does not wait.
func TestGivenUpInACut(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		j := newJournal()
		settles := 0
		s.settle = func(ctx context.Context) bool {
			if settles++; settles == 1 {
				<-ctx.Done()
			}
			return true
		}
		s.kernel = reactingOnce(time.Second, func(k *jupytertest.Kernel, _ *jupyter.Message) { _ = k.Socket.Close() })
		ks := s.kernels()
		_, err := run(cancelling(t, 2*time.Second), ks, "x", Handler{})
		if given, ok := errors.AsType[*InterruptedError](err); !ok || given.Ran != 2*time.Second {
			t.Errorf("got %+v, want that it was given up", err)
		}
		j.note("given up")
		_, err = run(cancelling(t, time.Hour), ks, "next", Handler{})
		must.Do(t, err)
		j.note("next")
		j.check(t, "2s given up", "2s next")
	})
}

// TestStopGoesOn checks the steps while code that was given up is interrupted: a question is turned down, a websocket
// that is cut is opened again if that is possible, and the variables of the call are put back at the end.
func TestStopGoesOn(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		j := newJournal()
		s.rest = j.rest("")
		s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
			for m := range requests {
				k.Begin(m)
				if jupytertest.Code(m) == "hang" {
					<-time.After(1500 * time.Millisecond)
					k.Ask(m, "?")
					var reply jupyter.InputReply
					if err := (<-requests).Decode(&reply); err != nil {
						t.Error(err)
					}
					j.note("%q", reply.Value)
				}
				for what, code := range map[string]string{"set": replaceEnvs(map[string]string{"A": "1"}), "put back": restoreEnvs, "next": "next"} {
					if jupytertest.Code(m) == code {
						j.note("%s", what)
					}
				}
				k.Reply(m, "ok")
				k.Status(m, "idle")
			}
		})
		ks := s.kernels()
		_, err := ks.Execute(cancelling(t, time.Second), Call{Request: jupyter.ExecuteRequest{Code: "hang"}, Envs: map[string]string{"A": "1"}})
		must.Is(t, err, context.DeadlineExceeded)
		_, err = run(cancelling(t, time.Minute), ks, "next", Handler{})
		must.Do(t, err)
		j.check(t, "0s set", "1s interrupt", `1.5s "\x04"`, "1.5s put back", "1.5s next")
	})
	onClock(t, func(t *testing.T, s *server) {
		j := newJournal()
		s.rest = j.rest("")
		s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
			k.Begin(<-requests)
			<-time.After(1500 * time.Millisecond)
			s.socket = http.NotFound
		})
		ks := s.kernels()
		k, err := ks.Open(t.Context(), "", "")
		must.Do(t, err)
		_, err = run(cancelling(t, time.Second), ks, "hang", Handler{})
		must.Is(t, err, context.DeadlineExceeded)
		<-k.Done()
		j.note("end")
		if k.primed.Load() || k.unfinished() != nil {
			t.Error("the environment counts as set, or the code as running")
		}
		j.check(t, "1s interrupt", "1.5s interrupt", "1.5s end")
	})
}

// TestNoInterruptWhileCut checks that code that was given up is not interrupted over a websocket that is cut, because an
// interrupt would resume a paused sandbox.
func TestNoInterruptWhileCut(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		j := newJournal()
		s.rest, s.kernel = j.rest(""), reading(answerNext)
		k, err := s.kernels().Open(t.Context(), "", "")
		must.Do(t, err)
		cut := func(broken bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.broken = broken
		}
		e := &execution{messages: make(chan *jupyter.Message, 2), busy: true, id: "mine", answer: "execute_reply"}
		cut(true) // the reader has not noticed yet
		heeded := make(chan bool)
		go func() { heeded <- k.interruptUntilOver(t.Context(), e) }()
		<-time.After(time.Second + time.Millisecond)
		cut(false)
		<-time.After(time.Second)
		e.messages <- content("mine", jupyter.Shell, "execute_reply", `{"status":"ok"}`)
		e.messages <- content("mine", jupyter.IOPub, "status", `{"execution_state":"idle"}`)
		if !<-heeded || !e.over || e.interrupts != 1 {
			t.Errorf("after %d interrupts: over %v, want that after one", e.interrupts, e.over)
		}
		j.check(t, "1.04s interrupt")
	})
}

// TestInterruptOfUnknownCode checks that code is interrupted at once if it may run: after a cut, its beginning may have
// been lost.
func TestInterruptOfUnknownCode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ busy, resumed, at bool }{{false, false, false}, {true, false, true}, {false, true, true}, {true, true, true}} {
		onClock(t, func(t *testing.T, s *server) {
			j := newJournal()
			s.rest, s.kernel = j.rest("busy"), reading(answerNext)
			k, err := s.kernels().Open(t.Context(), "", "")
			must.Do(t, err)
			e := &execution{messages: make(chan *jupyter.Message), busy: tt.busy, resumed: tt.resumed}
			ctx := cancelling(t, time.Second)
			if !k.interruptUntilOver(ctx, e) || ctx.Err() == nil {
				t.Error("the interrupt had no effect, want that nobody waits for one")
			}
			var want []string
			if tt.at {
				want = []string{"0s interrupt"}
			}
			j.check(t, want...)
		})
	}
}

// TestKernelKeepsNoLock checks that the lock of a connection is free after each function.
func TestKernelKeepsNoLock(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.kernel = answeringAll(func(*jupytertest.Kernel, *jupyter.Message) {})
	conn, err := s.Dial(t.Context(), "/api/kernels/c0ffee/channels")
	must.Do(t, err)
	// Nothing closes it if a lock is kept: this would wait for that lock.
	k := newKernel(s.kernels(), testContext, "python", "session", conn, false)
	var e *execution
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"isCut", func() { k.isCut() }}, {"refused", func() { k.refused() }}, {"unfinished", func() { k.unfinished() }}, {"nothingMissed", func() { k.nothingMissed() }},
		{"complete", func() { k.complete(new(execution)) }}, {"write", func() { k.write(jupyter.Control, "x", jupyter.Header{}, nil) }},
		{"beginUse", func() { _ = k.beginUse(false) }}, {"takeTurn", func() { _ = k.takeTurn(t.Context(), nil) }}, {"send", func() { e, _ = k.send(silently("")) }},
		{"unread", func() { k.unread(content("", jupyter.IOPub, "stream", "{}")) }}, {"leave", func() { k.leave(e) }},
		{"replace", func() { k.replace(t.Context()) }}, {"unread, doomed", func() { k.unread(content("", jupyter.IOPub, "status", `{"execution_state":"dead"}`)) }},
		{"hangUp", k.hangUp}, {"receive", func() { <-k.done }}, {"send over what has ended", func() { _, _ = k.send(silently("")) }},
		{"Interrupt", func() { _ = k.Interrupt(t.Context()) }}, {"close", k.close},
	} {
		step.do()
		if !isFree(&k.mu) {
			t.Fatalf("%s keeps the lock", step.name)
		}
	}
	var names []string
	for name := range k.kernels.replaced {
		names = append(names, name)
	}
	if diff := cmp.Diff([]string{testContext}, names); diff != "" || !k.doomed || k.spent || k.primed.Load() {
		t.Errorf("doomed %v, spent %v, replaced (-want +got):\n%s", k.doomed, k.spent, diff)
	}
	must.Is(t, k.kernels.Loss(testContext), ErrRestarted)
}
