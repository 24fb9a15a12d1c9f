package sandbox

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPartingTable holds the table on the page of Close.
func TestPartingTable(t *testing.T) {
	t.Parallel()
	want := map[string][]string{}
	for _, line := range closePage(t) {
		if cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1); strings.HasPrefix(line, "\t") && len(cells) == 6 {
			want[cells[0]] = cells[1:]
		}
	}
	parting := map[string]func(*Sandbox) error{
		"Close":  (*Sandbox).Close,
		"Detach": (*Sandbox).Detach,
		"Kill":   func(sb *Sandbox) error { return sb.Kill(t.Context()) },
	}
	got := map[string][]string{}
	for name, part := range parting {
		owned, handle := partedBy(t, part, true)
		other, otherHandle := partedBy(t, part, false)
		if handle != otherHandle {
			t.Errorf("%s: the handle %s if it owns the sandbox, and else %s", name, handle, otherHandle)
		}
		got[name] = []string{owned, other, handle, partingFromNothing(t, part), partingTwice(t, part)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page of Close is not what happens (-page +now):\n%s", diff)
	}
}

// closePage returns the lines of the page of Close.
func closePage(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "sandbox.go", nil, parser.ParseComments)
	must.Do(t, err)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Close" {
			return strings.Split(f.Doc.Text(), "\n")
		}
	}
	t.Fatal("sandbox.go has no Close")
	return nil
}

// parted returns a handle of a service of its own.
func parted(t *testing.T, owned bool) (*service, *Sandbox) {
	t.Helper()
	s := newService(t)
	c := s.client()
	open := func() (*Sandbox, error) { return c.Connect(t.Context(), testID) }
	if owned {
		open = func() (*Sandbox, error) { return c.Create(t.Context()) }
	}
	sb, err := open()
	must.Do(t, err)
	t.Cleanup(func() { sb.Close() })
	if sb.Owned() != owned {
		t.Errorf("Owned returns %v, want %v", !owned, owned)
	}
	return s, sb
}

// partedBy describes the effect of part on the sandbox and on the handle.
func partedBy(t *testing.T, part func(*Sandbox) error, owned bool) (sandbox, handle string) {
	t.Helper()
	s, sb := parted(t, owned)
	if err := part(sb); err != nil {
		t.Error(err)
	}
	sandbox, handle = "leaves it", "stays open"
	if s.seen("DELETE ") > 0 {
		sandbox = "ends it"
	}
	if _, err := sb.Info(t.Context()); errors.Is(err, ErrClosed) {
		handle = "is closed"
	}
	return sandbox, handle
}

// partingFromNothing names the error of part for a sandbox that is gone.
func partingFromNothing(t *testing.T, part func(*Sandbox) error) string {
	t.Helper()
	s, sb := parted(t, true)
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	return partingError(part(sb))
}

// partingTwice names the error of part for a handle that is closed.
func partingTwice(t *testing.T, part func(*Sandbox) error) string {
	t.Helper()
	_, sb := parted(t, true)
	must.Do(t, sb.Detach())
	return partingError(part(sb))
}

func partingError(err error) string {
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, ErrGone):
		return "ErrGone"
	case errors.Is(err, ErrClosed):
		return "ErrClosed"
	}
	return err.Error()
}
