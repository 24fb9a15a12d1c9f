package mcpserver

import (
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// answer collects the answer to a call: text from the sandbox, then pictures and links, then notes,
// the lines of the server itself. The notes are a separate content, so that text from the sandbox
// cannot imitate them.
type answer struct {
	text  []string
	size  int // the number of bytes of text
	media []sdk.Content
	// pictures is the number of bytes of the pictures in media.
	pictures int
	notes    []string
}

// print adds text from the sandbox.
func (a *answer) print(text string) {
	if text != "" {
		a.text = append(a.text, strings.TrimSuffix(text, "\n"))
		a.size += len(text)
	}
}

// note adds a line of the server. The line may contain names and errors from the sandbox, so the
// method result removes line breaks from it and limits it to maxNote bytes.
func (a *answer) note(format string, values ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, values...))
}

// attach adds a picture or a link.
func (a *answer) attach(content sdk.Content) {
	a.media = append(a.media, content)
	if picture, ok := content.(*sdk.ImageContent); ok {
		a.pictures += len(picture.Data)
	}
}

// isFull reports whether the answer has as much as clients accept: pictures and links, bytes of
// pictures, or text. A run may have thousands of results.
func (a *answer) isFull() bool {
	return len(a.media) >= maxMedia || a.pictures >= maxPictures || a.size >= maxTexts
}

const (
	maxNote     = 4 << 10 // the largest size of a line of the server, in bytes
	maxMedia    = 40      // the largest number of pictures and links together
	maxPictures = 8 << 20 // the largest size of all pictures together, in bytes
	// the largest size of the collected text, in bytes; the answer shows its beginning and its end
	maxTexts = 8 * maxText
)

func (a *answer) result() *sdk.CallToolResult {
	r := &sdk.CallToolResult{Content: []sdk.Content{}}
	if text := shortened(strings.Join(a.text, "\n")); text != "" {
		r.Content = append(r.Content, &sdk.TextContent{Text: text})
	}
	r.Content = append(r.Content, a.media...)
	if len(a.notes) > 0 {
		lines := make([]string, len(a.notes))
		for i, note := range a.notes {
			lines[i] = "[" + clip.Line(plain(note), maxNote) + "]"
		}
		r.Content = append(r.Content, &sdk.TextContent{Text: strings.Join(lines, "\n")})
	}
	return r
}

// failed returns the answer to a call that failed. It includes the contents that the call had added
// before.
func (a *answer) failed(err error) *sdk.CallToolResult {
	a.notes = append([]string{"error: " + message(err)}, a.notes...)
	r := a.result()
	r.IsError = true
	return r
}

// escapes matches the sequences that control terminals: those with
// parameters, those that end in BEL or ST, and those of two characters.
var escapes = lazyregexp.New(`\x1b\[[ -?]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -~]?`)

// plain returns text in the form for a model. It removes escape sequences, control characters, and
// characters that people do not see. If a progress bar wrote a line several times, it keeps the
// last version.
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

// isInvisible reports whether r is a character that models read but people do not see: a tag, a
// variation selector of the second kind, or a space without width.
func isInvisible(r rune) bool {
	return 0xE0000 <= r && r <= 0xE0FFF || r == 0x200B || 0x2060 <= r && r <= 0x2064 || r == 0xFEFF
}

// overwritten returns text with each line reduced to the part after its last carriage return.
func overwritten(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, "\r")
		lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
	}
	return strings.Join(lines, "\n")
}
