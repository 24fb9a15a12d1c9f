package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// atPrompt starts e2bctl code repl in a terminal, and waits for its prompt.
func atPrompt(t *testing.T, cloud *sandboxtest.Cloud, args ...string) *person {
	t.Helper()
	p := atTerminal(t, cloud, append([]string{"code", "repl"}, args...)...)
	p.sees(">>> ")
	return p
}

// runs types a line and waits for the wanted output, which the line itself must not contain.
func (p *person) runs(line, want string) {
	p.t.Helper()
	p.types(line + "\r")
	p.sees(want)
	p.prompts()
}

// prompts waits until the last thing on the screen is a prompt.
func (p *person) prompts() {
	p.t.Helper()
	p.endsWith(">>> ")
}

func TestReplRunsCells(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	p := atPrompt(t, cloud, sb.ID(), "-e", "A=from-a-flag")
	p.types("x = 1233\r")
	p.prompts()
	p.runs("x + 1", "1234")
	p.runs("import os; os.environ['A'].upper()", "FROM-A-FLAG")
	p.types("def twice(a):\r") // its next line is indented by the kernel's advice
	p.endsWith("...     ")
	p.types("return a * 2\r")
	p.endsWith("...     ")
	p.types("\r")
	p.prompts()
	p.runs("twice(2500)", "5000")
	p.types("1/0\r")
	p.sees("ZeroDivisionError: division by zero")
	p.prompts()
	p.types("x = = 1\r")
	p.sees("SyntaxError")
	p.prompts()
	p.types("print('half', end='')\r") // the next prompt begins a line of its own
	p.sees("half\r\n>>> ")
	p.runs("'a\\x1b]0;owned\\x07b'; print('a\\x1b]0;owned\\x07b')", "a]0;ownedb")

	p.types("\x1b[200~if x:\r\n\tpasted = [5,\r6]\n\x1b[201~") // not run before the enter key
	p.endsWith("... ")
	p.types("\r")
	p.prompts()
	p.runs("sum(pasted) * 100", "1100")

	// An earlier cell, changed as a whole.
	p.types("\x1b[A\x1b[A")
	p.sees("if x:⏎⇥pasted = [5,⏎6]")
	p.types("; print(sum(pasted) * 111)\r")
	p.endsWith("... ")
	p.types("\r")
	p.sees("1221")
	p.prompts()

	// Ctrl-R: the latest cell with this text is twice(2500), and an older one is the function.
	p.types("twice\x12")
	p.sees("twice(2500)")
	p.types("\x7f+5)\r")
	p.sees("5010")
	p.prompts()
	p.types("\x04")
	p.ends(0)
	p.sees("\x1b[?2004l")
	got, err := sandbox.Eval[int](t.Context(), sb, "x") // the sandbox was there before, and stays
	if err != nil || got != 1233 {
		t.Errorf("x is %d (%v), want what was typed", got, err)
	}
}

func TestReplTellsAndInterrupts(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	p := atPrompt(t, cloud)
	id := strings.TrimSuffix(strings.Fields(p.shown())[1], ";")
	p.types("kept = {'a': 41}\r")
	p.prompts()
	p.types("kep\t['a'] + 1\r")
	p.sees("42")
	p.prompts()
	p.types("'abc'.is\t") // several, which are shown
	p.sees("isalnum")
	p.types("\x03")
	p.sees("^C")
	p.prompts()
	p.types("\tnever typed\x1b\x03") // the tab key indents, and escape is no obstacle
	p.sees("    never typed^C")
	p.prompts()
	p.runs("len?", "Return the number of items in a container")
	p.runs("??os.path.join", "the kernel knows no os.path.join")
	p.types("import inspect\r")
	p.prompts()
	p.runs("inspect.unwrap??", "def unwrap(func")

	p.types("print('begun'.upper()); exec('while True: pass')\r")
	p.sees("BEGUN")
	p.types("\x03")
	p.sees("KeyboardInterrupt")
	p.prompts()
	p.runs("kept['a'] + 959", "1000")

	p.types("'a' + input('name' + chr(63) + ' ') + 'z'\r")
	p.sees("name? ")
	p.types("b\x7fmiddle\r")
	p.sees("amiddlez")
	p.prompts()
	p.types("import getpass; getpass.getpass('word' + chr(63))[::-1]\r")
	p.sees("word?")
	p.types("terces\r")
	p.sees("secret")
	p.prompts()
	p.types("input('never' + chr(63) + ' ')\r")
	p.sees("never? ")
	p.types("\x03")
	p.prompts()
	p.runs("kept['a'] + 1959", "2000")

	p.types("\x04")
	p.ends(0)
	if strings.Contains(p.shown(), "terces") {
		t.Errorf("the screen shows the password: %q", p.shown())
	}
	file := filepath.Join(p.cmd.Dir, ".local", "state", "e2bctl", "history", "code")
	info, err := os.Stat(file)
	must.Do(t, err)
	if info.Mode() != fs.FileMode(0o600) {
		t.Errorf("the history has the mode %v, want 0600", info.Mode())
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "terces") || !strings.Contains(string(text), "\"len?\"\n") {
		t.Errorf("the history is %q (%v), want what was typed without answers", text, err)
	}
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	if _, err := client.Info(t.Context(), id); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("the sandbox is still there: %v", err)
	}
}

// TestReplGivesUp checks that the second Ctrl-C ends the wait for code that ignores the first.
func TestReplGivesUp(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	p := atPrompt(t, cloud, "--sandbox", sb.ID())
	p.types("\x1b[200~while True:\n    try: import time; print('be' + 'gun'); time.sleep(1000)\n    except KeyboardInterrupt: print('no', 'thanks')\n\x1b[201~\r")
	p.sees("begun")
	p.types("\x03")
	p.sees("no thanks")
	p.types("\x03")
	p.sees("it was given up")
	p.prompts()
	p.types("exit()\r")
	p.ends(0)
}

func TestReplEnds(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	t.Run("the sandbox dies", func(t *testing.T) {
		t.Parallel()
		mortal := cloud.Create(t)
		p := atPrompt(t, cloud, mortal.ID())
		p.types("import time; print('be' + 'gun'); time.sleep(1000)\r")
		p.sees("begun")
		must.Do(t, mortal.Kill(t.Context()))
		p.ends(137)
		p.sees("e2bctl: code repl: ")
	})
	t.Run("a signal", func(t *testing.T) {
		t.Parallel()
		p := atPrompt(t, cloud)
		p.types("half a li")
		must.Do(t, p.cmd.Process.Signal(os.Interrupt))
		p.ends(130)
	})
	t.Run("a context", func(t *testing.T) {
		t.Parallel()
		sb := cloud.Create(t)
		made, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		_, err = sb.RunCode(t.Context(), "there = 4321", &sandbox.RunCodeParams{Context: made.ID})
		must.Do(t, err)
		p := atPrompt(t, cloud, sb.ID(), "--context", string(made.ID))
		p.runs("there + 1", "4322")
		p.types("print('be' + 'gun'); exec('while True: pass')\r")
		p.sees("begun")
		p.types("\x03")
		p.sees("KeyboardInterrupt")
		p.prompts()
		p.types("\x04")
		p.ends(0)
		p = atTerminal(t, cloud, "code", "repl", sb.ID(), "--context", "nosuch")
		p.ends(125)
		p = atTerminal(t, cloud, "code", "repl", sb.ID(), "--language", "cobol")
		p.ends(125)
		p.sees("no kernel")
	})
	t.Run("pictures", func(t *testing.T) {
		t.Parallel()
		sb := cloud.Create(t)
		must.Do(t, sb.Files.Write(t.Context(), "show.py", []byte("from IPython.display import Image, display\nimport base64\npicture = Image(data=base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='))"), nil))
		p := atPrompt(t, cloud, sb.ID(), "--save-images", "plots", "--download", "show.py:got.py")
		p.types("from show import *; picture\r")
		p.sees("saved plots/image-1.png")
		p.prompts()
		p.types("display(picture); picture\r")
		p.sees("saved plots/image-3.png")
		p.prompts()
		p.types("\x04")
		p.ends(0)
		for _, name := range []string{"plots/image-2.png", "got.py"} {
			if _, err := os.Stat(filepath.Join(p.cmd.Dir, name)); err != nil {
				t.Error(err)
			}
		}
		p = atPrompt(t, cloud, sb.ID())
		p.runs("from show import *; picture", "--save-images DIR")
		p.types("\x04")
		p.ends(0)
	})
}
