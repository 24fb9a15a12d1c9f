package cmdutil

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/ci"
)

// IOStreams are the streams of one run of e2bctl and their properties.
type IOStreams struct {
	In  io.Reader
	Out io.Writer // results only
	Err io.Writer // progress, hints, prompts and errors

	// RawErr writes to the same stream as Err, without changes. It is for the output of programs in
	// sandboxes. In GitHub Actions, Err changes texts that the runner would take for commands, because
	// errors may contain text from sandboxes.
	RawErr io.Writer

	// OfProcess means that the streams are those of this process.
	OfProcess bool

	// ErrIsFile means that standard error is a file.
	ErrIsFile bool

	InIsTerminal  bool
	OutIsTerminal bool
	ErrIsTerminal bool

	// OutWidth and ErrWidth are the widths of the terminals of Out and Err in columns. The width of a
	// stream that is not a terminal is 0.
	OutWidth int
	ErrWidth int

	// InIsData means that In is a pipe or a file, so that a remote command receives it even without a
	// flag. It is false for /dev/null and for terminals.
	InIsData bool

	outClosed atomic.Bool
}

// NewIOStreams returns streams that are not terminals. A nil in means empty
// input.
func NewIOStreams(in io.Reader, out, err io.Writer) *IOStreams {
	ios := &IOStreams{In: in, Out: out, Err: messages(err), RawErr: err, InIsData: in != nil}
	if in == nil {
		ios.In = eof{}
	}
	return ios
}

// SystemStreams returns the streams of this process.
func SystemStreams() *IOStreams {
	ios := &IOStreams{
		OfProcess:     true,
		In:            os.Stdin,
		Err:           messages(os.Stderr),
		RawErr:        os.Stderr,
		InIsTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		OutIsTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		ErrIsTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	ios.OutWidth, ios.ErrWidth = widthOf(os.Stdout), widthOf(os.Stderr)
	ios.Out = &pipeWriter{file: os.Stdout, closed: &ios.outClosed}
	if info, err := os.Stdin.Stat(); err == nil {
		ios.InIsData = info.Mode()&os.ModeCharDevice == 0
	}
	if info, err := os.Stderr.Stat(); err == nil {
		ios.ErrIsFile = info.Mode().IsRegular()
	}
	return ios
}

// messages returns the writer for messages to standard error.
func messages(err io.Writer) io.Writer {
	if ci.InActions(os.Getenv) {
		return ci.Inert(err)
	}
	return err
}

// widthOf returns the number of columns of a terminal, or 0 for a file that is not a terminal.
func widthOf(file *os.File) int {
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Measure updates OutWidth, because the user may have resized the terminal.
func (ios *IOStreams) Measure() {
	out := ios.Out
	if r, ok := out.(*results); ok {
		out = r.Writer
	}
	if pipe, ok := out.(*pipeWriter); ok {
		ios.OutWidth = widthOf(pipe.file)
	}
}

// OutClosed reports whether the reader of standard output has closed its end.
func (ios *IOStreams) OutClosed() bool { return ios.outClosed.Load() }

// pipeWriter writes to standard output, and records that the reader has closed its end. An EPIPE in
// a command's error does not prove that, because writes to sockets also fail with EPIPE.
type pipeWriter struct {
	file   *os.File
	closed *atomic.Bool
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		w.closed.Store(true)
	}
	return n, err
}

// SyscallConn implements [syscall.Conn].
func (w *pipeWriter) SyscallConn() (syscall.RawConn, error) { return w.file.SyscallConn() }

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
