package sandbox

import (
	"bytes"
	"io"
	"strings"
)

// maxPipLine bounds how much of a line of pip's output waits for its end.
const maxPipLine = 64 << 10

// pipOutput passes on one stream of pip's output in whole lines, so that no secret
// is in two parts, neither of which would be masked.
type pipOutput struct {
	to    io.Writer
	masks *strings.Replacer
	rest  []byte
}

func (o *pipOutput) Write(p []byte) (int, error) {
	o.rest = append(o.rest, p...)
	end := bytes.LastIndexByte(o.rest, '\n') + 1
	if end == 0 && len(o.rest) > maxPipLine {
		end = len(o.rest)
	}
	return len(p), o.pass(end)
}

// flush passes on the last line if it does not end with a newline.
func (o *pipOutput) flush() error { return o.pass(len(o.rest)) }

func (o *pipOutput) pass(end int) error {
	if end == 0 {
		return nil
	}
	text := o.masks.Replace(string(o.rest[:end]))
	o.rest = append(o.rest[:0], o.rest[end:]...)
	_, err := io.WriteString(o.to, text)
	return err
}
