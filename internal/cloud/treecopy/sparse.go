//go:build linux

package treecopy

import (
	"bytes"
	"io"
	"os"
)

// sparse writes a file, and leaves holes in place of blocks of zeros. It exists because archives
// store the holes of a sparse file as zeros.
type sparse struct {
	to  *os.File
	at  int64
	err error // error of writing the file; errors of reading are not stored
}

var zeros [64 << 10]byte

// fill writes the whole content of the file.
func (s *sparse) fill(content io.Reader) error {
	buffer := make([]byte, len(zeros)) // no Write is longer
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
