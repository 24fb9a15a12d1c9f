package eino

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/cloudwego/eino/adk/filesystem"
	"github.com/cloudwego/eino/schema"
)

// output is a writer that streams the beginning of its input, and keeps the end.
type output struct {
	to *schema.StreamWriter[*filesystem.ExecuteResponse]
	// left is the number of bytes that it still streams, and tail the number that it keeps.
	left, tail int
	// part is half a character at the end of the streamed input.
	part []byte
	// end is the end of the input that was not streamed. dropped reports that its beginning is
	// missing.
	end     []byte
	dropped bool
}

func (o *output) Write(data []byte) (int, error) {
	n := min(o.left, len(data))
	o.left -= n
	o.part = append(o.part, data[:n]...)
	whole := wholeCharacters(o.part)
	if whole > 0 && o.send(string(o.part[:whole]), false) {
		return 0, errors.New("nobody reads the output")
	}
	o.part = o.part[whole:]
	o.end = append(o.end, data[n:]...)
	if len(o.end) > 2*o.tail {
		o.trim()
	}
	return len(data), nil
}

// trim drops all but the end of the end.
func (o *output) trim() {
	if extra := len(o.end) - o.tail; extra > 0 {
		o.end, o.dropped = append(o.end[:0], o.end[extra:]...), true
	}
}

// finish streams what is left when the input has ended.
func (o *output) finish() {
	o.trim()
	if o.dropped {
		// The cut went through characters, perhaps.
		o.send("", true)
		o.part = []byte("\n")
		o.end = bytes.TrimLeftFunc(o.end, func(r rune) bool { return r == utf8.RuneError })
	}
	if rest := string(o.part) + string(o.end); rest != "" {
		o.send(rest, false)
	}
}

func (o *output) send(text string, truncated bool) (closed bool) {
	return o.to.Send(&filesystem.ExecuteResponse{Output: strings.ToValidUTF8(text, "\uFFFD"), Truncated: truncated}, nil)
}

// wholeCharacters returns the length of data without half a character at its end.
func wholeCharacters(data []byte) int {
	for i := max(0, len(data)-utf8.UTFMax); i < len(data); i++ {
		if utf8.RuneStart(data[i]) && !utf8.FullRune(data[i:]) {
			return i
		}
	}
	return len(data)
}
