package sandbox

import (
	"bytes"
	"io"
	"strings"
)

// maxPipLine limits the bytes of an incomplete line of pip's output that are kept until the line is
// complete.
const maxPipLine = 64 << 10

// pipOutput passes on one stream of pip's output. It passes on whole lines, because it could not
// mask a secret that was split into two parts.
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

// flush passes on the last line even if it does not end with a newline.
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
