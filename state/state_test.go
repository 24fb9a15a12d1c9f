package state_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

func TestState(t *testing.T) {
	t.Parallel()
	var st state.State // the zero value works
	list := []int{1}
	for name, v := range map[string]any{"b": list, "a": "x", "größe": nil} {
		must.Do(t, st.Set(name, v))
	}
	list[0] = 2 // too late
	var got []int
	if err := st.Get("b", &got); err != nil || got[0] != 1 {
		t.Errorf("got %v, %v, want [1] and no error", got, err)
	}
	before := st.Entries()
	if err := st.Set("b", make(chan int)); err == nil || !strings.Contains(err.Error(), "state: b: chan int") {
		t.Errorf("got %v, want an error with %q", err, "state: b: chan int")
	}
	must.Do(t, st.Set("b", []int{1}))
	if after := st.Entries(); before[1].Hash != after[1].Hash || before[0].Hash == before[1].Hash {
		t.Errorf("got the hashes %v, then %v, want those of the values: b is as before, a is another", before, after)
	}
	var wrong string
	if err := st.Get("b", &wrong); err == nil || !strings.Contains(err.Error(), "decode b (") {
		t.Errorf("got %v, want an error with %q", err, "decode b (")
	}
	st.Delete("b")
	if err := st.Get("b", &got); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("got %v, want state.ErrNotFound", err)
	}
	if diff := cmp.Diff([]string{"a", "größe"}, st.Names()); diff != "" {
		t.Error(diff)
	}
	other := state.New()
	must.Do(t, other.Set("a", 1))
	st.Merge(other)
	if v, ok := st.Value("a"); !ok || v.Kind() != state.KindInt {
		t.Errorf("merged: %v, want state.KindInt", v.Kind())
	}
}

func TestStateConcurrently(t *testing.T) {
	t.Parallel()
	st := state.New()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 100 {
				var n int
				if err := errors.Join(st.Set("x", i), st.Get("x", &n)); err != nil {
					t.Error(err)
				}
				st.Merge(st)
				st.Names()
			}
		})
	}
	group.Wait()
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, reason := range map[string]string{
		"x": "", "_x": "", "x1": "", "größe": "", "数": "", "match": "", "__x": "", "self": "",
		"": "identifier", "1x": "identifier", "a b": "identifier", "a-b": "identifier", "a.b": "identifier", "x;y": "identifier", "x\n": "identifier", "\xff": "identifier",
		"class": "keyword", "None": "keyword", "await": "keyword", "__name__": "reserved", "____": "reserved",
		"list": "builtin", "print": "builtin", "ValueError": "builtin", "ﬁ": "rewrite",
	} {
		err := state.CheckName(name)
		switch {
		case reason == "" && err != nil:
			t.Errorf("%q: got %v, want no error", name, err)
		case reason != "" && (err == nil || !strings.Contains(err.Error(), reason)):
			t.Errorf("%q: got %v, want an error with %q", name, err, reason)
		}
	}
	if e, ok := errors.AsType[*state.NameError](state.New().Set("a b", 1)); !ok || e.Name != "a b" {
		t.Errorf("got %v, want a *state.NameError for %q", e, "a b")
	}
}

// Python agrees with this package on names, and on its own builtin names.
func TestNamesInPython(t *testing.T) {
	t.Parallel()
	python := startPython(t)
	for _, name := range []string{"x", "größe", "数", "a·b", "℘", "x²", "٣", "a٣", "ª", "1", "a b"} {
		doc, err := state.Marshal(name)
		must.Do(t, err)
		truth, err := python.eval(t, doc, "x.isidentifier() and __import__('unicodedata').normalize('NFKC', x) == x")
		must.Do(t, err)
		if got := state.CheckName(name) == nil; got && !strings.Contains(string(truth), "true") {
			t.Errorf("%q: Go takes it, Python does not", name)
		}
	}
	names, err := python.ask(t, question{Expression: "__import__('keyword').kwlist + [n for n in dir(__import__('builtins')) if n[0] != '_']"})
	must.Do(t, err)
	var all []string
	must.Do(t, state.Unmarshal(names, &all))
	for _, name := range all {
		if state.CheckName(name) == nil {
			t.Errorf("%s is Python's own, want an error", name)
		}
	}
}
