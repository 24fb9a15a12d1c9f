package local

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// TestLinesThatAreTooEarly checks that lines typed before a question, or before it could be read,
// are no answer to it, that it is then shown again, and that the next line is its answer.
func TestLinesThatAreTooEarly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, early, later string // what is typed before the question, at once, and when it could be read
		want                 bool
	}{
		"one before": {before: "y\n", later: "n\n"}, "two before": {before: "y\ny\n", later: "n\n"},
		"many before": {before: strings.Repeat("a\n", 1000), later: "n\n"}, "one at once": {early: "y\n", later: "\n"},
		"both": {before: "y\ny\n", early: "y\ny\n", later: "n\n"}, "no at once": {early: "n\n", later: "y\n", want: true}, "none": {later: "y\n", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				keyboard := make(typing, 2)
				screen := new(cmdtest.Output)
				keyboard <- test.before
				a := newAsker(&cmdutil.IOStreams{In: keyboard, Err: screen}, "")
				synctest.Wait() // the first line waits for a question
				answered := make(chan bool, 1)
				go func() { answered <- a.ask(t.Context(), "i1", "a.test", 1) }()
				synctest.Wait()
				keyboard <- test.early
				<-time.After(readingTime - time.Nanosecond)
				synctest.Wait()
				const question = "sandbox i1 wants to reach a.test:1: allow? [y]es / [N]o / [a]lways "
				if screen.String() != question {
					t.Errorf("the screen has %q before the question could be read, want %q", screen.String(), question)
				}
				<-time.After(time.Nanosecond)
				synctest.Wait()
				want := question
				if test.before+test.early != "" {
					want += "\nignored, because it was typed before the question could be read\n" + question
				}
				if screen.String() != want {
					t.Errorf("the screen has %q, want %q", screen.String(), want)
				}
				keyboard <- test.later
				if got := <-answered; got != test.want {
					t.Errorf("got %t, want %t", got, test.want)
				}
				close(keyboard)
			})
		})
	}
}

// TestSecondYes checks that a "y" that is typed twice allows nothing but the host of the first question.
func TestSecondYes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, keyboard, screen := asking(t, "")
		first, second := make(chan bool, 1), make(chan bool, 1)
		go func() { first <- a.ask(t.Context(), "i1", "a.test", 1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { second <- a.ask(ctx, "i1", "b.test", 1) }()
		<-time.After(readingTime)
		synctest.Wait()
		types(t, keyboard, "y\ny")
		if !<-first || <-second {
			t.Errorf("the screen has %q, want a yes to the first question alone", screen.String())
		}
	})
}

// typing is a keyboard: one Read returns what was typed at once.
type typing chan string

func (k typing) Read(p []byte) (int, error) {
	text, ok := <-k
	if !ok {
		return 0, io.EOF
	}
	if len(text) > len(p) {
		panic("the reader asks for too little at once")
	}
	return copy(p, text), nil
}
