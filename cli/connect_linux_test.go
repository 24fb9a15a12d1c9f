package cli

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// person runs e2bctl in a terminal, types and watches the screen.
type person struct {
	t        *testing.T
	keyboard *os.File
	tty      *os.File
	before   *term.State
	cmd      *exec.Cmd
	watching sync.WaitGroup

	mu     sync.Mutex
	screen strings.Builder
}

// atTerminal starts e2bctl, as a user of a cloud, in a terminal of 91 columns and 31 rows.
func atTerminal(t *testing.T, cloud *sandboxtest.Cloud, args ...string) *person {
	t.Helper()
	home := t.TempDir()
	return inTerminal(t, home, append(append(os.Environ(), cloud.Env()...), "HOME="+home, "XDG_RUNTIME_DIR="+home, "E2BCTL_LOCAL="), args...)
}

// inTerminal starts e2bctl in a directory and a terminal of 91 columns and 31 rows.
func inTerminal(t *testing.T, dir string, env []string, args ...string) *person {
	t.Helper()
	return usesInTerminal(t, dir, env, "e2bctl", args...)
}

// usesInTerminal is inTerminal for any program.
func usesInTerminal(t *testing.T, dir string, env []string, program string, args ...string) *person {
	t.Helper()
	p := &person{t: t, cmd: exec.CommandContext(t.Context(), program, args...)}
	var err error
	p.keyboard, p.tty, err = pty.Open()
	must.Do(t, err)
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil && p.cmd.Process != nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		p.tty.Close() // the screen ends with the last one
		p.watching.Wait()
		p.keyboard.Close()
	})
	p.resize(91, 31)
	p.before, err = term.GetState(int(p.tty.Fd()))
	must.Do(t, err)
	p.cmd.Env, p.cmd.Dir = env, dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.tty, p.tty, p.tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, p.cmd.Start())
	p.watching.Go(func() {
		part := make([]byte, 4096)
		for {
			n, err := p.keyboard.Read(part)
			p.mu.Lock()
			p.screen.Write(part[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return p
}

func (p *person) resize(cols, rows uint16) {
	p.t.Helper()
	must.Do(p.t, pty.Setsize(p.keyboard, &pty.Winsize{Cols: cols, Rows: rows}))
}

func (p *person) types(keys string) {
	p.t.Helper()
	_, err := p.keyboard.WriteString(keys)
	must.Do(p.t, err)
}

func (p *person) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.String()
}

// sees waits until the screen has shown text. What is typed is shown as well, so it must not
// contain text.
func (p *person) sees(text string) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen: %q", p.shown())
		}
	}()
	patience.Until(p.t, "the screen shows "+text, func() bool { return strings.Contains(p.shown(), text) })
}

// endsWith waits until the last characters on the screen are text.
func (p *person) endsWith(text string) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen: %q", p.shown())
		}
	}()
	patience.Until(p.t, "the screen ends with "+text, func() bool { return strings.HasSuffix(p.shown(), text) })
}

// ends waits for the end of e2bctl, which must leave the terminal as it was.
func (p *person) ends(status int) {
	p.t.Helper()
	err := p.cmd.Wait()
	got := 0
	if err != nil {
		got = shellStatus(p.t, err)
	}
	if got != status {
		p.t.Errorf("status %d, want %d; the screen: %q", got, status, p.shown())
	}
	after, err := term.GetState(int(p.tty.Fd()))
	if err != nil || *after != *p.before {
		p.t.Errorf("the terminal is not as it was: %v", err)
	}
}

// shell is the shell that connect --pid comes back to.
var shell = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`connect (--pid \d+ )(\S+) comes back`) })

func (p *person) leftShell() (pid string) {
	p.t.Helper()
	p.sees(" comes back")
	found := shell().FindStringSubmatch(p.shown())
	if found == nil {
		p.t.Fatalf("the screen names no shell: %q", p.shown())
	}
	return strings.Fields(found[1])[1]
}

func TestConnect(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)

	t.Run("a shell", func(t *testing.T) {
		t.Parallel()
		p := atTerminal(t, cloud, "connect", "-u", "root", "-w", "/tmp", "-e", "A=b", sb.ID())
		p.types("echo \"in $PWD $A $(id -un)\" $(stty size)\r")
		p.sees("in /tmp b root 31 91")
		p.resize(120, 40)
		p.types("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.01; done; echo \"now $(stty size)\"\r")
		p.sees("now 40 120")
		p.types("exit 7\r")
		p.ends(7)
		p.sees("sandbox " + sb.ID() + " is kept\r\n  e2bctl connect " + sb.ID() + " comes back\r\n  e2bctl kill " + sb.ID() + " ends it")
	})
	t.Run("leave and come back", func(t *testing.T) {
		t.Parallel()
		p := atTerminal(t, cloud, "attach", "--shell", "sh", sb.ID())
		p.types("A=4; echo x$((A+1))y $0\r")
		p.sees("x5y sh")
		p.types("printf '\\033[?1049h\\033[?25lx%sy' z\r") // as an editor does
		p.sees("xzy")
		p.types("\x10\x11")
		p.ends(0)
		p.sees("\x1b[?25h")
		pid := p.leftShell()

		p = atTerminal(t, cloud, "connect", "--pid", pid, "--detach-keys", "ctrl-a,d", sb.ID())
		p.types("\x10\x11\x15echo x$((A+2))y $(stty size)\r") // these keys leave no more
		p.sees("x6y 31 91")
		p.types("\x01d")
		p.ends(0)
		if again := p.leftShell(); again != pid {
			t.Errorf("it names the shell %s, want %s", again, pid)
		}

		p = atTerminal(t, cloud, "connect", "--pid", pid, "--detach-keys", "", sb.ID())
		p.types("exit\r")
		p.ends(0)
	})
	t.Run("a signal", func(t *testing.T) {
		t.Parallel()
		for signal, status := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
			p := atTerminal(t, cloud, "connect", sb.ID())
			p.types("echo x$((1+1))y\r")
			p.sees("x2y")
			must.Do(t, p.cmd.Process.Signal(signal))
			p.ends(status)
			p = atTerminal(t, cloud, "connect", "--pid", p.leftShell(), sb.ID())
			p.types("exit 3\r")
			p.ends(3)
		}
	})
	t.Run("the sandbox dies", func(t *testing.T) {
		t.Parallel()
		mortal := cloud.Create(t)
		p := atTerminal(t, cloud, "connect", mortal.ID())
		p.types("echo x$((1+1))y\r")
		p.sees("x2y")
		must.Do(t, mortal.Kill(t.Context()))
		p.ends(137)
		p.sees("e2bctl: connect: ")
		if strings.Contains(p.shown(), "comes back") {
			t.Errorf("the screen says how to come back: %q", p.shown())
		}
	})
	t.Run("no such shell", func(t *testing.T) {
		t.Parallel()
		p := atTerminal(t, cloud, "connect", "--pid", "99999", sb.ID())
		p.ends(125)
		p.sees("99999")
		p = atTerminal(t, cloud, "connect", "--shell", "no-such-shell", sb.ID())
		p.ends(127)
		p = atTerminal(t, cloud, "connect", "--detach-keys", "ctrl-1", sb.ID())
		p.ends(2)
		p.sees("--detach-keys ctrl-1: want characters")
	})
}

func TestConnectToANewSandbox(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	id := func(p *person) string {
		p.sees("sandbox ")
		p.types("echo x$((1+1))y\r")
		p.sees("x2y")
		_, rest, _ := strings.Cut(p.shown(), "sandbox ")
		return strings.Fields(rest)[0]
	}
	exists := func(id string) bool {
		sb, err := client.Connect(t.Context(), id)
		if err == nil {
			return sb.Detach() == nil
		}
		if !errors.Is(err, sandbox.ErrGone) {
			t.Error(err)
		}
		return false
	}

	p := atTerminal(t, cloud, "connect", "--new", "base", "--rm")
	removed := id(p)
	p.types("\x10\x11")
	p.ends(0)
	if exists(removed) || strings.Contains(p.shown(), "comes back") {
		t.Errorf("a sandbox of --rm is left; the screen: %q", p.shown())
	}

	p = atTerminal(t, cloud, "connect", "--new", "base")
	kept := id(p)
	p.types("exit\r")
	p.ends(0)
	if !exists(kept) {
		t.Error("the sandbox is gone")
	}
	p.sees("e2bctl kill " + kept + " ends it")
}
