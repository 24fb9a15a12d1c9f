package code

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The traceback of interrupted code is on stderr, and shows where it hung. Nothing is added if
// there is none, and JSON stays alone.
func TestInterruptedCodeShowsWhereItWas(t *testing.T) {
	t.Parallel()
	interrupted := &sandbox.InterruptedError{Cause: context.DeadlineExceeded}
	said := &sandbox.Execution{Error: &sandbox.ExecutionError{Name: "KeyboardInterrupt", Traceback: "Cell In[1], line 3\nKeyboardInterrupt\n"}}
	for _, test := range []struct {
		name      string
		json      bool
		execution *sandbox.Execution
		want      string
	}{
		{name: "traceback", execution: said, want: "Cell In[1], line 3\nKeyboardInterrupt\n"},
		{name: "JSON", json: true, execution: said},
		{name: "no traceback", execution: &sandbox.Execution{}},
		{name: "not started"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			o := runOptions{JSON: test.json}
			err := o.givenUp(&codeWriter{w: &got}, test.execution, interrupted)
			if own, ok := errors.AsType[*cmdutil.OwnError](err); !ok || !own.Running || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want a *cmdutil.OwnError of running code with its cause", err)
			}
			if got.String() != test.want {
				t.Errorf("stderr has %q, want %q", got.String(), test.want)
			}
		})
	}
}
