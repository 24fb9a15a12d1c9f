package kernelconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// A thread may ask when its cell has ended, or when another cell runs. It is told that there
// is no answer, or gets its answer.
func TestQuestionsOfThreads(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		late := make(chan string, 1)
		s.kernel = func(k *jupytertest.Kernel) {
			first := k.Next()
			k.Begin(first)
			k.Reply(first, "ok")
			k.Status(first, "idle")
			k.Ask(first, "when nothing runs")
			late <- k.Answer()
			for m := k.Next(); m != nil; m = k.Next() {
				k.Begin(m)
				k.Ask(first, "of the first cell")
				k.Stream(m, "stdout", k.Answer())
				k.Reply(m, "ok")
				k.Status(m, "idle")
			}
		}
		ks := s.kernels()
		if _, err := run(t.Context(), ks, "", Handler{}); err != nil {
			t.Fatal(err)
		}
		if got := <-late; got != endOfInput {
			t.Errorf("when nothing ran it got %q", got)
		}
		printed, err := run(t.Context(), ks, "", Handler{Input: func(_ context.Context, prompt string, _ bool) (string, error) { return prompt, nil }})
		if err != nil || printed != "of the first cell" {
			t.Errorf("%q, %v", printed, err)
		}
		if printed, err = run(t.Context(), ks, "", Handler{}); err != nil || printed != endOfInput {
			t.Errorf("without a handler: %q, %v", printed, err)
		}
	})
}

// A kernel that asks again no longer waits for the question before: that question's
// handler ends and its answer is dropped. There is never more than one question.
func TestQuestionsWithoutEnd(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		const questions = 1000
		began := make(chan struct{})
		s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
			k.Begin(m)
			k.Ask(m, "0")
			<-began
			for i := range questions {
				k.Ask(m, fmt.Sprint(i+1))
			}
			k.Stream(m, "stdout", k.Answer())
			k.Reply(m, "ok")
			k.Status(m, "idle")
		})
		running, calls := make(chan struct{}, 1), 0
		printed, err := run(t.Context(), s.kernels(), "", Handler{Input: func(ctx context.Context, prompt string, _ bool) (string, error) {
			select {
			case running <- struct{}{}:
				defer func() { <-running }()
			default:
				t.Error("two at once")
			}
			if calls++; calls == 1 {
				close(began)
			}
			if prompt != fmt.Sprint(questions) {
				<-ctx.Done() // until the next question arrives
				return "late", io.ErrUnexpectedEOF
			}
			return "the last", nil
		}})
		if err != nil || printed != "the last" {
			t.Errorf("%q, %v", printed, err)
		}
	})
}

// A thread whose question is open when its cell ends is told that there is no answer:
// otherwise it would wait forever, and so would the next code that asks.
func TestQuestionThatOutlivesItsCell(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		asked, got := make(chan struct{}), make(chan string, 1)
		s.kernel = func(k *jupytertest.Kernel) {
			first := k.Next()
			k.Begin(first)
			k.Ask(first, "of a thread")
			<-asked
			k.Reply(first, "ok")
			k.Status(first, "idle")
			got <- k.Answer()
			for m := k.Next(); m != nil; m = k.Next() {
				k.Begin(m)
				k.Ask(m, "of the cell")
				k.Stream(m, "stdout", k.Answer())
				k.Reply(m, "ok")
				k.Status(m, "idle")
			}
		}
		ks := s.kernels()
		ctx := patience.Context(t)
		if _, err := run(ctx, ks, "", Handler{Input: func(ctx context.Context, _ string, _ bool) (string, error) {
			close(asked)
			<-ctx.Done()
			return "", ctx.Err()
		}}); err != nil {
			t.Fatal(err)
		}
		printed, err := run(ctx, ks, "", Handler{Input: func(_ context.Context, prompt string, _ bool) (string, error) { return prompt, nil }})
		if answer := <-got; answer != endOfInput {
			t.Errorf("the thread got %q", answer)
		}
		if err != nil || printed != "of the cell" {
			t.Errorf("the next cell: %q, %v", printed, err)
		}
	})
}

// Cancelled code is interrupted before its question gets an answer: a thread with an answer may
// end, and let the code end as if nothing had interrupted it.
func TestQuestionsOfCodeThatIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"an open question": false, "one that is asked meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				began, interrupt, told, answered := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan string, 1)
				s.rest = func(w http.ResponseWriter, _ *http.Request) {
					close(interrupt)
					select {
					case got := <-answered:
						t.Errorf("it got %q before it was interrupted", got)
						answered <- got
					case <-told:
					}
					w.WriteHeader(http.StatusNoContent)
				}
				s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
					k.Begin(m)
					k.Ask(m, "first")
					<-interrupt
					if again {
						k.Ask(m, "second")
					}
					k.Stream(m, "stdout", "x")
					answered <- k.Answer()
					k.Reply(m, "error")
					k.Status(m, "idle")
				})
				limit := func(ctx context.Context) (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancel(ctx)
					go func() { <-began; cancel() }()
					return ctx, cancel
				}
				h := printing(func() { close(told) })
				h.Limit = limit
				h.Input = func(ctx context.Context, _ string, _ bool) (string, error) {
					close(began)
					<-ctx.Done()
					return "late", nil
				}
				_, err := run(t.Context(), s.kernels(), "", h)
				if interrupted, ok := errors.AsType[*InterruptedError](err); !ok || !interrupted.Ended {
					t.Errorf("got %v, want that it was interrupted, and ended", err)
				}
				if got := <-answered; got != endOfInput {
					t.Errorf("it got %q, want no answer", got)
				}
			})
		})
	}
}

// A question that comes right after the end of interrupted code, while the client waits for the
// kernel's death, gets the end of input, as any other question that cannot be answered.
func TestQuestionAfterInterruptedCode(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		got := make(chan string, 1)
		s.kernel = func(k *jupytertest.Kernel) {
			m := k.Next()
			k.Begin(m)
			k.Say(m, jupyter.Shell, "execute_reply", map[string]string{"status": "error", "ename": "KeyboardInterrupt"})
			k.Status(m, "idle")
			k.Ask(m, "of a thread")
			got <- k.Answer()
		}
		reply, err := run(t.Context(), s.kernels(), "", Handler{Input: func(context.Context, string, bool) (string, error) { return "too late", nil }})
		if answer := patience.Receive(t, "the answer", got); answer != endOfInput {
			t.Errorf("the thread got %q, want the end of input", answer)
		}
		if err != nil {
			t.Errorf("got %q, %v", reply, err)
		}
	})
}
