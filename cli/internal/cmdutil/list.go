package cmdutil

import (
	"fmt"
	"strings"
)

// List is the result of a command that lists things of one kind.
type List struct {
	// Kind is the plural noun for the listed items, such as "volumes".
	Kind string
	// Views is a slice of the listed items as -o json shows them. It must not be nil.
	Views any
	// Names are the lines that -q prints.
	Names []string
	// Header and Rows are the table.
	Header []string
	Rows   [][]string
	// LongNames means that the last column contains names of any length. If a name does not fit the
	// terminal, its middle is left out, except with -o wide.
	LongNames bool
	// Spare contains the names of columns that may be left out on a narrow terminal to make room for
	// the last column. They are left out in this order, and never with -o wide.
	Spare []string
}

// WriteList writes a list in the format that the flags select. If the list is empty and Out is a
// terminal, it writes a sentence to stderr instead of a header without rows.
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
