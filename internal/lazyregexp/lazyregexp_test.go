package lazyregexp

import (
	"strings"
	"sync"
	"testing"
)

// TestNew checks that all callers get one and the same compiled expression.
func TestNew(t *testing.T) {
	t.Parallel()
	get := New("^a+$")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if re := get(); !re.MatchString("aa") || re.MatchString("ab") {
				t.Errorf("got %v, want ^a+$", re)
			}
		})
	}
	wg.Wait()
	if first, second := get(), get(); first != second {
		t.Error("got another expression from the second call, want the first")
	}
}

// TestInvalid checks that an invalid expression panics at its first use, and not before.
func TestInvalid(t *testing.T) {
	t.Parallel()
	get := New("(")
	defer func() {
		if text, ok := recover().(string); !ok || !strings.Contains(text, "missing closing )") {
			t.Errorf("got panic %q, want the fault of the expression", text)
		}
	}()
	get()
	t.Error("got no panic from an invalid expression")
}
