package sandbox

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// CompleteParams selects the kernel that completes code.
type CompleteParams struct {
	// Context and Language have the meaning of the fields of [RunCodeParams].
	Context  ContextID
	Language string
}

// Completion contains a kernel's proposals for completing code.
type Completion struct {
	// Matches are the possible replacements. They come from the sandbox and may contain
	// anything.
	Matches []string
	// Start and End are byte offsets in the code. A match replaces the code between them.
	Start, End int
}

// Complete asks a kernel for completions of code at cursor, a byte index. It waits until the kernel
// has no code to run, and runs no code itself. Without the websocket the error is
// [ErrNeedsWebsocket]. If the kernel cannot complete code, Complete returns no matches or an error.
// When ctx ends, Complete returns and interrupts nothing.
func (c *Contexts) Complete(ctx context.Context, code string, cursor int, p *CompleteParams) (*Completion, error) {
	if p == nil {
		p = &CompleteParams{}
	}
	var reply struct {
		Matches []string
		Start   int `json:"cursor_start"`
		End     int `json:"cursor_end"`
	}
	q := kernelconn.Question{Context: string(p.Context), Language: p.Language, Kind: "complete"}
	if err := c.askAt(ctx, q, code, cursor, nil, &reply); err != nil {
		return nil, err
	}
	start, end := byteIndex(code, reply.Start), byteIndex(code, reply.End)
	return &Completion{Matches: reply.Matches, Start: min(start, end), End: end}, nil
}

// InspectParams selects the kernel and the amount of information about a name.
type InspectParams struct {
	// Context and Language have the meaning of the fields of [RunCodeParams].
	Context  ContextID
	Language string
	// Source also requests the source code.
	Source bool
}

// Inspect returns a kernel's information about the name at cursor, a byte index of code. For Python
// it is the name's signature, type and documentation. The information is "" if the kernel does not
// know the name. Terminal escape sequences are removed from it. It comes from the sandbox and may
// contain any other text. For the wait for the kernel, the end of ctx and the errors, see
// [Contexts.Complete].
func (c *Contexts) Inspect(ctx context.Context, code string, cursor int, p *InspectParams) (string, error) {
	if p == nil {
		p = &InspectParams{}
	}
	level := 0
	if p.Source {
		level = 1
	}
	var reply struct {
		Found bool
		Data  map[string]any // only text is used, no other MIME types
	}
	q := kernelconn.Question{Context: string(p.Context), Language: p.Language, Kind: "inspect"}
	if err := c.askAt(ctx, q, code, cursor, map[string]any{"detail_level": level}, &reply); err != nil {
		return "", err
	}
	text, _ := reply.Data["text/plain"].(string)
	if !reply.Found {
		text = ""
	}
	return ansi().ReplaceAllString(text, ""), nil
}

// CheckParams selects the kernel that checks code.
type CheckParams struct {
	// Context and Language have the meaning of the fields of [RunCodeParams].
	Context  ContextID
	Language string
}

// CodeVerdict is a kernel's answer to the question whether code can run as it is.
type CodeVerdict string

// These are the verdicts.
const (
	VerdictComplete   CodeVerdict = "complete"
	VerdictIncomplete CodeVerdict = "incomplete" // more lines are expected
	VerdictInvalid    CodeVerdict = "invalid"    // the code is invalid, and more lines cannot make it valid
	VerdictUnknown    CodeVerdict = "unknown"    // the kernel cannot decide
)

// CodeCheck is the result of [Contexts.Check].
type CodeCheck struct {
	Verdict CodeVerdict
	// Indent is the indentation of the next line; only for incomplete code.
	Indent string
}

// Check asks a kernel whether code can run as it is, or whether more lines are expected. For the
// wait for the kernel, the end of ctx and the errors, see [Contexts.Complete].
func (c *Contexts) Check(ctx context.Context, code string, p *CheckParams) (*CodeCheck, error) {
	if p == nil {
		p = &CheckParams{}
	}
	var reply struct {
		Status CodeVerdict
		Indent string
	}
	q := kernelconn.Question{Context: string(p.Context), Language: p.Language, Kind: "is_complete", Content: map[string]any{"code": code}}
	if err := c.ask(ctx, q, &reply); err != nil {
		return nil, err
	}
	return &CodeCheck{Verdict: reply.Status, Indent: reply.Indent}, nil
}

// askAt sends a kernel a question about a position in code.
func (c *Contexts) askAt(ctx context.Context, q kernelconn.Question, code string, cursor int, more map[string]any, reply any) error {
	if cursor < 0 || cursor > len(code) || cursor < len(code) && !utf8.RuneStart(code[cursor]) {
		return fmt.Errorf("sandbox: %s: the cursor %d is not at a character of the code: %w", q.Kind, cursor, api.ErrInvalidArgument)
	}
	content := map[string]any{"code": code, "cursor_pos": utf8.RuneCountInString(code[:cursor])}
	for name, value := range more {
		content[name] = value
	}
	q.Content = content
	return c.ask(ctx, q, reply)
}

// ask sends a question to a kernel over its websocket.
func (c *Contexts) ask(ctx context.Context, q kernelconn.Question, reply any) error {
	if q.Context != "" && q.Language != "" {
		return fmt.Errorf("sandbox: %s: both Context and Language are set, and a context has its language: %w", q.Kind, api.ErrInvalidArgument)
	}
	ctx, end, err := c.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	q.Language = normalLanguage(q.Language)
	if c.sb.code.way() == CodeTransportHTTP {
		err = ErrNeedsWebsocket
	} else if err = c.sb.code.kernels.Ask(ctx, q, reply); err != nil && closed(err) {
		err = fmt.Errorf("%w: %w", ErrNeedsWebsocket, err)
	}
	if err != nil {
		return c.sb.failed(ctx, "ask the kernel", err)
	}
	return nil
}

// byteIndex converts the index of a character of text to a byte index. For an index beyond the end,
// it returns the length of text.
func byteIndex(text string, character int) int {
	for i := range text {
		if character <= 0 {
			return i
		}
		character--
	}
	return len(text)
}
