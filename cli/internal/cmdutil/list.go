package cmdutil

import (
	"fmt"
	"strings"
)

// List is the result of a command that lists things of one kind.
type List struct {
	// Kind is the plural noun for the listed items, such as "volumes".
	Kind string
	// Views are the things as -o json shows them, a slice that is not nil.
	Views any
	// Names are the lines that -q prints.
	Names []string
	// Header and Rows are the table.
	Header []string
	Rows   [][]string
	// LongNames says that the last column has names without a limit. The middle of those that
	// do not fit a terminal is left out, unless -o wide asks for all.
	LongNames bool
	// Spare are the names of columns that a narrow terminal leaves out to make room for the last
	// column, the first one first, unless -o wide asks for all.
	Spare []string
}

// WriteList writes a list in the form that the flags ask for. On a terminal, an empty list is a
// sentence on stderr instead of a header without rows.
func (f *Factory) WriteList(l List) error {
	switch {
	case f.JSON():
		return WriteJSON(f.IO.Out, l.Views)
	case f.Quiet():
		var lines strings.Builder
		for _, name := range l.Names {
			lines.WriteString(Printable(name) + "\n")
		}
		_, err := fmt.Fprint(f.IO.Out, lines.String())
		return err
	case len(l.Rows) == 0 && f.IO.OutIsTerminal:
		fmt.Fprintf(f.IO.Err, "No %s.\n", l.Kind)
		return nil
	}
	if f.Wide() {
		return WriteTable(f.IO.Out, f.IO.OutWidth, l.Header, l.Rows)
	}
	return writeTable(f.IO.Out, f.IO.OutWidth, l.Header, l.Rows, l.LongNames, l.Spare)
}
