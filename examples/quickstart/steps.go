package main

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// steps tells what was done and how long it took.
type steps struct {
	w     io.Writer
	since time.Time // the end of the step before
}

// done reports a step that has ended now.
func (s *steps) done(format string, arguments ...any) {
	took := time.Since(s.since)
	s.since = s.since.Add(took)
	fmt.Fprintf(s.w, "%9s  %s\n", took.Round(100*time.Microsecond), fmt.Sprintf(format, arguments...))
}

// note says something that is not a step.
func (s *steps) note(format string, arguments ...any) {
	fmt.Fprintf(s.w, "%9s  %s\n", "", fmt.Sprintf(format, arguments...))
}

// output is where the sandbox's output goes, as it comes.
func (s *steps) output() io.Writer { return &indented{w: s.w, start: true} }

// indented writes each line behind a bar under the steps.
type indented struct {
	w     io.Writer
	start bool // of a line
}

func (i *indented) Write(data []byte) (int, error) {
	for line := range bytes.Lines(data) {
		if i.start {
			line = append([]byte("           | "), line...)
		}
		if _, err := i.w.Write(line); err != nil {
			return 0, err
		}
		i.start = bytes.HasSuffix(line, []byte("\n"))
	}
	return len(data), nil
}
