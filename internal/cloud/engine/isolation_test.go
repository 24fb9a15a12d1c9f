package engine

import (
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNoIsolation checks that the error names each level with the machine's answer, and the remedy if
// there is one, and that it matches each answer.
func TestNoIsolation(t *testing.T) {
	t.Parallel()
	e := &NoIsolationError{Attempts: []Attempt{{Full, io.EOF}, {Restricted, fs.ErrPermission}}}
	must.Is(t, e, ErrNoIsolation)
	must.Is(t, e, io.EOF)
	must.Is(t, e, fs.ErrPermission)
	if errors.Is(e, ErrEnded) {
		t.Errorf("%v is %v", e, ErrEnded)
	}
	want := "engine: no isolation on this machine; full: EOF; restricted: permission denied"
	if got := e.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.Remedy = "run it elsewhere"
	want += "; to mend it: run it elsewhere"
	if got := e.Error(); got != want {
		t.Errorf("with a remedy: got %q, want %q", got, want)
	}
}
