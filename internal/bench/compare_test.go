//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// resultOf returns an outcome of the given milliseconds; each floor is the floor of one part.
func resultOf(name string, value int, floors ...int) outcome {
	m := outcome{row: row{name: name}, got: result{took: []time.Duration{time.Duration(value) * time.Millisecond}}}
	for _, floor := range floors {
		m.row.floor, m.row.floorName = calls(nil), "its floor"
		one := result{took: []time.Duration{time.Duration(floor) * time.Millisecond}}
		m.bare = m.bare.with(one)
		m.parts, m.floors = append(m.parts, m.got.value()), append(m.floors, one.value())
	}
	return m
}

// TestCompare checks that a row is reported if, and only if, it changed by more than the error bars
// of both runs, against its last run on the same kind of machine.
func TestCompare(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "history")
	run := func(hour int, commit, machine string, results ...outcome) {
		e := environment{Time: time.Date(2026, 11, 1, hour, 0, 0, 0, time.UTC), Commit: commit, Machine: machine, Load: 1}
		must.Do(t, e.record(dir, results))
	}
	memory := func(size int64) outcome { return outcome{row: row{name: "memory"}, got: result{size: size}} }
	unsteady := func(value int) outcome { // its floor is steady
		m := resultOf("unsteady", value, 10, 10, 10)
		m.parts = []float64{0.8, 1, 1.2}
		for i := range m.parts {
			m.parts[i] *= m.got.value()
		}
		return m
	}
	run(1, "old", "ours", resultOf("once", 90, 10), resultOf("slower", 20, 10, 10, 10), memory(50e6))
	run(2, "before", "ours", resultOf("slower", 20, 9, 10, 11), resultOf("the same", 20, 9, 10, 11), resultOf("within its bars", 20, 9, 10, 11), resultOf("plain", 100), unsteady(20))
	run(3, "other", "another's", resultOf("slower", 90, 10, 10, 10), resultOf("the same", 90, 10, 10, 10))
	run(4, "now", "ours", // the machine is slower, too: only the ratio counts
		resultOf("slower", 52, 19, 20, 21), resultOf("the same", 40, 19, 20, 21), resultOf("within its bars", 45, 19, 20, 21),
		resultOf("plain", 150), resultOf("once", 50, 10), resultOf("new", 5, 1), memory(20e6), unsteady(27))
	var out strings.Builder
	must.Do(t, compare(&out, dir))
	want := `now of 2026-11-01 04:00:00, load 1.0, on ours

| what | before | of | now | change | error bar |
| --- | --- | --- | --- | --- | --- |
| slower | 2.00 times | before, 2026-11-01 | 2.60 times | +30 % | ±15 % |
| plain | 100 ms | before, 2026-11-01 | 150 ms | +50 % | ±40 % |
| once | 9.00 times | old, 2026-11-01 | 5.00 times | -44 % | ±20 % |
| memory | 50.0 MB | old, 2026-11-01 | 20.0 MB | -60 % | ±20 % |

3 rows did not change by more than their error bar, 1 were not measured before on such a machine.
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	e := environment{Time: time.Date(2026, 11, 1, 4, 0, 0, 0, time.UTC)}
	if err := e.record(dir, []outcome{memory(1)}); err == nil {
		t.Error("results of another run were replaced")
	}
}

// TestCompareNothing checks that a directory without results, and results that are none, are
// errors with the place.
func TestCompareNothing(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"none.txt": "{}\n", "cut.jsonl": `{"row":"a","value":1}` + "\n" + `{"row":`, "name.jsonl": `{"value":1}` + "\n",
		"value.jsonl": `{"row":"a"}` + "\n", "floor.jsonl": `{"row":"a","value":1,"floor":-1}` + "\n",
	} {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		place := dir
		if strings.HasSuffix(name, ".jsonl") {
			place = filepath.Join(dir, name) + ":"
		}
		var out strings.Builder
		if err := compare(&out, dir); err == nil || !strings.Contains(err.Error(), place) || out.Len() > 0 {
			t.Errorf("%s: got %v and printed %q", name, err, out.String())
		}
	}
}

// TestQuickRows checks that each name of the quick rows is that of one row at least.
func TestQuickRows(t *testing.T) {
	t.Parallel()
	b := &bench{sizes: fullSizes(1), egress: "transparent", command: "e2bctl", images: "here"}
	p := plan{quick: true}
	var found []string
	for _, row := range b.rows() {
		if p.has(row) {
			found = append(found, row.name)
		}
	}
	if len(found) != len(quickRows) {
		t.Errorf("%d names choose %d rows: %q", len(quickRows), len(found), found)
	}
}
