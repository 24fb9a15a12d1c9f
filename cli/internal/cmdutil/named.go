package cmdutil

import (
	"fmt"
	"slices"
)

// EachNamed does the same to all that a command line names, one after another and
// each once, and prints the names of those that it worked for. Where there are
// several, why one failed goes to stderr.
func EachNamed(ios *IOStreams, names []string, do func(name string) error) error {
	var distinct []string
	for _, name := range names {
		if !slices.Contains(distinct, name) {
			distinct = append(distinct, name)
		}
	}
	failed := 0
	for _, name := range distinct {
		switch err := do(name); {
		case err == nil:
			if _, err := fmt.Fprintln(ios.Out, Printable(name)); err != nil {
				return err
			}
		case len(distinct) == 1:
			return err
		default:
			failed++
			fmt.Fprintf(ios.Err, "%s: %s\n", Printable(name), Message(err))
		}
	}
	if failed > 0 {
		return &PartialError{Failed: failed, Total: len(distinct)}
	}
	return nil
}
