//go:build linux

package treecopy

import (
	"bytes"
	"io"
	"os"
)

// sparse writes a file, of which what are zeros becomes a hole: archives have zeros for the
// holes of a file.
type sparse struct {
	to  *os.File
	at  int64
	err error // that of writing, as opposed to reading
}

var zeros [64 << 10]byte

// fill writes all of the file.
func (s *sparse) fill(content io.Reader) error {
	buffer := make([]byte, len(zeros)) // so no Write is of more
	if _, err := io.CopyBuffer(s, content, buffer); err != nil {
		return err
	}
	s.err = s.to.Truncate(s.at) // a hole at the end
	return s.err
}

func (s *sparse) Write(p []byte) (n int, err error) {
	n = len(p)
	if !bytes.Equal(p, zeros[:n]) {
		n, err = s.to.WriteAt(p, s.at)
	}
	s.at += int64(n)
	s.err = err
	return n, err
}
