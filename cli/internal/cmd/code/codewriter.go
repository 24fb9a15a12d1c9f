package code

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// codeWriter writes the output of sandboxed code to one of the streams. A file
// or a pipe gets every byte. A terminal only gets text: sequences that would
// set its title, move its cursor, write its clipboard or make it type an answer
// are left out, and so are all other control characters except newlines, tabs
// and carriage returns, which progress bars need.
type codeWriter struct {
	w        io.Writer
	terminal bool

	state escapeState
	part  []byte // the bytes of a character whose rest has not arrived
}

// escapeState is the part of an escape sequence that has arrived.
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

// isShown reports whether the next character is part of the text. Only control
// sequences are left out as a whole, because they end after a few characters.
// The text of other sequences stays, without the characters that make a
// terminal obey it.
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
