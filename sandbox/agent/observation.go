package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Observation returns the step as text for a model: the output, the value of the last
// expression, displayed results, the final answer as Python writes it, a notice if the code
// took too long, and the exception that ended the code. If the step began in a new kernel, a notice
// at the beginning of the text reports this. Each part has at most Limits.MaxOutputBytes. If a part
// is longer, only its beginning and its end are kept, with the number of omitted bytes.
func (s *Step) Observation() string {
	var b strings.Builder
	part := func(title, text string) {
		if text = strings.TrimRight(text, "\n"); text != "" {
			fmt.Fprintf(&b, "%s:\n%s\n", title, text)
		}
	}
	if s.Restarted {
		part("Restarted", "The Python process was replaced before this code ran: variables that earlier code made are lost.")
	}
	part("Printed", s.Stdout)
	part("Printed to stderr", s.Stderr)
	for _, r := range s.Results {
		title := "Displayed"
		if r.Main {
			title = "Value of the last expression"
		}
		text := plainText(r)
		switch {
		case text != "":
		case len(r.Formats()) == 0:
			text = "(left out)" // stderr contains the reason
		default:
			text = "(" + strings.Join(r.Formats(), ", ") + ")"
		}
		part(title, s.bounded(text))
	}
	if s.Final {
		part("Final answer", s.bounded(s.redact.text(s.Value.String())))
	}
	if s.overran > 0 {
		part("Interrupted", fmt.Sprintf("The code took longer than %v, which is the limit.", s.overran))
	}
	switch e := s.Error; {
	case e == nil:
	case s.Refused != nil: // the traceback contains frames of the guard, and the text already has the line
		part("Error", e.Name+": "+s.Refused.String())
	default:
		part("Error", e.Error()+"\n"+s.bounded(strings.TrimLeft(e.Traceback, "\n")))
	}
	if b.Len() == 0 {
		return "(no output)\n"
	}
	return b.String()
}

// plainText returns the plain text of a result unchanged. It does not use Result.Text, which would
// remove the quotes of a string.
func plainText(r sandbox.Result) string {
	var text string
	if json.Unmarshal(r.Data["text/plain"], &text) != nil {
		return ""
	}
	return text
}

// bounded returns text, shortened to its beginning and its end if it is too long.
func (s *Step) bounded(text string) string {
	c := clip.NewOutput(s.outputLimit())
	_, _ = c.Write([]byte(text)) // never fails
	return c.Text()
}

func (s *Step) outputLimit() int {
	if s.maxOutput == 0 {
		return sandbox.DefaultMaxOutputBytes
	}
	return int(min(max(s.maxOutput, 0), math.MaxInt))
}

// printed returns the number of bytes that the code wrote to a stream. It counts dropped bytes, but
// not the notice that replaces them in text.
func (s *Step) printed(text string, dropped int64) int64 {
	if dropped == 0 {
		return int64(len(text))
	}
	return dropped + int64(s.outputLimit()/2*2) // the beginning and the end have the same length
}
