package code

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

const (
	completeLimit = time.Minute // the longest wait after the tab key; Ctrl-C ends the wait earlier
	maxShown      = 200         // the maximum number of matches that are shown
	indentation   = "    "
)

// complete handles the tab key. If there is one match, complete inserts it; of several matches it
// inserts their common prefix. If that prefix adds nothing, complete shows the matches. It returns
// the new line and cursor.
func (p *prompt) complete(ctx context.Context, line string, cursor int) (string, int) {
	before, after := unmarked(line[:cursor]), unmarked(line[cursor:])
	if strings.TrimSpace(before[strings.LastIndexByte(before, '\n')+1:]) == "" {
		return line[:cursor] + indentation + line[cursor:], cursor + len(indentation)
	}
	if p.deaf {
		return line, cursor
	}
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	ctx, done := p.patiently(ctx)
	defer done()
	params := p.params()
	code := p.cell + before + after
	found, err := p.sb.Contexts.Complete(ctx, code, len(p.cell)+len(before), &sandbox.CompleteParams{Context: params.Context, Language: params.Language})
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return line, cursor
	}
	if err != nil {
		p.console.show("e2bctl: code repl: " + cmdutil.Message(err))
		return line, cursor
	}
	matches := slices.DeleteFunc(found.Matches, func(match string) bool { return match == "" || match != cmdutil.Printable(match) })
	if len(matches) == 0 || found.Start < len(p.cell) {
		return line, cursor
	}
	insert := commonPrefix(matches)
	if typed := code[found.Start:found.End]; len(matches) > 1 && len(insert) <= len(typed) {
		p.console.show(inColumns(matches, p.console.width()))
		return line, cursor
	}
	head := marked(code[len(p.cell):found.Start] + insert)
	return head + marked(code[found.End:]), len(head)
}

// commonPrefix returns the longest text with which all texts begin.
func commonPrefix(texts []string) string {
	prefix := texts[0]
	for _, text := range texts[1:] {
		for !strings.HasPrefix(text, prefix) {
			_, size := utf8.DecodeLastRuneInString(prefix)
			prefix = prefix[:len(prefix)-size]
		}
	}
	return prefix
}

// inColumns returns matches in as many columns as fit.
func inColumns(matches []string, width int) string {
	more := ""
	if len(matches) > maxShown {
		more = fmt.Sprintf("\n… and %d more", len(matches)-maxShown)
		matches = matches[:maxShown]
	}
	widest := 0
	for _, match := range matches {
		widest = max(widest, utf8.RuneCountInString(match)+2)
	}
	columns := max(1, width/widest)
	var text strings.Builder
	for i, match := range matches {
		switch {
		case i > 0 && i%columns == 0:
			text.WriteByte('\n')
		case i > 0:
			text.WriteString(strings.Repeat(" ", widest-utf8.RuneCountInString(matches[i-1])))
		}
		text.WriteString(match)
	}
	return text.String() + more
}

// width returns the number of columns of the terminal.
func (c *console) width() int {
	if cols, _, err := term.GetSize(int(c.size.Fd())); err == nil && cols > 0 {
		return cols
	}
	return 80
}
