package archive

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
)

// gathered is the size of the buffers that join the small reads and writes of archive/tar: a pipe
// passes each of them from one goroutine to another, and that takes longer than the work for a
// small file.
const gathered = 1 << 16

// Writer is a [tar.Writer] that gathers small writes. The stream is complete only after Close.
type Writer struct {
	*tar.Writer

	buffer *bufio.Writer
}

// NewWriter returns a writer of a tar stream to w.
func NewWriter(w io.Writer) *Writer {
	buffer := bufio.NewWriterSize(w, gathered)
	return &Writer{tar.NewWriter(buffer), buffer}
}

// Close writes the end of the stream. It does not close the underlying writer.
func (w *Writer) Close() error { return errors.Join(w.Writer.Close(), w.buffer.Flush()) }
