package code

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// errInterrupted is the error of reading a line if Ctrl-C ended the line.
var errInterrupted = errors.New("interrupted")

// newlineMark and tabMark replace newlines and tabs in a line of the editor, because those would
// move the cursor.
const (
	newlineMark = "⏎"
	tabMark     = "⇥"
)

// marked returns text as one line for the editor, with marks in place of newlines and tabs.
// unmarked reverses that.
func marked(text string) string {
	return strings.NewReplacer("\n", newlineMark, "\t", tabMark).Replace(text)
}

func unmarked(line string) string {
	return strings.NewReplacer(newlineMark, "\n", tabMark, "\t").Replace(line)
}

// console is a terminal with a line editor.
type console struct {
	keys    *keyboard
	screen  *screen
	size    *os.File
	editor  *term.Terminal
	history term.History
	search  search
	// complete returns the line and the cursor after the tab key was pressed. If complete is nil, the
	// key does nothing.
	complete func(line string, cursor int) (string, int)
	reading  context.Context //nolint:containedctx // it belongs to the line that is being read: an io.Reader cannot take one
}

// openConsole puts the terminal into raw mode, and reads its keys until the process ends. restore
// ends raw mode, and may be called more than once.
func openConsole(ios *cmdutil.IOStreams, history term.History) (c *console, restore func() error, err error) {
	file, ok := ios.In.(*os.File)
	if !ok {
		return nil, nil, errors.New("standard input is not a terminal")
	}
	cooked, err := cmdutil.MakeRaw(file)
	if err != nil {
		return nil, nil, err
	}
	c = &console{keys: &keyboard{news: make(chan struct{}, 1)}, screen: &screen{w: ios.Out}, size: cmdutil.ScreenOf(file), history: history}
	pasted := sync.OnceFunc(func() { _, _ = io.WriteString(ios.Out, "\x1b[?2004l") })
	restore = func() error {
		pasted()
		return cooked()
	}
	_, _ = io.WriteString(ios.Out, "\x1b[?2004h") // pasted text comes between marks
	go func() {                                   // until the process ends: this read cannot be cancelled
		defer cmdutil.RestoreInPanic(restore)
		c.keys.follow(file)
	}()
	return c, restore, nil
}

// Read and Write give the editor access to the terminal.
func (c *console) Read(p []byte) (int, error) {
	key, err := c.keys.read(c.reading)
	return copy(p, key), err
}

func (c *console) Write(p []byte) (int, error) { return c.screen.raw(p) }

// line shows a prompt and reads a line. The error is errInterrupted at Ctrl-C, and io.EOF at
// Ctrl-D.
func (c *console) line(ctx context.Context, prompt string) (string, error) {
	return c.edit(ctx, prompt, func() (string, error) { return c.editor.ReadLine() })
}

// password reads a line and does not show its characters.
func (c *console) password(ctx context.Context, prompt string) (string, error) {
	return c.edit(ctx, prompt, func() (string, error) { return c.editor.ReadPassword(prompt) })
}

func (c *console) edit(ctx context.Context, prompt string, read func() (string, error)) (string, error) {
	if c.editor == nil {
		c.editor = term.NewTerminal(c, "")
		c.editor.AutoCompleteCallback = c.key
		c.editor.History = c.history
	}
	if cols, rows, err := term.GetSize(int(c.size.Fd())); err == nil && cols > 0 {
		_ = c.editor.SetSize(cols, rows) // no line is on the screen, so it cannot fail
	}
	c.editor.SetPrompt(prompt)
	c.reading, c.keys.aborted = ctx, false
	line, err := read()
	switch {
	case errors.Is(err, term.ErrPasteIndicator):
	case err != nil:
		c.editor = nil // it may have a part of a line
		c.screen.finish()
		return "", err
	}
	if c.keys.aborted {
		return "", errInterrupted
	}
	return line, nil
}

// ask reads a line for the code that is running, such as for Python's input(). It offers no history
// and no completion.
func (c *console) ask(ctx context.Context, prompt string, password bool) (string, error) {
	history, complete := c.history, c.complete
	defer func() { c.history, c.complete, c.editor = history, complete, nil }()
	c.history, c.complete, c.editor = noHistory{}, nil, nil
	prompt = cmdutil.Printable(prompt)
	if at := strings.LastIndexByte(prompt, '\n'); at >= 0 {
		_, _ = io.WriteString(c.screen, prompt[:at+1])
		prompt = prompt[at+1:]
	}
	if password {
		return c.password(ctx, prompt)
	}
	line, err := c.line(ctx, prompt)
	return unmarked(line), err
}

// key handles the keys that the editor itself does not handle: Ctrl-C, tab and Ctrl-R. The editor
// calls it.
func (c *console) key(line string, cursor int, key rune) (string, int, bool) {
	switch {
	case key == abortKey && c.keys.aborted:
		return line + "^C", len(line) + 2, true
	case key == '\t' && c.complete != nil:
		line, cursor = c.complete(line, cursor)
		return line, cursor, true
	case key == searchKey:
		line = c.search.next(c.history, line)
		return line, utf8.RuneCountInString(line), true
	}
	return "", 0, false
}

// show writes a text above the line that is being edited.
func (c *console) show(text string) { fmt.Fprintln(c.editor, text) }

// screen writes to a terminal in raw mode. Such a terminal needs a carriage return before each
// newline, and screen adds these carriage returns.
type screen struct {
	mu  sync.Mutex
	w   io.Writer
	mid bool // the cursor is not at the beginning of a line
}

func (s *screen) Write(p []byte) (int, error) {
	if _, err := s.raw(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *screen) raw(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p) > 0 {
		s.mid = p[len(p)-1] != '\n'
	}
	return s.w.Write(p)
}

// finish makes sure that the cursor is at the beginning of a line. If it is not, finish begins a
// new line.
func (s *screen) finish() {
	s.mu.Lock()
	mid := s.mid
	s.mu.Unlock()
	if mid {
		_, _ = s.raw([]byte("\r\n"))
	}
}
