package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/state"
)

func changedNames(t testing.TB, r *Run) []string {
	t.Helper()
	changes, err := r.Changed(t.Context())
	must.Do(t, err)
	names := []string{}
	for _, c := range changes {
		names = append(names, c.Name)
	}
	return names
}

func TestChangedAndDelete(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		for _, name := range []string{"a", "b", "c"} {
			set(t, st, name, []int{1})
		}
		r := h.begin(t, &rs, Params{State: st})
		if names := changedNames(t, r); len(names) != 0 {
			t.Errorf("before any code: %v, want no names", names)
		}
		mustExec(t, r, "a.append(2)\ndel b\nlarge = b'x' * 100000\nlist = 3")
		before := h.sent
		changes, err := r.Changed(t.Context())
		must.Do(t, err)
		want := []Change{{Name: "a", Kind: state.KindList, Size: 21}, {Name: "b", Deleted: true}, {Name: "large", Kind: state.KindBytes}}
		if len(changes) == 3 && changes[2].Size >= 100000 && changes[2].Size < 101000 {
			changes[2].Size = 0
		}
		if diff := cmp.Diff(want, changes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if h.sent-before > 1024 || h.leftovers(t) != nil {
			t.Errorf("%d bytes sent, files %v, want at most 1024 and none", h.sent-before, h.leftovers(t))
		}
		must.Do(t, r.Delete(t.Context(), "large"))
		if err := r.Delete(t.Context(), "large"); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("the second time: %v, want state.ErrNotFound", err)
		}
		must.Do(t, r.Delete(t.Context(), "c"))
		must.Do(t, r.Pull(t.Context(), st))
		// A removal by Delete is not a change by the code: the state keeps the variable.
		if diff := cmp.Diff([]string{"a", "c"}, st.Names()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		r.Close()
		r = h.begin(t, &rs, Params{State: st})
		mustExec(t, r, "c\ndel a")
		// A variable that code removed is sent again if it is set again, also to the same value.
		var a []int
		must.Do(t, st.Get("a", &a))
		must.Do(t, r.Pull(t.Context(), st))
		if names := st.Names(); slices.Contains(names, "a") {
			t.Errorf("the state has %v after Pull, want no a", names)
		}
		set(t, st, "a", a)
		r.Close()
		r = h.begin(t, &rs, Params{State: st})
		mustExec(t, r, "a")
	})
}

func TestConflicts(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		for name, v := range map[string]int{"same": 1, "edited": 1, "gone": 1, "newer": 1} {
			set(t, st, name, v)
		}
		r := h.begin(t, &rs, Params{State: st})
		mustExec(t, r, "edited = 2\nnewer = 2\ndel gone\nother = 1")
		r.Close()
		set(t, st, "newer", 3)
		_, err := rs.begin(t.Context(), h, "kernel", Params{State: st, OnConflict: FailOnConflict})
		conflict, ok := errors.AsType[*ConflictError](err)
		if !ok || cmp.Diff([]string{"edited", "gone", "newer"}, conflict.Names) != "" || !strings.Contains(err.Error(), "edited, gone, newer") {
			t.Errorf("fail: %v", err)
		}
		r = h.begin(t, &rs, Params{State: st})
		if step := mustExec(t, r, "edited, newer, 'gone' in globals()"); string(step.Value.Bytes()) != `{"v":1,"value":{"$":"tuple","items":[2,3,false]}}` {
			t.Errorf("keep: %s, want %s", step.Value.Bytes(), `{"v":1,"value":{"$":"tuple","items":[2,3,false]}}`)
		}
		r.Close()
		r = h.begin(t, &rs, Params{State: st, OnConflict: Overwrite})
		if step := mustExec(t, r, "edited, newer, gone, other"); string(step.Value.Bytes()) != `{"v":1,"value":{"$":"tuple","items":[1,3,1,1]}}` {
			t.Errorf("overwrite: %s, want %s", step.Value.Bytes(), `{"v":1,"value":{"$":"tuple","items":[1,3,1,1]}}`)
		}
		r.Close()
		// The code made it equal to the state's value: there is no conflict.
		r = h.begin(t, &rs, Params{State: st})
		mustExec(t, r, "edited = 7")
		r.Close()
		set(t, st, "edited", 7)
		h.begin(t, &rs, Params{State: st, OnConflict: FailOnConflict})
	})
}

// TestBlobsTravelOnce checks that content travels once, under however many names.
func TestBlobsTravelOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		set(t, st, "one", content)
		set(t, st, "two", []any{content, content})
		r := h.begin(t, &rs, Params{State: st})
		if h.sent > 1<<20+1<<17 {
			t.Errorf("%d bytes for 1 MiB under three names, want at most %v", h.sent, 1<<20+1<<17)
		}
		if step := mustExec(t, r, "one == two[0] == two[1], len(one)"); string(step.Value.Bytes()) != `{"v":1,"value":{"$":"tuple","items":[true,1048576]}}` {
			t.Errorf("got %s, want %s", step.Value.Bytes(), `{"v":1,"value":{"$":"tuple","items":[true,1048576]}}`)
		}
		r.Close()
		set(t, st, "one", bytes.Clone(content)) // equal content
		set(t, st, "three", map[string]any{"k": content})
		before := h.sent
		r = h.begin(t, &rs, Params{State: st})
		if n := h.sent - before; n > 1024 {
			t.Errorf("%d bytes for what the kernel has under another name, want at most 1024", n)
		}
		mustExec(t, r, "assert three['k'] == one\none = two = three = 0")
		r.Close()
		set(t, st, "four", content)
		r = h.begin(t, &rs, Params{State: st}) // no variable has it any longer
		mustExec(t, r, "assert len(four) == 1048576")
		must.Do(t, r.Pull(t.Context(), st))
		var four []byte
		if err := st.Get("four", &four); err != nil || !bytes.Equal(four, content) {
			t.Errorf("%d bytes, %v", len(four), err)
		}
		mustExec(t, r, "five = [four, four]")
		must.Do(t, r.Pull(t.Context(), st))
		var five [][]byte
		if err := st.Get("five", &five); err != nil || len(five) != 2 {
			t.Fatalf("got %d parts, %v, want 2 and no error", len(five), err)
		}
		if !bytes.Equal(five[1], content) {
			t.Errorf("got %.20q …, want %.20q …", five[1], content)
		}
		five[0][0] = 'X' // this copy is the test's: the state keeps its own
		if err := st.Get("five", &five); err != nil || five[1][0] != '0' || five[0][0] != '0' {
			t.Errorf("got %v, want both as they were and no error", err)
		}
		if files := h.leftovers(t); files != nil {
			t.Errorf("left behind: %v, want none", files)
		}
	})
}

// needLibraries imports numpy and pandas, or skips the test.
func needLibraries(t *testing.T, r *Run) {
	t.Helper()
	step, err := r.Exec(t.Context(), "import numpy, pandas")
	must.Do(t, err)
	if step.Error == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("this python3 has not numpy and pandas, which CI needs: %v", step.Error)
	}
	t.Skipf("this python3 has not numpy and pandas: %v", step.Error)
}

// TestChangesInPlace checks that a change in place is noticed, in arrays and tables and deep inside values.
func TestChangesInPlace(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		st := state.New()
		array, err := state.ArrayOf(make([]float64, 1<<17))
		must.Do(t, err)
		r := h.begin(t, &rs, Params{})
		needLibraries(t, r)
		r.Close()
		column, err := state.ColumnOf("x", []int{1, 2, 3})
		must.Do(t, err)
		set(t, st, "array", array)
		set(t, st, "table", state.Table{Columns: []state.Column{column}})
		set(t, st, "nested", map[string]any{"deep": []any{array}})
		r = h.begin(t, &rs, Params{State: st})
		if names := changedNames(t, r); len(names) != 0 {
			t.Errorf("before any code: %v, want no names", names)
		}
		mustExec(t, r, "array[70001] = 1")
		if diff := cmp.Diff([]string{"array"}, changedNames(t, r)); diff != "" {
			t.Error(diff)
		}
		mustExec(t, r, "table.loc[1, 'x'] = 9\nnested['deep'][0][5] = 2")
		if diff := cmp.Diff([]string{"array", "nested", "table"}, changedNames(t, r)); diff != "" {
			t.Error(diff)
		}
		must.Do(t, r.Pull(t.Context(), st))
		var back state.Table
		must.Do(t, st.Get("table", &back))
		if x, err := state.Values[int](back.Columns[0]); err != nil || cmp.Diff([]int{1, 9, 3}, x) != "" {
			t.Errorf("got %v, %v, want %v and no error", x, err, []int{1, 9, 3})
		}
		if names := changedNames(t, r); len(names) != 0 {
			t.Errorf("after Pull: %v, want no names", names)
		}
	})
}

// TestChangesOfLargeLists checks that a change of a large list is noticed: of its length,
// in place, and by another list.
func TestChangesOfLargeLists(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	for i := range 3 {
		set(t, st, fmt.Sprintf("list%d", i), make([]float64, 1<<14))
	}
	r := h.begin(t, &rs, Params{State: st})
	if names := changedNames(t, r); len(names) != 0 {
		t.Errorf("before any code: %v, want no names", names)
	}
	mustExec(t, r, "list0.append(1.0)\nlist1[0] = 1.0\nlist2 = list(list2)\nlist2[5] = 7.0")
	if diff := cmp.Diff([]string{"list0", "list1", "list2"}, changedNames(t, r)); diff != "" {
		t.Error(diff)
	}
}

// TestChangeOfOneByte checks that a change of one byte in 64 MiB is noticed.
func TestChangeOfOneByte(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	r := h.begin(t, &rs, Params{State: st})
	mustExec(t, r, "x = bytearray(64 << 20)")
	must.Do(t, r.Pull(t.Context(), st))
	if names := changedNames(t, r); len(names) != 0 {
		t.Errorf("before the change: %v, want no names", names)
	}
	mustExec(t, r, "x[3] = 1")
	if diff := cmp.Diff([]string{"x"}, changedNames(t, r)); diff != "" {
		t.Error(diff)
	}
}

// TestRunContinuesElsewhere saves a run, loses its kernel, and continues in another one.
func TestRunContinuesElsewhere(t *testing.T) {
	eachEngine(t, func(t *testing.T, h *pythonHost) {
		var rs runs
		r := h.begin(t, &rs, Params{})
		mustExec(t, r, "import decimal, datetime\ntotal = decimal.Decimal('1.10')\nday = datetime.date(2026, 11, 21)\nlarge = b'x' * 200000\nloop = []\nloop.append(loop)")
		st := state.New()
		must.Do(t, r.Pull(t.Context(), st))
		r.Close()
		st.Delete("loop") // opaque: it exists only there
		file, w := io.Pipe()
		go func() {
			_, err := st.WriteTo(w)
			w.CloseWithError(err)
		}()
		loaded, err := state.Load(file, state.Bounds{})
		must.Do(t, err)
		h.restart(t)
		r = h.begin(t, &rs, Params{State: loaded})
		if step := mustExec(t, r, "str(total + 1), day.isoformat(), len(large)"); string(step.Value.Bytes()) != `{"v":1,"value":{"$":"tuple","items":["2.10","2026-11-21",200000]}}` {
			t.Errorf("got %s, want %s", step.Value.Bytes(), `{"v":1,"value":{"$":"tuple","items":["2.10","2026-11-21",200000]}}`)
		}
	})
}

// TestStateThatTheKernelCannotMake checks that a value that the kernel cannot make is an
// error that names the variable.
func TestStateThatTheKernelCannotMake(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	set(t, st, "point", state.Instance{Kind: state.KindDataclass, Type: "__main__.Point", Value: map[string]int{"x": 1}})
	if _, err := rs.begin(t.Context(), h, "kernel", Params{State: st}); err == nil || !strings.Contains(err.Error(), "the variable point cannot be made here: LookupError: this kernel has no class __main__.Point") {
		t.Errorf("got %v, want an error with %q", err, "the variable point cannot be made here: LookupError: this kernel has no class __main__.Point")
	}
	r := h.begin(t, &rs, Params{})
	mustExec(t, r, "import dataclasses\n@dataclasses.dataclass\nclass Point:\n  x: int")
	r.Close()
	r = h.begin(t, &rs, Params{State: st})
	mustExec(t, r, "assert point == Point(1)")
	r.Close()
	hidden := "import sys\nclass Hide:\n  def find_spec(self, name, *a):\n    if name in ('numpy', 'pandas'): raise ModuleNotFoundError('hidden')\nfor m in list(sys.modules):\n  if m.split('.')[0] in ('numpy', 'pandas'): del sys.modules[m]\nsys.meta_path.insert(0, Hide())"
	r = h.begin(t, &rs, Params{})
	mustExec(t, r, hidden)
	r.Close()
	array, err := state.ArrayOf([]int{1})
	must.Do(t, err)
	set(t, st, "array", array)
	if _, err := rs.begin(t.Context(), h, "kernel", Params{State: st}); err == nil || !strings.Contains(err.Error(), "the variable array cannot be made here: ImportError: an array needs numpy") {
		t.Errorf("got %v, want an error with %q", err, "the variable array cannot be made here: ImportError: an array needs numpy")
	}
}

// TestGigabyte checks that a value that is too large arrives as a handle, and is neither
// copied nor hashed.
func TestGigabyte(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	set(t, st, "x", 1)
	r := h.begin(t, &rs, Params{State: st})
	mustExec(t, r, "x = [bytes(1 << 30)]\nlarge = bytes(1 << 30)")
	must.Do(t, r.Pull(t.Context(), st))
	for _, name := range []string{"x", "large"} {
		var o state.Opaque
		if err := st.Get(name, &o); err != nil || o.Reason != "it has more bytes than may be sent" {
			t.Errorf("%s: got %+v, %v, want the reason %q and no error", name, o, err, "it has more bytes than may be sent")
		}
	}
}

// TestOneOfAThousand has a thousand small variables and changes one of them.
func TestOneOfAThousand(t *testing.T) {
	t.Parallel()
	h := newPythonHost(t, "plain")
	var rs runs
	st := state.New()
	for i := range 1000 {
		set(t, st, fmt.Sprintf("v%d", i), map[string]any{"i": i, "list": []int{i, i}})
	}
	h.begin(t, &rs, Params{State: st}).Close()
	set(t, st, "v7", "changed")
	before, start := h.sent, time.Now()
	r := h.begin(t, &rs, Params{State: st})
	t.Logf("Begin took %v", time.Since(start))
	if n := h.sent - before; n > 1024 {
		t.Errorf("%d bytes for one small change, want at most 1024", n)
	}
	mustExec(t, r, "v8['list'].append(1)")
	if diff := cmp.Diff([]string{"v8"}, changedNames(t, r)); diff != "" {
		t.Error(diff)
	}
}
