//go:build linux

package local_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// table is the table of engines.md. Its cells are the results of trying the engines. The command
//
//	UPDATE_PROMISES=1 E2BCTL_TEST_ENGINES=1 go test -run TestPromises ./sandbox/local
//
// writes the cells of the columns that this machine can try, and leaves the others. It must be run
// once as root and once as an ordinary user.
type table struct {
	mu               sync.Mutex
	columns, rows    []string
	cells            map[[2]string]string // by row and column
	before, after    string               // the text of the page around it
	update, reported bool
}

// enginesPage documents the features of each engine.
const enginesPage = "engines.md"

// readTable reads the table of engines.md. When t and its subtests have ended it is written,
// if that is asked for.
func readTable(t *testing.T) *table {
	t.Helper()
	text, err := os.ReadFile(enginesPage)
	must.Do(t, err)
	const head = "| what a sandbox has |"
	before, rest, found := strings.Cut(string(text), "\n"+head)
	body, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatalf("%s has no table that begins with %q", enginesPage, head)
	}
	lines := strings.Split(head+body, "\n")
	w := &table{cells: map[[2]string]string{}, before: before, after: after, update: os.Getenv("UPDATE_PROMISES") != ""}
	w.columns = cellsOf(lines[0])[1:]
	for _, line := range lines[2:] {
		cells := cellsOf(line)
		w.rows = append(w.rows, cells[0])
		for i, cell := range cells[1:] {
			w.cells[[2]string{cells[0], w.columns[i]}] = cell
		}
	}
	t.Cleanup(func() {
		if !w.update || t.Failed() {
			return
		}
		if err := os.WriteFile(enginesPage, []byte(w.text()), 0o644); err != nil { //nolint:gosec // all read it
			t.Error(err)
		}
	})
	return w
}

func cellsOf(line string) (all []string) {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		all = append(all, strings.TrimSpace(cell))
	}
	return all
}

// text is the page with the table as it is now.
func (w *table) text() string {
	var b strings.Builder
	line := func(first string, cell func(column string) string) {
		b.WriteString("\n| " + first + " |")
		for _, column := range w.columns {
			b.WriteString(" " + cell(column) + " |")
		}
	}
	line("what a sandbox has", func(column string) string { return column })
	b.WriteString("\n|" + strings.Repeat("---|", len(w.columns)+1))
	for _, row := range w.rows {
		line(row, func(column string) string { return w.cells[[2]string{row, column}] })
	}
	return w.before + b.String() + "\n\n" + w.after
}

const toMend = "; UPDATE_PROMISES=1 go test -run TestPromises ./sandbox/local writes the table anew"

// setRows compares the features, in their order.
func (w *table) setRows(t *testing.T, features []string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.rows, features) {
		return
	}
	if !w.update && !w.reported {
		t.Errorf("the features are %q, and those of the page %q"+toMend, features, w.rows)
	}
	w.reported, w.rows = true, features
}

// set compares the result of trying a feature with its cell.
func (w *table) set(t *testing.T, row, column, cell string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	at := [2]string{row, column}
	if got := w.cells[at]; got != cell && !w.update {
		t.Errorf("the page says %q of it in the column %s, want %q"+toMend, got, column, cell)
	}
	w.cells[at] = cell
}
