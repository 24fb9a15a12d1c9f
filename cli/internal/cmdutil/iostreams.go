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

	// RawErr writes to the same place as Err and changes no byte, for the output of programs in sandboxes. In
	// GitHub Actions, Err changes texts that the runner would take for commands, because errors contain text of
	// sandboxes.
	RawErr io.Writer

	// OfProcess means that the streams are those of this process.
	OfProcess bool

	// ErrIsFile means that standard error is a file.
	ErrIsFile bool

	InIsTerminal  bool
	OutIsTerminal bool
	ErrIsTerminal bool

	// OutWidth and ErrWidth are how many columns the terminals of Out and Err have,
	// or 0 for a stream that is no terminal.
	OutWidth int
	ErrWidth int

	// InIsData means that In is a pipe or a file, so that a remote command reads
	// it without being asked to. /dev/null and terminals do not count.
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

// widthOf returns how many columns a terminal has, or 0 for a file that is none.
func widthOf(file *os.File) int {
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Measure reads again how many columns the terminal of Out has: people resize it.
func (ios *IOStreams) Measure() {
	out := ios.Out
	if r, ok := out.(*results); ok {
		out = r.Writer
	}
	if pipe, ok := out.(*pipeWriter); ok {
		ios.OutWidth = widthOf(pipe.file)
	}
}

// OutClosed reports whether the reader of standard output has gone.
func (ios *IOStreams) OutClosed() bool { return ios.outClosed.Load() }

// pipeWriter records that the reader of standard output has gone. EPIPE alone
// does not prove that, because sockets also fail with it.
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
