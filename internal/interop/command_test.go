package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// official is the official command, and the cloud that it uses.
type official struct {
	program string
	node    string // the Node that runs it
	cloud   []string
}

// outcome is the result of the command.
type outcome struct {
	stdout, stderr string
	status         int
}

// officialCommand returns the official command of a generation.
func officialCommand(t *testing.T, generation string, cloud []string) official {
	t.Helper()
	return official{filepath.Join(installJS(t, generation), "node_modules", ".bin", "e2b"), node(t, generation), cloud}
}

func (o official) command(t *testing.T, arguments ...string) *exec.Cmd {
	// Its own first line makes node read the map of its source, which takes a tenth
	// of a second each time.
	command := exec.CommandContext(patience.Context(t), o.node, append([]string{o.program}, arguments...)...)
	command.Env = slices.Concat(os.Environ(), []string{"NO_UPDATE_NOTIFIER=1"}, o.cloud)
	command.WaitDelay = time.Second
	return command
}

// run runs the command with stdin; nil means empty input.
func (o official) run(t *testing.T, stdin io.Reader, arguments ...string) outcome {
	t.Helper()
	command := o.command(t, arguments...)
	var stdout, stderr strings.Builder
	command.Stdin, command.Stdout, command.Stderr = stdin, &stdout, &stderr
	err := command.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("%s: %v\n%s", command, err, stderr.String())
	}
	return outcome{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// must runs the command, which must succeed, and returns its output.
func (o official) must(t *testing.T, arguments ...string) string {
	t.Helper()
	got := o.run(t, nil, arguments...)
	if got.status != 0 {
		t.Fatalf("%v ended with %d\n%s%s, want 0", arguments, got.status, got.stdout, got.stderr)
	}
	return got.stdout
}

// terminal runs the command in a terminal, types input once prompt is shown, and
// returns the whole output.
func (o official) terminal(t *testing.T, prompt, input string, arguments ...string) string {
	t.Helper()
	command := o.command(t, arguments...)
	screen, err := pty.StartWithSize(command, &pty.Winsize{Rows: 33, Cols: 111})
	must.Do(t, err)
	defer screen.Close()
	var shown bytes.Buffer
	buffer := make([]byte, 4096)
	for typed := false; ; {
		n, err := screen.Read(buffer)
		shown.Write(buffer[:n])
		if err != nil { // EIO: the other side is gone
			break
		}
		if !typed && strings.Contains(shown.String(), prompt) {
			typed = true
			_, err := io.WriteString(screen, input)
			must.Do(t, err)
		}
	}
	if err := command.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", arguments, err, shown.String())
	}
	return shown.String()
}

// create creates a sandbox without a terminal and returns its id.
func (o official) create(t *testing.T, flags ...string) string {
	t.Helper()
	// The older command prints more than the id.
	created := o.must(t, slices.Concat([]string{"sandbox", "create", "-d"}, flags)...)
	id := regexp.MustCompile(`\b[a-z0-9]{21}\b`).FindString(created)
	if id == "" {
		t.Fatalf("create printed no id: %s", created)
	}
	return id
}

// listed is a sandbox of a list.
type listed struct{ SandboxID, State, Name string }

func (o official) list(t *testing.T, flags ...string) (list []listed) {
	t.Helper()
	text := o.must(t, slices.Concat([]string{"sandbox", "list", "-f", "json"}, flags)...)
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("the list is %s: %v", text, err)
	}
	return list
}

// details are the command's details of one sandbox.
type details struct {
	SandboxID, State string
	Lifecycle        struct {
		OnTimeout  string
		AutoResume bool
	}
}

func (o official) info(t *testing.T, id string) (info details) {
	t.Helper()
	text := o.must(t, "sandbox", "info", "-f", "json", id)
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatalf("the information is %s: %v", text, err)
	}
	return info
}

// driveCommand makes the official command do each of its jobs with a sandbox.
func driveCommand(t *testing.T, o official) {
	id := o.create(t)

	t.Run("list", func(t *testing.T) {
		if got, want := o.list(t), (listed{id, "running", "base"}); !slices.Contains(got, want) {
			t.Errorf("got %v, want %v in the list", got, want)
		}
	})
	t.Run("info", func(t *testing.T) {
		if got := o.info(t, id); got.SandboxID != id || got.State != "running" {
			t.Errorf("info of %s is %+v, want %[1]s, %[3]q", id, got, "running")
		}
	})
	t.Run("connect", func(t *testing.T) {
		shown := o.terminal(t, "$ ", `stty size; echo con""nected; exit`+"\n", "sandbox", "connect", id)
		if !strings.Contains(shown, "\nconnected\r") || !strings.Contains(shown, "33 111\r") {
			t.Errorf("the terminal showed %q, want %q in it and %q in it", shown, "\nconnected\r", "33 111\r")
		}
	})
	t.Run("exec", func(t *testing.T) {
		script := `cat; id -un; pwd; echo "$MARK"; echo bad >&2; exit 7`
		got := o.run(t, strings.NewReader("from stdin\n"), "sandbox", "exec", "-u", "root", "-c", "/tmp", "-e", "MARK=x y", id, script)
		if want := "from stdin\nroot\n/tmp\nx y\n"; got.stdout != want || got.status != 7 || !strings.Contains(got.stderr, "bad\n") {
			t.Errorf("exec gave %+v, want status 7 and %q", got, want)
		}
		if got := o.must(t, "sandbox", "exec", id, "echo", "two  words", "$HOME"); got != "two  words $HOME\n" {
			t.Errorf("exec of several words printed %q, want %q", got, "two words $HOME\n")
		}
		much := strings.Repeat("line of a large input\n", 50_000)
		if got := o.run(t, strings.NewReader(much), "sandbox", "exec", id, "wc -c"); strings.TrimSpace(got.stdout) != "1100000" {
			t.Errorf("1100000 bytes of stdin arrived as %+v, want stdout %q", got, "1100000")
		}
	})
	t.Run("exec in the background", func(t *testing.T) {
		pid := o.background(t, id, "sleep 4321")
		if got := o.must(t, "sandbox", "exec", id, "kill "+pid+" && echo killed"); got != "killed\n" {
			t.Errorf("kill of it printed %q, want %q", got, "killed\n")
		}
	})
	t.Run("create with a terminal", func(t *testing.T) {
		shown := o.terminal(t, "$ ", `echo $E2B_SANDBOX_ID; exit`+"\n", "sandbox", "create")
		if !regexp.MustCompile(`\r[a-z0-9]{21}\r`).MatchString(shown) {
			t.Errorf("the terminal showed %q", shown)
		}
	})
	o.driveTelemetry(t)
	o.drivePause(t)
	o.driveTemplates(t)
	t.Run("kill", func(t *testing.T) {
		o.must(t, "sandbox", "kill", id)
		if got := o.run(t, nil, "sandbox", "exec", id, "true"); got.status == 0 {
			t.Errorf("exec in the killed sandbox gave %+v", got)
		}
	})
}
