package cmdutil

import (
	"fmt"
	"slices"
)

// Outcome is the result of a command for one of the names on its command line.
type Outcome struct {
	Name string
	Err  error // the error of the command for that name; nil means success
}

// outcomeView is an outcome as -o json shows it.
type outcomeView struct {
	Name  string     `json:"name"`
	Error *ErrorView `json:"error,omitempty"`
}

// EachNamed calls do for each name on a command line, one after another, and reports the outcomes.
// It calls do once for a repeated name.
func (f *Factory) EachNamed(names []string, do func(name string) error) error {
	var outcomes []Outcome
	for i, name := range names {
		if !slices.Contains(names[:i], name) {
			outcomes = append(outcomes, Outcome{name, do(name)})
		}
	}
	return f.Report(outcomes)
}

// Report prints the names for which a command succeeded. With -o json it prints all names instead,
// with the error of each name that failed. It returns the error of the command.
func (f *Factory) Report(outcomes []Outcome) error {
	if f.JSON() {
		views := make([]outcomeView, len(outcomes))
		for i, o := range outcomes {
			views[i] = outcomeView{o.Name, f.ErrorView(o.Err)}
		}
		if err := WriteJSON(f.IO.Out, views); err != nil {
			return err
		}
		return f.Failures(outcomes)
	}
	for _, o := range outcomes {
		if o.Err == nil {
			if _, err := fmt.Fprintln(f.IO.Out, Printable(o.Name)); err != nil {
				return err
			}
		}
	}
	return f.Failures(outcomes)
}

// Failures returns the error of a command. It is nil if no outcome failed, the outcome's error if
// there is only one outcome, and a [*PartialError] otherwise. In the last case Failures also writes
// the errors to stderr, except with -o json.
func (f *Factory) Failures(outcomes []Outcome) error {
	if len(outcomes) == 1 {
		return outcomes[0].Err
	}
	failed := 0
	for _, o := range outcomes {
		if o.Err == nil {
			continue
		}
		if failed++; !f.JSONErrors() {
			fmt.Fprintf(f.IO.Err, "%s: %s\n", Printable(o.Name), Message(o.Err))
		}
	}
	if failed > 0 {
		return &PartialError{Failed: failed, Total: len(outcomes)}
	}
	return nil
}
