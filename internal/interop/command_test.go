package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// official is the official command, and the cloud that it uses.
type official struct {
	program string
	cloud   []string
}

// outcome is how the command ended.
type outcome struct {
	stdout, stderr string
	status         int
}

func (o official) command(t *testing.T, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(t.Context(), o.program, arguments...)
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

// must runs the command, which must succeed, and returns what it printed.
func (o official) must(t *testing.T, arguments ...string) string {
	t.Helper()
	got := o.run(t, nil, arguments...)
	if got.status != 0 {
		t.Fatalf("%v ended with %d\n%s%s, want 0", arguments, got.status, got.stdout, got.stderr)
	}
	return got.stdout
}

// terminal runs the command in a terminal, types input once prompt is shown,
// and returns everything that was shown.
func (o official) terminal(t *testing.T, prompt, input string, arguments ...string) string {
	t.Helper()
	command := o.command(t, arguments...)
	screen, err := pty.StartWithSize(command, &pty.Winsize{Rows: 33, Cols: 111})
	if err != nil {
		t.Fatal(err)
	}
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
			if _, err := io.WriteString(screen, input); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := command.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", arguments, err, shown.String())
	}
	return shown.String()
}

// driveCommand makes the official command do each of its jobs with a sandbox.
func driveCommand(t *testing.T, cloud []string, program string) {
	o := official{program, cloud}
	// The older command prints more than the id.
	created := o.must(t, "sandbox", "create", "-d")
	id := regexp.MustCompile(`\b[a-z0-9]{21}\b`).FindString(created)
	if id == "" {
		t.Fatalf("create printed no id: %s", created)
	}

	t.Run("list", func(t *testing.T) {
		var list []struct{ SandboxID, State, Name string }
		if err := json.Unmarshal([]byte(o.must(t, "sandbox", "list", "-f", "json")), &list); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(list, struct{ SandboxID, State, Name string }{id, "running", "base"}) {
			t.Errorf("got %v, want %s in the list, running", list, id)
		}
	})
	t.Run("info", func(t *testing.T) {
		var info struct{ SandboxID, State string }
		if err := json.Unmarshal([]byte(o.must(t, "sandbox", "info", "-f", "json", id)), &info); err != nil {
			t.Fatal(err)
		}
		if info.SandboxID != id || info.State != "running" {
			t.Errorf("info of %s is %+v, want %[1]s, %[3]q", id, info, "running")
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
		got := o.run(t, nil, "sandbox", "exec", "-b", id, "sleep 4321")
		pid := regexp.MustCompile(`^\d+\n$`).FindString(got.stderr)
		if pid == "" || got.status != 0 {
			t.Fatalf("exec -b gave %+v, want a process id", got)
		}
		if got := o.must(t, "sandbox", "exec", id, "kill "+strings.TrimSpace(pid)+" && echo killed"); got != "killed\n" {
			t.Errorf("kill of it printed %q, want %q", got, "killed\n")
		}
	})
	t.Run("create with a terminal", func(t *testing.T) {
		shown := o.terminal(t, "$ ", `echo $E2B_SANDBOX_ID; exit`+"\n", "sandbox", "create")
		if !regexp.MustCompile(`\r[a-z0-9]{21}\r`).MatchString(shown) {
			t.Errorf("the terminal showed %q", shown)
		}
	})
	for name, arguments := range map[string][]string{
		"logs of sandboxes":    {"sandbox", "logs", id},
		"metrics of sandboxes": {"sandbox", "metrics", id},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			want := "not supported by this local cloud: " + name
			if got := o.run(t, nil, arguments...); got.status == 0 || !strings.Contains(got.stderr, want) {
				t.Errorf("%v gave %+v, want %q", arguments, got, want)
			}
		})
	}
	t.Run("kill", func(t *testing.T) {
		o.must(t, "sandbox", "kill", id)
		if got := o.run(t, nil, "sandbox", "exec", id, "true"); got.status == 0 {
			t.Errorf("exec in the killed sandbox gave %+v", got)
		}
	})
}
