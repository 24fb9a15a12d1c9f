package kernelconn

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
)

// A thread may ask when its cell has ended, or when another cell runs: it is told
// that there is no answer, or gets its answer.
func TestQuestionsOfThreads(t *testing.T) {
	t.Parallel()
	s := newServer(t)
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
}

// A kernel that asks again has given up the question before: that question's
// handler ends, its answer is dropped, and there is never more than one.
func TestQuestionsWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newServer(t)
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
			<-ctx.Done() // until the next question is there
			return "late", io.ErrUnexpectedEOF
		}
		return "the last", nil
	}})
	if err != nil || printed != "the last" {
		t.Errorf("%q, %v", printed, err)
	}
}

// A thread whose question is open when its cell ends is told that there is no
// answer: otherwise it would wait forever, and so would the next code that asks.
func TestQuestionThatOutlivesItsCell(t *testing.T) {
	t.Parallel()
	s := newServer(t)
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
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
}
