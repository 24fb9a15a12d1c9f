package main

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// steps prints each step with its duration.
type steps struct {
	w     io.Writer
	since time.Time // the end of the previous step
}

// done prints a step that has just ended.
func (s *steps) done(format string, arguments ...any) {
	took := time.Since(s.since)
	s.since = s.since.Add(took)
	fmt.Fprintf(s.w, "%9s  %s\n", took.Round(100*time.Microsecond), fmt.Sprintf(format, arguments...))
}

// note prints a text that is not a step.
func (s *steps) note(format string, arguments ...any) {
	fmt.Fprintf(s.w, "%9s  %s\n", "", fmt.Sprintf(format, arguments...))
}

// output returns a writer for the sandbox's output.
func (s *steps) output() io.Writer { return &indented{w: s.w, start: true} }

// indented writes each line of the sandbox's output with a bar before it, below the printed step.
type indented struct {
	w     io.Writer
	start bool // the next byte is at the start of a line
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
