package mcpserver

import (
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// answer collects what a call answers: text from the sandbox, then pictures and links, then the lines of the
// server. Text of the sandbox cannot pass for the server's, which has content of its own.
type answer struct {
	text  []string
	size  int // bytes of text
	media []sdk.Content
	notes []string
}

// print adds text from the sandbox.
func (a *answer) print(text string) {
	if text != "" {
		a.text = append(a.text, strings.TrimSuffix(text, "\n"))
		a.size += len(text)
	}
}

// note adds a line of the server.
func (a *answer) note(format string, values ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, values...))
}

// attach adds a picture or a link.
func (a *answer) attach(content sdk.Content) { a.media = append(a.media, content) }

func (a *answer) result() *sdk.CallToolResult {
	r := &sdk.CallToolResult{Content: []sdk.Content{}}
	if text := shortened(strings.Join(a.text, "\n")); text != "" {
		r.Content = append(r.Content, &sdk.TextContent{Text: text})
	}
	r.Content = append(r.Content, a.media...)
	if len(a.notes) > 0 {
		r.Content = append(r.Content, &sdk.TextContent{Text: "[" + strings.Join(a.notes, "]\n[") + "]"})
	}
	return r
}

// failed returns the answer for a call that failed. The model sees what there was until then.
func (a *answer) failed(err error) *sdk.CallToolResult {
	a.notes = append([]string{"error: " + message(err)}, a.notes...)
	r := a.result()
	r.IsError = true
	return r
}

// escapes are the sequences by which terminals are controlled: those with parameters, those that
// end in BEL or ST, and two characters.
var escapes = lazyregexp.New(`\x1b\[[ -?]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -~]?`)

// plain returns text as a model should see it: without escape sequences, control characters, and
// characters that people do not see. A line that a progress bar wrote several times has its last state.
func plain(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if strings.ContainsRune(text, '\x1b') {
		text = escapes().ReplaceAllString(text, "")
	}
	if strings.ContainsRune(text, '\r') {
		text = overwritten(text)
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !cmdutil.IsActive(r) && !isInvisible(r) {
			return r
		}
		return -1
	}, text)
}

// isInvisible reports whether r is one of the characters that models read and people do not see: tags, variation
// selectors of the second kind, and spaces without a width.
func isInvisible(r rune) bool {
	return 0xE0000 <= r && r <= 0xE0FFF || r == 0x200B || 0x2060 <= r && r <= 0x2064 || r == 0xFEFF
}

// overwritten keeps of each line what stands behind its last carriage return.
func overwritten(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
	}
	return strings.Join(lines, "\n")
}
