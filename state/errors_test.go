package state

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPathsAreBounded checks that a step names the whole of a short key and the beginning of a long one,
// and that a path through many steps keeps its beginning.
func TestPathsAreBounded(t *testing.T) {
	t.Parallel()
	for n := 63; n <= 65; n++ {
		key := strings.Repeat("k", n)
		want := "[" + key + "]"
		if n > 64 {
			want = "[" + key[:64] + "…]"
		}
		if got := keyStep([]byte(key)); got != want {
			t.Errorf("a key of %d bytes: got %s, want %s", n, got, want)
		}
	}
	for n := 2*maxPath - 2; n <= 2*maxPath; n++ {
		inner := &LimitError{Path: strings.Repeat("p", n)}
		if err := within(inner, "s"); inner.Path != ("s" + strings.Repeat("p", n))[:min(n+1, 2*maxPath)] {
			t.Errorf("a path of %d bytes: got %d bytes and %v, want at most %d", n+1, len(inner.Path), err, 2*maxPath)
		}
	}
}

// TestErrorsWithin checks the path and the text of each kind of error of a value in another one.
func TestErrorsWithin(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	text := reflect.TypeFor[string]()
	for want, err := range map[string]error{
		`state: a["b"]: string has no Python form`: &UnsupportedTypeError{Type: text, Path: `["b"]`}, `state: a["b"]: a cycle`: &UnsupportedValueError{Path: `["b"]`, Reason: "a cycle"},
		`state: a["b"]: more than MaxNodes allows (3)`: &LimitError{Limit: "MaxNodes", Max: 3, Path: `["b"]`}, `a: other`: other,
		`state: decode a["b"] (byte 7): no`: &DecodeError{Path: `["b"]`, Offset: 7, Type: text, Reason: "no"},
	} {
		before := fmt.Sprintf("%T", err)
		got := within(err, "a")
		if got.Error() != want || !errors.Is(got, err) {
			t.Errorf("%s: got %v, want %s", before, got, want)
		}
	}
	for want, err := range map[string]error{
		"state: value: string has no Python form": &UnsupportedTypeError{Type: text}, "state: value: no": &UnsupportedValueError{Reason: "no"},
		"state: value: more than MaxBytes allows (1)": &LimitError{Limit: "MaxBytes", Max: 1}, "state: decode value (byte 0): no": &DecodeError{Reason: "no"},
	} {
		if err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for n, cut := range map[int]bool{1: false, maxPath: false, maxPath + 1: true} {
		path := strings.Repeat("p", n)
		if got := place(path); (got != path) != cut || cut && got != fmt.Sprintf("%q…", path[:maxPath]) {
			t.Errorf("a path of %d bytes: got %s, cut: %v", n, got, cut)
		}
	}
}

// TestStateKeepsNoLock checks that each method of a state leaves it free for the next one, also after an error.
func TestStateKeepsNoLock(t *testing.T) {
	t.Parallel()
	var st, other State
	must.Do(t, other.Set("b", 2))
	var got int
	for _, tt := range []struct {
		name  string
		do    func() error
		fails bool
	}{
		{"Merge", func() error { st.Merge(&other); return nil }, false}, {"Set", func() error { return st.Set("a", 1) }, false}, {"Set fails", func() error { return st.Set("a", make(chan int)) }, true},
		{"Get", func() error { return st.Get("a", &got) }, false}, {"Get fails", func() error { return st.Get("none", &got) }, true},
		{"Names", func() error { st.Names(); return nil }, false}, {"Entries", func() error { st.Entries(); return nil }, false}, {"Delete", func() error { st.Delete("a"); return nil }, false},
	} {
		if err := tt.do(); (err != nil) != tt.fails {
			t.Errorf("%s: got error %v, want one: %v", tt.name, err, tt.fails)
		}
		for _, s := range []*State{&st, &other} {
			if !s.mu.TryLock() {
				t.Fatalf("%s keeps the lock", tt.name)
			}
			s.mu.Unlock()
		}
	}
	if names := st.Names(); len(names) != 1 || names[0] != "b" {
		t.Errorf("got the names %q, want b", names)
	}
}
