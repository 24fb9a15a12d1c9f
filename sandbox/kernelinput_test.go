package sandbox

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
	s := newService(t)
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
	sb := s.sandbox()
	if _, err := sb.RunCode(t.Context(), "", nil); err != nil {
		t.Fatal(err)
	}
	if got := <-late; got != "\x04" {
		t.Errorf("when nothing ran it got %q", got)
	}
	execution, err := sb.RunCode(t.Context(), "", &RunCodeParams{Stdin: func(_ context.Context, prompt string, _ bool) (string, error) { return prompt, nil }})
	if err != nil || execution.Stdout != "of the first cell" {
		t.Errorf("%+v, %v", execution, err)
	}
	if execution, err = sb.RunCode(t.Context(), "", nil); err != nil || execution.Stdout != "\x04" {
		t.Errorf("without a handler: %+v, %v", execution, err)
	}
}

// A kernel that asks again has given up the question before: that question's
// handler ends, its answer is dropped, and there is never more than one.
func TestQuestionsWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newService(t)
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
	execution, err := s.sandbox().RunCode(t.Context(), "", &RunCodeParams{Stdin: func(ctx context.Context, prompt string, _ bool) (string, error) {
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
	if err != nil || execution.Stdout != "the last" {
		t.Errorf("%+v, %v", execution, err)
	}
}

// A thread whose question is open when its cell ends is told that there is no
// answer: otherwise it would wait forever, and so would the next code that asks.
func TestQuestionThatOutlivesItsCell(t *testing.T) {
	t.Parallel()
	s := newService(t)
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
	sb := s.sandbox()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := sb.RunCode(ctx, "", &RunCodeParams{Stdin: func(ctx context.Context, _ string, _ bool) (string, error) {
		close(asked)
		<-ctx.Done()
		return "", ctx.Err()
	}}); err != nil {
		t.Fatal(err)
	}
	execution, err := sb.RunCode(ctx, "", &RunCodeParams{Stdin: func(_ context.Context, prompt string, _ bool) (string, error) { return prompt, nil }})
	if answer := <-got; answer != "\x04" {
		t.Errorf("the thread got %q", answer)
	}
	if err != nil || execution.Stdout != "of the cell" {
		t.Errorf("the next cell: %+v, %v", execution, err)
	}
}
