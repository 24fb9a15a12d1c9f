package code

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// user is somebody at a terminal with e2bctl code repl.
type user struct {
	t        *testing.T
	keyboard *os.File
	dir      string
	ended    chan error

	mu     sync.Mutex
	screen strings.Builder
	seen   int // the part of the screen that was looked at
}

// atRepl starts e2bctl code repl in a terminal.
func atRepl(t *testing.T, s *kernels, args ...string) *user {
	t.Helper()
	s.t, s.interrupted = t, make(chan struct{}, 10)
	server := httptest.NewServer(s)
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o700))
	for name, value := range map[string]string{"E2B_API_KEY": "e2b_00", "E2B_SANDBOX_URL": server.URL, "HOME": dir, "XDG_STATE_HOME": dir, "XDG_RUNTIME_DIR": dir} {
		t.Setenv(name, value)
	}
	t.Chdir(dir)
	keyboard, tty, err := pty.Open()
	must.Do(t, err)
	must.Do(t, pty.Setsize(tty, &pty.Winsize{Cols: 90, Rows: 30}))
	u := &user{t: t, keyboard: keyboard, dir: dir, ended: make(chan error, 1)}
	var watching sync.WaitGroup
	watching.Go(func() {
		part := make([]byte, 4096)
		for {
			n, err := keyboard.Read(part)
			u.mu.Lock()
			u.screen.Write(part[:n])
			u.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(patience.Context(t))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen: %q", u.shown())
		}
		cancel()
		tty.Close()
		_, _ = io.WriteString(keyboard, "\n") // ends the read that the command leaves behind
		keyboard.Close()
		watching.Wait()
		server.Close()
	})
	ios := cmdutil.NewIOStreams(tty, tty, tty)
	ios.InIsData, ios.InIsTerminal, ios.OutIsTerminal, ios.ErrIsTerminal = false, true, true, true
	words := append([]string{"--api-url", server.URL, "--no-env-file", "code", "repl"}, args...)
	go func() {
		u.ended <- cmdtest.ExecuteContext(ctx, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdCode(f)} }, words...)
	}()
	return u
}

// types types keys.
func (u *user) types(keys string) {
	u.t.Helper()
	_, err := io.WriteString(u.keyboard, keys)
	must.Do(u.t, err)
}

// sees waits until a text appears on the screen, after what was looked at before.
func (u *user) sees(text string) {
	u.t.Helper()
	patience.Until(u.t, fmt.Sprintf("%q is on the screen", text), func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		all := u.screen.String()
		at := strings.Index(all[u.seen:], text)
		if at < 0 {
			return false
		}
		u.seen += at + len(text)
		return true
	})
}

// shown returns all of the screen.
func (u *user) shown() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.screen.String()
}

// runs types a cell and waits for text, and for the next prompt.
func (u *user) runs(cell, text string) {
	u.t.Helper()
	u.types(cell + "\r")
	u.sees(text)
	u.sees(">>> ")
}

// leaves waits for the end of the command.
func (u *user) leaves(keys string) error {
	u.t.Helper()
	u.types(keys)
	return patience.Receive(u.t, "the end of the command", u.ended)
}

// TestRepl checks a session at a terminal: results, output, exceptions, cells of several lines, completion, help, questions of
// the code, earlier cells and pictures.
func TestRepl(t *testing.T) {
	s := &kernels{}
	u := atRepl(t, s, "i1", "--save-images", "plots")
	u.sees("sandbox i1; name? helps, Tab completes, Ctrl-C interrupts, Ctrl-D ends\r\n")
	u.sees(">>> ")
	u.runs("6 * 7", "\r\n42\r\n")
	u.runs("half", "half a line\r\n") // the next prompt begins a line of its own
	u.runs("raise", "warned\r\nline 3\r\nValueError: no\r\n")
	u.types("def f():\r")
	u.sees("...     ")
	u.types("6\r")
	u.sees("...     ")
	u.runs("", "ran def f():|    6")
	u.types("   \r")
	u.sees(">>> ")
	if strings.Contains(u.shown(), "ran  ") {
		t.Errorf("a cell without code was run: %q", u.shown())
	}
	u.types("b\t") // the only match
	u.sees("beta")
	u.runs("", "ran beta")
	u.types("alp\t")
	u.sees("alpha")
	u.types("\t") // several
	u.sees("alpha     alphabet\r\n")
	u.types("\x03")
	u.sees("^C")
	u.sees(">>> ")
	u.types("\tx")
	u.sees("    x")
	u.runs("", "ran     x")
	u.runs("len?", "help on len, level 0")
	u.runs("??len", "help on len, level 1")
	u.runs("nosuch?", "the kernel knows no nosuch")
	u.runs("?", "name? shows what the kernel knows of a name")
	u.types("ask\r")
	u.sees("first\r\n")
	u.sees("name? ")
	u.runs("Ada", "hello Ada")
	u.types("\x1b[A")
	u.sees("ask")
	u.types("\x03")
	u.sees(">>> ")
	u.runs("picture", "saved plots/image-2.png\r\n") // results of earlier cells count
	u.types("\x1b[200~a\r\tb\x1b[201~")
	u.sees("... ")
	u.runs("", "ran a|\tb")
	if err := u.leaves("\x04"); err != nil {
		t.Errorf("got error %v at the end", err)
	}
	u.sees("\x1b[?2004l")
	if _, err := os.Stat(filepath.Join(u.dir, "plots", "image-2.png")); err != nil || s.killed != 0 || s.interrupts != 0 {
		t.Errorf("got error %v of the picture, %d kills and %d interrupts", err, s.killed, s.interrupts)
	}
	history, err := os.ReadFile(filepath.Join(u.dir, "e2bctl", "history", "code"))
	must.Do(t, err)
	for text, want := range map[string]bool{"\"6 * 7\"\n": true, "\"def f():\\n    6\"\n": true, "Ada": false, "\"len?\"\n": true} {
		if strings.Contains(string(history), text) != want {
			t.Errorf("the history is %q; %q in it: %v", history, text, !want)
		}
	}
}

// TestReplInterrupts checks that Ctrl-C interrupts the code that runs, the question that it asks, and no more; and that a
// picture that is not written is mentioned once.
func TestReplInterrupts(t *testing.T) {
	s := &kernels{}
	u := atRepl(t, s)
	u.sees(">>> ")
	u.types("hang\r")
	u.sees("begun")
	u.types("\x03")
	u.sees("^C")
	u.sees("line 3\r\nKeyboardInterrupt: no\r\n")
	u.sees(">>> ")
	if s.interrupts != 1 {
		t.Errorf("got %d interrupts, want one", s.interrupts)
	}
	u.runs("picture", "a picture, which a terminal cannot show")
	u.types("picture\r")
	u.sees(">>> ")
	u.runs("6 * 7", "42")
	if n := strings.Count(u.shown(), "a picture, which"); n != 1 {
		t.Errorf("the picture was mentioned %d times, want once", n)
	}
	if err := u.leaves("exit()\r"); err != nil {
		t.Errorf("got error %v at the end", err)
	}
	if s.killed != 1 { // it was made for this session
		t.Errorf("the sandbox was ended %d times, want once", s.killed)
	}
}

// TestReplGivesUp checks that the second Ctrl-C ends the wait for code that ignores the first. If the kernel has no name by
// which it can be interrupted, the first one ends the wait.
func TestReplGivesUp(t *testing.T) {
	u := atRepl(t, &kernels{}, "i1", "--context", "c2")
	u.sees(">>> ")
	u.runs("exit()", "ran exit()") // which ends only Python
	u.runs("len?", "ran len?")
	u.types("stubborn\r")
	u.sees("begun")
	u.types("\x03")
	u.sees("no, thanks")
	u.types("\x03")
	u.sees("it was given up")
	u.sees(">>> ")
	if err := u.leaves("\x04"); err != nil {
		t.Errorf("got error %v at the end", err)
	}
}

// TestReplOverHTTP checks a session without a websocket: code runs, and nothing else does.
func TestReplOverHTTP(t *testing.T) {
	u := atRepl(t, &kernels{deaf: true}, "i1")
	u.sees("no completion, no help and no lines that belong together: ")
	u.sees(">>> ")
	u.runs("if x:", "over HTTP\r\n")
	u.types("alp\t")
	u.runs("", "over HTTP\r\n")
	u.runs("len?", "websocket")
	if err := u.leaves("\x04"); err != nil {
		t.Errorf("got error %v at the end", err)
	}
}

// TestReplEnds checks that the end of the sandbox ends a session.
func TestReplEnds(t *testing.T) {
	u := atRepl(t, &kernels{}, "i1")
	u.sees(">>> ")
	err := u.leaves("die\r")
	if own, ok := errors.AsType[*cmdutil.OwnError](err); !ok || !own.Running || !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("got error %v, want that the sandbox is gone", err)
	}
}
