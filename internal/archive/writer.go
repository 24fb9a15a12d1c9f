package archive

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
)

// gathered is the size of the buffers that join the small reads and writes of archive/tar: a
// pipe hands each over from one goroutine to another, which takes longer than a small file.
const gathered = 1 << 16

// Writer is a [tar.Writer] that gathers small writes. Without Close the end of the stream is
// missing.
type Writer struct {
	*tar.Writer

	buffer *bufio.Writer
}

// NewWriter returns a writer of a tar stream to w.
func NewWriter(w io.Writer) *Writer {
	buffer := bufio.NewWriterSize(w, gathered)
	return &Writer{tar.NewWriter(buffer), buffer}
}

// Close writes the end of the stream. It does not close the writer below.
func (w *Writer) Close() error { return errors.Join(w.Writer.Close(), w.buffer.Flush()) }
