package code

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// atRepl starts e2bctl code repl in a terminal. If s has a file for it, standard error is that file.
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
	if !s.unsized {
		must.Do(t, pty.Setsize(tty, &pty.Winsize{Cols: 90, Rows: 30}))
	}
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
	if s.errs != nil {
		ios.Err, ios.ErrIsTerminal = s.errs, false
	}
	if s.unkept {
		must.Do(t, os.MkdirAll(filepath.Join(dir, "e2bctl", "history", "code"), 0o700))
	}
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

// until waits until a text appears on the screen, after what was looked at before, and returns what is between.
func (u *user) until(text string) (shown string) {
	u.t.Helper()
	patience.Until(u.t, fmt.Sprintf("%q is on the screen", text), func() bool {
		if len(u.ended) > 0 {
			u.t.Fatalf("the command has ended with error %v, and %q was not on the screen", <-u.ended, text)
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		found := false
		if shown, _, found = strings.Cut(u.screen.String()[u.seen:], text); found {
			u.seen += len(shown) + len(text)
		}
		return found
	})
	return shown
}

// runs types a cell, waits for the next prompt, and checks that text is between.
func (u *user) runs(cell, text string) {
	u.t.Helper()
	u.presses(cell+"\r", ">>> ", text)
}

// presses types keys, waits for a mark on the screen, and checks that text is before it.
func (u *user) presses(keys, mark, text string) {
	u.t.Helper()
	u.types(keys)
	if shown := u.until(mark); !strings.Contains(shown, text) {
		u.t.Errorf("after %q: the screen has %q before %q, want %q in it", keys, shown, mark, text)
	}
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
	u.presses("", ">>> ", "sandbox i1; name? helps, Tab completes, Ctrl-C interrupts, Ctrl-D ends\r\n\x1b[?2004h")
	u.runs("6 * 7", "\r\n42\r\n")
	u.runs("half", "half a line\r\n") // the next prompt begins a line of its own
	long := strings.Repeat("x", 85)   // on one line of the terminal
	u.runs(long, long+"\r\nran "+long+"\r\n")
	u.runs("raise", "warned\r\nline 3\r\nValueError: no\r\n")
	u.types("def f():\r")
	u.sees("...     ")
	u.types("6\r")
	u.sees("...     ")
	u.runs("", "ran def f():|    6")
	u.types("   \r")
	if shown := u.until(">>> "); strings.Contains(shown, "ran") {
		t.Errorf("a cell without code was run: %q", shown)
	}
	u.presses("b\tZ", "Z", "beta") // the only match
	u.runs("", "ran betaZ\r\n")
	u.presses("alp\t\tZ", "Z", "alpha     alphabet\r\n") // several
	u.presses("\x03", ">>> ", "^C")
	u.runs("beta\t", "beta\r\nran beta\r\n") // nothing is missing
	u.runs("none\t", "ran none\r\n")
	u.runs("emp\t", "ran empty\r\n") // a match without a text does not count
	u.presses("bad\tZ", "Z", "e2bctl: code repl: ")
	u.runs("", "ran badZ")
	u.runs("\tx", "ran     x")
	u.types("def f():\r")
	u.until("...     ")
	u.runs("early\t\r", "ran def f():|    early\r\n") // a match in an earlier line
	u.runs("len?", "help on len, level 0")
	u.runs("??len", "help on len, level 1")
	u.runs("nosuch?", "the kernel knows no nosuch")
	u.runs("?", "name? shows what the kernel knows of a name")
	u.presses("ask\r", "name? ", "first\r\n")
	u.runs("Ada", "hello Ada")
	u.presses("ask\r", "name? ", "first\r\n[2J")
	u.runs("\x1b[Aal\tZ", "hello alZ") // neither earlier cells nor names of the kernel are an answer
	u.presses("b\tZ", "Z", "beta")
	u.presses("\x03", ">>> ", "^C")
	u.types("secret\r")
	u.sees("password? ")
	if shown := func() string { u.types("hush\r"); return u.until(">>> ") }(); !strings.Contains(shown, "4 characters") || strings.Contains(shown, "hush") {
		t.Errorf("a password: the screen has %q", shown)
	}
	u.presses("\x1b[AZ", "Z", "secret")
	u.presses("\x03", ">>> ", "^C")
	u.runs("hal\x12", "half a line\r\n")
	u.runs("def f():\r    \r", "ran def f():|    \r\n") // typed ahead, so that nothing is put into the second line
	u.runs("unchecked", "ran unchecked\r\n")
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
	if strings.Contains(u.shown(), "\x1b[2J") {
		t.Errorf("the code has cleared the screen: %q", u.shown())
	}
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
	if shown := u.until(">>> "); !strings.Contains(shown, "line 3\r\nKeyboardInterrupt: no\r\n") {
		t.Errorf("interrupted: the screen has %q", shown)
	}
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

// TestReplInterruptsInTime checks that Ctrl-C interrupts also code that the kernel has not begun to run, once; and that it ends
// the wait for an answer about code.
func TestReplInterruptsInTime(t *testing.T) {
	s := &kernels{asked: make(chan string, 1), resume: make(chan struct{})}
	u := atRepl(t, s, "i1")
	u.sees(">>> ")
	asks := func(keys, what string) {
		t.Helper()
		if got := patience.Receive(t, "a question to the kernel", s.asked); got != what {
			t.Errorf("%q: the kernel was asked for %s, want %s", keys, got, what)
		}
	}
	u.types("late\r")
	asks("late", "execute_request")
	u.types("\x03")
	u.sees("^C")
	interrupts := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.interrupts
	}
	if interrupts() > 0 {
		t.Error("code was interrupted before it began")
	}
	s.resume <- struct{}{}
	if shown := u.until(">>> "); !strings.Contains(shown, "KeyboardInterrupt: no\r\n") || interrupts() != 1 {
		t.Errorf("interrupted early: the screen has %q after %d interrupts", shown, interrupts())
	}
	for keys, what := range map[string]string{"slow\r": "is_complete_request", "slow?\r": "inspect_request", "slow\t": "complete_request"} {
		u.types(keys)
		asks(keys, what)
		mark := ">>> "
		if strings.HasSuffix(keys, "\t") {
			mark = "Z"
		}
		u.types("\x03" + strings.Trim(mark, "> "))
		if shown := u.until(mark); !strings.Contains(shown, "^C") || strings.Contains(shown, "e2bctl") || strings.Contains(shown, "ran") {
			t.Errorf("%q: the screen has %q, want nothing of the answer", keys, shown)
		}
		if mark == "Z" {
			u.presses("\x03", ">>> ", "^C")
		}
		s.resume <- struct{}{}
		u.runs("6 * 7", "\r\n42\r\n")
	}
	u.presses("ask, then hang\r", "name? ", "")
	u.presses("Ada\r", "hello Ada", "")
	u.presses("\x03", ">>> ", "KeyboardInterrupt: no\r\n")
	u.presses("ask\r", "name? ", "first\r\n")
	u.presses("\x03", ">>> ", "KeyboardInterrupt\r\n")
	if err := u.leaves("\x04"); err != nil {
		t.Errorf("got error %v at the end", err)
	}
}

// TestReplAsksItsKernel checks that all questions of a session go to the kernel that its flags name, and that a kernel without
// such a name is given up at the first Ctrl-C.
func TestReplAsksItsKernel(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		kernel string
	}{{[]string{"--context", "c3"}, "c3"}, {[]string{"--language", "bash"}, "c2"}, {nil, "c1"}} {
		s := &kernels{unsized: true}
		u := atRepl(t, s, append([]string{"i1"}, tt.args...)...)
		u.sees(">>> ")
		u.runs("6 * 7", "6 * 7\r\n42\r\n")
		u.presses("alp\t\tZ", "Z", "alpha     alphabet\r\n") // as on a terminal of 80 columns
		u.presses("\x03", ">>> ", "^C")
		if tt.kernel == "c2" {
			u.types("stubborn\r")
			u.sees("begun")
			u.presses("\x03", ">>> ", "it was given up")
		} else {
			u.runs("len?", "help on len")
		}
		if err := u.leaves("\x04"); err != nil {
			t.Errorf("%q: got error %v at the end", tt.args, err)
		}
		s.mu.Lock()
		if len(s.opened) == 0 || slices.ContainsFunc(s.opened, func(kernel string) bool { return kernel != tt.kernel }) {
			t.Errorf("%q: the kernels %q were connected to, want %s alone", tt.args, s.opened, tt.kernel)
		}
		s.mu.Unlock()
	}
}

// TestReplWithFaults checks that a session goes on when a picture or the traceback of code cannot be written.
func TestReplWithFaults(t *testing.T) {
	u := atRepl(t, &kernels{errs: &cmdtest.Output{Err: syscall.ENOSPC}}, "i1", "--save-images", os.DevNull+"/plots")
	u.sees(">>> ")
	u.runs("picture", "e2bctl: code repl: saving an image: ")
	u.runs("fail", "e2bctl: code repl: "+syscall.ENOSPC.Error())
	u.runs("6 * 7", "\r\n42\r\n")
	if err := u.leaves("\x04"); err != nil {
		t.Errorf("got error %v at the end", err)
	}
	for _, in := range []io.Reader{strings.NewReader(""), func() *os.File { file, _ := os.Open(os.DevNull); return file }()} {
		console, restore, err := openConsole(&cmdutil.IOStreams{In: in, Out: io.Discard}, noHistory{})
		if _, isFile := in.(*os.File); console != nil || restore != nil || err == nil || (err.Error() == "standard input is not a terminal") == isFile {
			t.Errorf("%T is a terminal, error %v", in, err)
		}
	}
}

// TestReplWithAFile checks that the code's errors and the messages go to a file, that quietly nothing else is said, and that
// code runs also where no history can be kept.
func TestReplWithAFile(t *testing.T) {
	s := &kernels{unkept: true, errs: new(cmdtest.Output)}
	u := atRepl(t, s, "i1", "-q", "--save-images", "plots")
	if shown := u.until(">>> "); strings.Contains(shown, "sandbox") {
		t.Errorf("it began with %q", shown)
	}
	u.runs("raise", "e2bctl: code repl: the history is not kept: ")
	u.types("picture\r")
	if shown := u.until(">>> "); strings.Contains(shown, "saved") {
		t.Errorf("quietly, it showed %q", shown)
	}
	if err := u.leaves("\x04"); err != nil {
		t.Errorf("got error %v at the end", err)
	}
	first, rest, _ := strings.Cut(s.errs.String(), "\n")
	if !strings.HasPrefix(first, "e2bctl: code repl: the history is not kept: ") || rest != "warned\nline 3\nValueError: no\n" {
		t.Errorf("the file has %q", s.errs)
	}
	if _, err := os.Stat(filepath.Join(u.dir, "plots", "image-1.png")); err != nil {
		t.Errorf("the picture: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(u.dir, "e2bctl", "history")); err != nil || len(left) != 1 {
		t.Errorf("beside the history there is %v, error %v", left, err)
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
