package code

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// codeWriter writes the output of sandboxed code to stdout or stderr. A file or a pipe receives
// every byte. A terminal receives only text. codeWriter leaves out sequences that would set the
// terminal's title, move its cursor, write the clipboard or make the terminal type an answer. It
// also leaves out all other control characters except newlines, tabs, and the carriage returns that
// progress bars need.
type codeWriter struct {
	w        io.Writer
	terminal bool

	state escapeState
	part  []byte // the first bytes of a character whose remaining bytes have not arrived
}

// escapeState is the state of reading an escape sequence.
type escapeState int

const (
	noEscape   escapeState = iota
	inEscape               // the escape character has arrived
	inSequence             // the introducer of a control sequence, ESC [, has arrived, and maybe parameters
)

func (c *codeWriter) Write(p []byte) (int, error) {
	if !c.terminal {
		return c.w.Write(p)
	}
	text := append(c.part, p...)
	out := make([]byte, 0, len(text))
	for len(text) > 0 && utf8.FullRune(text) {
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		if c.isShown(r) {
			out = utf8.AppendRune(out, r)
		}
	}
	c.part = append(c.part[:0], text...)
	if _, err := c.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// println writes a text and a newline. The text is separate from earlier
// output, even if that ended within a character or a sequence.
func (c *codeWriter) println(text string) error {
	if len(c.part) > 0 {
		if _, err := io.WriteString(c.w, string(utf8.RuneError)); err != nil {
			return err
		}
	}
	c.part, c.state = nil, noEscape
	_, err := fmt.Fprintln(c, text)
	return err
}

// isShown reports whether the next character is part of the text. It leaves out control sequences
// as a whole, because they end after a few characters. Of other escape sequences it leaves out only
// the control characters, without which a terminal shows the sequence as text.
func (c *codeWriter) isShown(r rune) bool {
	state := c.state
	c.state = noEscape
	switch {
	case state == inEscape && r == '[', r == '\u009b':
		c.state = inSequence
		return false
	case state == inSequence && ' ' <= r && r <= '?':
		c.state = inSequence
		return false
	case state == inSequence && '@' <= r && r <= '~':
		return false
	case r == '\x1b':
		c.state = inEscape
		return false
	}
	return r == '\n' || r == '\t' || r == '\r' || !cmdutil.IsActive(r)
}
