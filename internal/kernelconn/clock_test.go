package kernelconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
)

// onClock calls f in a bubble, with a server whose connections are pipes. The waits of calls then take no
// time, and are exact. If f takes a day of the bubble's time, something in it never ends, and the pings of
// connections would let it go on.
func onClock(t *testing.T, f func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		limit := time.AfterFunc(24*time.Hour, func() { panic(t.Name() + " does not end") })
		t.Cleanup(func() { limit.Stop() }) // after the kernels are closed
		s := &server{t: t, url: "http://sandbox"}
		transport := pipetest.Serve(t, s)
		s.http, s.dialer = &http.Client{Transport: transport}, &websocket.Dialer{NetDialContext: transport.DialContext}
		f(t, s)
	})
}

// reading returns a function that serves a kernel with f. It reads the messages of the client also while f
// waits, so that pings are answered. When f returns, the websocket ends.
func reading(f func(k *jupytertest.Kernel, requests <-chan *jupyter.Message)) func(*jupytertest.Kernel) {
	return func(k *jupytertest.Kernel) {
		requests := make(chan *jupyter.Message, 64)
		var reader sync.WaitGroup
		reader.Go(func() {
			defer close(requests)
			for m := k.Next(); m != nil; m = k.Next() {
				requests <- m
			}
		})
		f(k, requests)
		_ = k.Socket.Close()
		reader.Wait()
	}
}

// arriving returns the requests that arrive within d, or before the websocket ends.
func arriving(requests <-chan *jupyter.Message, d time.Duration) iter.Seq[*jupyter.Message] {
	return func(yield func(*jupyter.Message) bool) {
		over := time.After(d)
		for {
			select {
			case m := <-requests:
				if m == nil || !yield(m) {
					return
				}
			case <-over:
				return
			}
		}
	}
}

// journal records events with the time since its beginning.
type journal struct {
	began time.Time

	mu     sync.Mutex
	events []string
}

func newJournal() *journal { return &journal{began: time.Now()} }

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, time.Since(j.began).String()+" "+fmt.Sprintf(format, args...))
}

func (j *journal) check(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if diff := cmp.Diff(want, j.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// rest records the requests to the kernels' server. The requests in hanging get no answer. The state of the
// kernel is state.
func (j *journal) rest(state string, hanging ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		step := path.Base(r.URL.Path)
		if r.Method != http.MethodPost {
			step = r.Method
		}
		j.note("%s", step)
		switch {
		case slices.Contains(hanging, step):
			<-r.Context().Done()
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"execution_state":"`+state+`"}`)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// answerNext answers requests like code that ends at once.
func answerNext(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
	for m := range requests {
		switch m.Header.MsgType {
		case "execute_request":
			printX(k, m)
		case "kernel_info_request": // the barrier
			k.Say(m, jupyter.Shell, "kernel_info_reply", map[string]string{"status": "ok"})
		}
	}
}

// hangingOnce returns a kernel that never answers the first code, which begins after the time in begin. A negative
// time means never. It answers all later code.
func hangingOnce(begin time.Duration) func(*jupytertest.Kernel) {
	hung := make(chan struct{}, 1)
	return reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
		for m := range requests {
			select {
			case hung <- struct{}{}:
			default:
				printX(k, m)
				continue
			}
			if begin >= 0 {
				<-time.After(begin)
				k.Begin(m)
			}
		}
	})
}

// cancelling returns a context that ends after d.
func cancelling(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestTimesOfStop checks when code that was given up is interrupted, when its kernel is replaced, and when the next
// call is made.
func TestTimesOfStop(t *testing.T) {
	t.Parallel()
	interrupts := []string{"1s interrupt", "3s interrupt", "5s interrupt"}
	for name, tt := range map[string]struct {
		begin   time.Duration // when the code begins; -1: never
		state   string        // of the kernel, as the server reports it
		hanging []string
		want    []string
		next    error // of the next call
	}{
		"restarted": {0, "", nil, append(slices.Clone(interrupts), "7s restart", "7s next"), ErrRestarted},
		"ended":     {0, "", []string{"restart"}, append(slices.Clone(interrupts), "7s restart", "27s DELETE", "27s next"), ErrRestarted},
		"neither":   {0, "", []string{"restart", "DELETE"}, append(slices.Clone(interrupts), "7s restart", "27s DELETE", "32s next"), nil},
		"behind other code": {5010 * time.Millisecond, "busy", nil,
			[]string{"3s GET", "5s GET", "5.04s interrupt", "7.04s interrupt", "9.04s interrupt", "11.04s restart", "11.04s next"}, ErrRestarted},
		"it says nothing": {-1, "idle", nil,
			[]string{"3s GET", "3s interrupt", "5s GET", "5s interrupt", "7s GET", "7s interrupt", "9s GET", "9s restart", "9s next"}, ErrRestarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				j, dials := newJournal(), 0
				s.dialled = func(context.Context) { dials++ }
				s.rest, s.kernel = j.rest(tt.state, tt.hanging...), hangingOnce(tt.begin)
				ks := s.kernels()
				_, err := run(cancelling(t, time.Second), ks, "hang", Handler{})
				if given, ok := errors.AsType[*InterruptedError](err); !ok || given.Ended || (given.Ran > 0) != (tt.begin == 0) {
					t.Errorf("got %+v, want that it was given up", err)
				}
				_, err = run(cancelling(t, time.Hour), ks, "next", Handler{})
				j.note("next")
				if !errors.Is(err, tt.next) {
					t.Errorf("the next call: got %v, want %v", err, tt.next)
				}
				if _, err := run(cancelling(t, time.Hour), ks, "x", Handler{}); err != nil {
					t.Errorf("the call after it: %v", err)
				}
				j.check(t, tt.want...)
				if dials != 2 {
					t.Errorf("%d websockets were opened, want another one for the next calls", dials)
				}
			})
		})
	}
}

// TestGraces checks for how long a call waits for the reaction of code that it interrupts, its report, and the result of
// the next call.
func TestGraces(t *testing.T) {
	t.Parallel()
	const react = 1500 * time.Millisecond // the time of the reaction
	mine := errors.New("mine")
	for name, tt := range map[string]struct {
		cancelled, limited time.Duration // when the context and the limit end
		reacts             func(*jupytertest.Kernel, *jupyter.Message)
		fails              error // of the handler, for the reaction
		took               time.Duration
		ended              bool
		told               string
		next               error
	}{
		"cancelled":               {time.Second, time.Hour, nil, nil, 1050 * time.Millisecond, false, "", ErrRestarted},
		"the limit":               {time.Hour, time.Second, nil, nil, 3 * time.Second, false, "", ErrRestarted},
		"the limit, and given up": {2 * time.Second, time.Second, nil, nil, 2 * time.Second, false, "", ErrRestarted},
		"it ends":                 {time.Hour, time.Second, endInterrupted, nil, react, true, "stream status", nil},
		"the handler fails":       {time.Hour, time.Second, endInterrupted, mine, react, false, "stream", nil},
		"it dies":                 {time.Hour, time.Second, func(k *jupytertest.Kernel, _ *jupyter.Message) { k.Status(nil, "dead") }, nil, react, false, "", ErrRestarted},
		"it is cut":               {time.Hour, time.Second, func(k *jupytertest.Kernel, _ *jupyter.Message) { _ = k.Socket.Close() }, nil, react, false, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				s.kernel = reactingOnce(react, tt.reacts)
				ks := s.kernels()
				var told []string
				began := time.Now()
				_, err := run(cancelling(t, tt.cancelled), ks, "x", Handler{
					Limit: func(ctx context.Context) (context.Context, context.CancelFunc) {
						return context.WithTimeout(ctx, tt.limited)
					},
					Message: func(m *jupyter.Message) error {
						if time.Since(began) < time.Second {
							return nil
						}
						told = append(told, m.Header.MsgType)
						return tt.fails
					},
				})
				given, ok := errors.AsType[*InterruptedError](err)
				if took := time.Since(began); !ok || took != tt.took || given.Ended != tt.ended || given.Ran != time.Second {
					t.Errorf("got %+v after %v, want that it ended: %v, after %v", err, took, tt.ended, tt.took)
				}
				if got := strings.Join(told, " "); got != tt.told {
					t.Errorf("the handler got %q, want %q", got, tt.told)
				}
				if _, err := run(cancelling(t, time.Hour), ks, "next", Handler{}); !errors.Is(err, tt.next) {
					t.Errorf("the next call: got %v, want %v", err, tt.next)
				}
			})
		})
	}
}

// endInterrupted ends code like an interrupt, after a question that nobody can answer.
func endInterrupted(k *jupytertest.Kernel, m *jupyter.Message) {
	k.Stream(m, "stderr", "traceback")
	k.Ask(m, "not told")
	k.Reply(m, "error")
	k.Status(m, "idle")
}

// reactingOnce returns a kernel whose first code calls react after a time, and never ends by itself. Later code ends at
// once.
func reactingOnce(after time.Duration, react func(*jupytertest.Kernel, *jupyter.Message)) func(*jupytertest.Kernel) {
	first := make(chan struct{}, 1)
	return reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
		select {
		case first <- struct{}{}:
			m := <-requests
			k.Begin(m)
			if react != nil {
				<-time.After(after)
				react(k, m)
			}
		default:
		}
		answerNext(k, requests)
	})
}

// TestTimesOfResume checks for how long a websocket is dialled anew, and which errors end that at once.
func TestTimesOfResume(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		paused bool
		gone   bool
		dials  int
		took   time.Duration
		want   error
	}{
		"cut":            {http.StatusBadGateway, false, false, 7, resumeTime, ErrLost},
		"paused":         {http.StatusBadGateway, true, false, 11, wakeTime, ErrLost},
		"no kernel":      {http.StatusNotFound, true, false, 1, 0, ErrDied},
		"no sandbox":     {http.StatusBadGateway, true, true, 1, 0, ErrLost},
		"refused, alive": {http.StatusForbidden, false, false, 7, resumeTime, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				s.settle = func(context.Context) bool { return tt.paused }
				s.gone = func(err error) bool {
					if _, ok := errors.AsType[*jupyter.DialError](err); !ok {
						t.Errorf("got %v, want the error of dialling", err)
					}
					return tt.gone
				}
				dials, began := 0, time.Now()
				s.dialled = func(context.Context) { dials++ }
				s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
					k.Begin(<-requests)
					<-time.After(time.Second)
					s.socket = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.status) }
				})
				ks := s.kernels()
				k, err := ks.Open(t.Context(), "", "")
				must.Do(t, err)
				_, err = run(cancelling(t, time.Hour), ks, "x", Handler{})
				if took := time.Since(began) - time.Second; !errors.Is(err, tt.want) || took != tt.took || dials != 1+tt.dials {
					t.Errorf("got %v %v after the cut and %d more dials, want %v after %v and %d dials", err, took, dials-1, tt.want, tt.took, tt.dials)
				}
				if made := s.made.Load(); made == nil || !made.Equal(began) {
					t.Errorf("the cut connection was made at %v, want %v", made, began)
				}
				if k.primed.Load() {
					t.Error("the environment counts as set")
				}
			})
		})
	}
}

// TestSilencesAfterACut checks for how long a call waits for code that says nothing after a cut: code that cannot ask may
// take any time.
func TestSilencesAfterACut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		h    Handler
		took time.Duration
		text string
	}{
		"it may ask":    {Handler{Input: func(context.Context, string, bool) (string, error) { return "", nil }}, 6 * time.Minute, "may wait for an answer"},
		"it cannot ask": {Handler{}, 20 * time.Minute, "while it was cut"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				s.rest = newJournal().rest("busy")
				var first *jupyter.Message
				s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
					if first == nil {
						first = <-requests
						k.Begin(first)
						return
					}
					for range arriving(requests, 20*time.Minute) {
						continue
					}
					k.Reply(first, "ok")
					k.Status(first, "idle")
					answerNext(k, requests)
				})
				began := time.Now()
				_, err := run(cancelling(t, time.Hour), s.kernels(), "x", tt.h)
				if took := time.Since(began); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), tt.text) || took != tt.took {
					t.Errorf("got %v after %v, want %v with %q after %v", err, took, ErrLost, tt.text, tt.took)
				}
			})
		})
	}
}

// TestAnswersAfterACut checks that an answer is sent again after a cut, unless the code goes on without that.
func TestAnswersAfterACut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		says func(k *jupytertest.Kernel, m *jupyter.Message)
		want []string
	}{
		"nothing":           {func(*jupytertest.Kernel, *jupyter.Message) {}, []string{"1s first"}},
		"output":            {func(k *jupytertest.Kernel, m *jupyter.Message) { k.Stream(m, "stdout", "x") }, []string{"1s first"}},
		"the next question": {func(k *jupytertest.Kernel, m *jupyter.Message) { k.Ask(m, "second") }, []string{"0s second"}},
		"a reply":           {func(k *jupytertest.Kernel, m *jupyter.Message) { k.Reply(m, "ok") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				j := newJournal()
				var m *jupyter.Message
				s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
					if m == nil {
						m = <-requests
						k.Begin(m)
						k.Ask(m, "first")
						<-requests
						return
					}
					<-requests // the barrier
					tt.says(k, m)
					for answer := range arriving(requests, 3*time.Second) {
						var reply jupyter.InputReply
						if err := answer.Decode(&reply); err != nil {
							t.Error(err)
						}
						j.note("%s", reply.Value)
					}
					k.Reply(m, "ok")
					k.Status(m, "idle")
					answerNext(k, requests)
				})
				_, err := run(cancelling(t, time.Hour), s.kernels(), "x", Handler{Input: func(_ context.Context, prompt string, _ bool) (string, error) { return prompt, nil }})
				if !errors.Is(err, ErrLost) { // for messages without numbers, nobody knows
					t.Errorf("got %v, want %v", err, ErrLost)
				}
				j.check(t, tt.want...)
			})
		})
	}
}

// TestOtherHalf checks for how long a call waits for the second of the two messages that end its code, whatever else the
// kernel says meanwhile.
func TestOtherHalf(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(*jupytertest.Kernel, *jupyter.Message){
		"the reply":  func(k *jupytertest.Kernel, m *jupyter.Message) { k.Reply(m, "ok") },
		"the status": func(k *jupytertest.Kernel, m *jupyter.Message) { k.Status(m, "idle") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				s.kernel = reading(func(k *jupytertest.Kernel, requests <-chan *jupyter.Message) {
					m := <-requests
					k.Begin(m)
					<-time.After(time.Minute)
					first(k, m)
					for range 4 {
						<-time.After(4 * time.Second)
						k.Stream(m, "stdout", "x")
					}
					answerNext(k, requests)
				})
				ks, began := s.kernels(), time.Now()
				_, err := run(cancelling(t, time.Hour), ks, "x", Handler{})
				if took := time.Since(began) - time.Minute; !errors.Is(err, ErrLost) || took != otherHalf {
					t.Errorf("got %v after %v, want %v after %v", err, took, ErrLost, otherHalf)
				}
				if _, err := run(cancelling(t, time.Hour), ks, "x", Handler{}); err != nil {
					t.Errorf("the next call: %v", err)
				}
			})
		})
	}
}

// TestProofs checks how often, and for how long, a fresh kernel is asked until its messages arrive.
func TestProofs(t *testing.T) {
	t.Parallel()
	for deaf, want := range map[int]error{0: nil, 1: nil, proveAttempts - 1: nil, proveAttempts: ErrNotSent} {
		t.Run(fmt.Sprint(deaf), func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				requests := 0
				s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
					if requests++; requests > deaf {
						k.Begin(m)
						defer k.Status(m, "idle")
					}
					k.Reply(m, "ok")
				})
				ks, began := s.kernels(), time.Now()
				ks.noteEnd(testContext)
				_, err := run(cancelling(t, time.Hour), ks, "x", Handler{})
				if took := time.Since(began); !errors.Is(err, want) || took != time.Duration(deaf)*provePatience {
					t.Errorf("got %v after %v, want %v after %d times %v", err, took, want, deaf, provePatience)
				}
				k := ks.Opened("python")
				if failed := want != nil; failed != k.unproven || failed == k.primed.Load() || failed != (err != nil) {
					t.Errorf("got error %v, unproven %v and primed %v", err, k.unproven, k.primed.Load())
				}
				sent := deaf + 2 // one that is answered, and the code
				if want != nil {
					sent = proveAttempts
				}
				if requests != sent {
					t.Errorf("%d requests were sent, want %d", requests, sent)
				}
			})
		})
	}
}

// TestStateInTime checks that a server that does not report the state of a kernel is asked for a limited time.
func TestStateInTime(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.rest, s.kernel = newJournal().rest("", "GET"), jupytertest.Answering(printX)
		k, err := s.kernels().Open(t.Context(), "", "")
		must.Do(t, err)
		began := time.Now()
		if state := k.state(t.Context()); state != "" || time.Since(began) != otherHalf {
			t.Errorf("got %q after %v, want nothing after %v", state, time.Since(began), otherHalf)
		}
	})
}

// TestAfterwards checks for how long a call looks for the death of a kernel whose code was interrupted, and by whom.
func TestAfterwards(t *testing.T) {
	t.Parallel()
	dead, other := content("", jupyter.IOPub, "status", `{"execution_state":"dead","reason":"memory"}`), content("", jupyter.IOPub, "stream", `{}`)
	for name, tt := range map[string]struct {
		answer   string // the name of the exception
		ours     bool   // this handle interrupted it
		given    bool   // the call was given up
		messages []*jupyter.Message
		took     time.Duration
		want     error
	}{
		"not interrupted":    {"ValueError", false, false, []*jupyter.Message{dead}, 0, nil},
		"by this handle":     {"KeyboardInterrupt", true, false, []*jupyter.Message{dead}, 0, nil},
		"it goes on":         {"KeyboardInterrupt", false, false, []*jupyter.Message{other}, afterInterrupt, nil},
		"it dies":            {"KeyboardInterrupt", false, false, []*jupyter.Message{other, dead}, 0, ErrDied},
		"the websocket ends": {"KeyboardInterrupt", false, false, []*jupyter.Message{nil}, 0, nil},
		"it is given up":     {"KeyboardInterrupt", false, true, nil, 0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &execution{messages: make(chan *jupyter.Message, 2)}
			e.reply.Name = tt.answer
			e.interrupting.Store(tt.ours)
			for _, m := range tt.messages {
				e.messages <- m
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.given {
				cancel()
			}
			began := time.Now()
			err := new(Kernel).afterwards(ctx, e)
			if took := time.Since(began); !errors.Is(err, tt.want) || err != nil && !strings.HasSuffix(err.Error(), ": memory") || took != tt.took {
				t.Errorf("%s: got %v after %v, want %v after %v", name, err, took, tt.want, tt.took)
			}
		})
	}
}
