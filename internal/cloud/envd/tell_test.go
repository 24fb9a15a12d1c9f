//go:build linux

package envd

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTell: the log has the start and the end of every process, and not its variables.
func TestTell(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	ps := newProcesses(&child.Memory{}, slog.New(slog.NewTextHandler(&said, nil)))
	r, _, err := ps.start(&launch{
		config: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "exit 3"}, Envs: map[string]string{"A": "hidden"}},
		user:   &User{Name: "me"}, env: []string{"A=hidden"}, dir: "/",
	})
	must.Do(t, err)
	<-r.ended
	must.Do(t, ps.close())
	text := said.String()
	for _, want := range []string{`msg="process started" pid=`, `command="/bin/sh -c exit 3" cwd=/ user=me`, `msg="process ended" pid=`, `status="exit status 3" took=`} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %s in it", text, want)
		}
	}
	if strings.Contains(text, "hidden") {
		t.Errorf("the log has a variable's value: %s", text)
	}
}

// TestTellKilled: the log reports that memory ran out while a process ran, because the
// process's own status may not show it.
func TestTellKilled(t *testing.T) {
	t.Parallel()
	for kills, want := range map[int]bool{0: false, 2: true} {
		var said bytes.Buffer
		var counted atomic.Int64
		memory := &child.Memory{Kills: func() int { return int(counted.Load()) }}
		ps := newProcesses(memory, slog.New(slog.NewTextHandler(&said, nil)))
		r, _, err := ps.start(&launch{
			config: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "read line"}}, user: &User{Name: "me"}, dir: "/", stdin: true,
		})
		must.Do(t, err)
		counted.Store(int64(kills)) // as if children of the process were killed
		must.Do(t, r.signal(unix.SIGTERM))
		<-r.ended
		must.Do(t, ps.close())
		if got := strings.Contains(said.String(), `level=WARN msg="memory ran out while a process ran, and processes of the sandbox were killed" pid=`); got != want {
			t.Errorf("%d killed: got %s, want a warning %t", kills, said.String(), want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ command, want string }{
		{"git clone https://me:s3cret@host/x.git", "git clone https://***@host/x.git"},
		{"git clone https://host/a@b", "git clone https://host/a@b"},
		{"curl -H 'Authorization: Bearer s3cret.s3cret' https://host", "curl -H 'Authorization: *** ***' https://host"},
		{"curl -d '{\"password\": \"s3cret\"}'", "curl -d '{\"password\": \"***\"}'"},
		{"GITHUB_TOKEN=s3cret make; ls", "GITHUB_TOKEN=*** make; ls"},
		{"printf 'protocol=https\\nusername=me\\npassword=s3cret\\n'", "printf 'protocol=https\\nusername=me\\npassword=***\\n'"},
		{"login --password s3cret --api-key='s3cret'", "login --password *** --api-key='***'"},
		{"echo x-api-key:s3cret", "echo x-api-key:***"},
		{"ls -la /secrets && make tokens", "ls -la /secrets && make tokens"},
	} {
		got := commandLine("sh", []string{"-c", tt.command})
		if got != "sh -c "+tt.want {
			t.Errorf("%s: got %q, want %q", tt.command, got, "sh -c "+tt.want)
		}
	}
	if got := commandLine("x", []string{strings.Repeat("y", 1<<20), strings.Repeat("z", 1<<20)}); len(got) > maxCommandKept+len("…") {
		t.Errorf("got %d bytes, want at most %d", len(got), maxCommandKept)
	}
}
