//go:build linux

package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestTools(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "tools"})
	tests := []struct{ needs, command, want string }{
		{"sh", "hostname; echo $$ | grep -q . && pwd", "tools\n/home/user\n"},
		{"bash", "bash -l -c 'echo $SHELL; cat <(echo fd)'", "/bin/bash\nfd\n"},
		{"python3", "python3 -c 'import threading, subprocess, multiprocessing.pool as p; print(p.Pool(2).map(abs, [-1]), subprocess.check_output([\"true\"]))'", "[1] b''\n"},
		{"git", "cd /tmp && git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --format=%s", "x\n"},
		{"cc", "cd /tmp && echo 'int main(){return 42;}' > a.c && cc a.c && ./a.out; echo $?", "42\n"},
		{"node", "node -e 'console.log(1+1)'", "2\n"},
		{"perl", "perl -e 'print 6*7'", "42"},
		{"tar", "cd /tmp && tar cf x.tar /etc/passwd 2>/dev/null && tar tf x.tar", "etc/passwd\n"},
		{"sudo", "sudo -n -E id -u && sudo sh -c 'echo $0 $1' -- a b; sudo -u root -- ls -d /", "0\n-- a\n/\n"},
		{"script", "script -qc 'tty' /dev/null | tr -d '\\r'", "/dev/pts/0\n"},
	}
	for _, user := range []string{"root", "user"} {
		for _, tt := range tests {
			t.Run(user+"/"+tt.needs, func(t *testing.T) {
				if a := call(t, s, "/run", testRequest{Command: "command -v " + tt.needs, User: user}); a.Status != 0 {
					t.Skipf("no %s on this machine", tt.needs)
				}
				command := "export TMPDIR=$(mktemp -d) HOME=$(mktemp -d); " + strings.ReplaceAll(tt.command, "/tmp", "$TMPDIR")
				if got := call(t, s, "/run", testRequest{Command: command, User: user}); got.Output != tt.want {
					t.Errorf("%s: got %+v, want %q", tt.command, got, tt.want)
				}
			})
		}
	}
}

// The script that replaces sudo sets the variables that sudo sets, and knows its
// options.
func TestSudo(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "sudo"})
	if at := call(t, s, "/run", testRequest{Command: "command -v sudo"}).Output; at != "/usr/local/bin/sudo\n" {
		t.Skipf("sandboxes have the machine's own sudo: %s", at)
	}
	const who = `sh -c 'echo $HOME $USER $LOGNAME $SUDO_USER'`
	for _, tt := range []struct{ command, want string }{
		{"sudo " + who, "/root root root CALLER\n"},
		{"sudo -H " + who, "/root root root CALLER\n"},
		{"sudo -nEH " + who, "/root root root CALLER\n"},
		{"sudo -E " + who, "HOME root root CALLER\n"},
		{"sudo --preserve-env=A,HOME " + who, "HOME root root CALLER\n"},
		{"sudo -u root HOME=/x A=b sh -c 'echo $HOME $A'", "/x b\n"},
		{"sudo -Eu user " + who, "HOME user user CALLER\n"},
		{"sudo -u user " + who, "/home/user user user CALLER\n"},
		{"sudo -u '#0' sh -c 'echo $USER'", "USER0\n"},
		{"sudo -i pwd", "/root\n"},
		{"sudo -iu user pwd", "/home/user\n"},
		{"sudo -iu user printf '%s|' 'a  b;c' 'd\ne'", "a  b;c|de|"},
		{"sudo -i echo '$HOME' \"it's\" '*'", "/root it's *\n"},
		{"sudo -s echo '$USER'", "root\n"},
		{"sudo -i -- printf '%s|' x 'y z'", "x|y z|"},
		{"sudo -k && sudo -v && echo ok", "ok\n"},
		{"sudo 2>/dev/null || echo failed", "failed\n"},
		{"sudo -u nobody-here true 2>/dev/null || echo failed", "failed\n"},
		{"sudo ./no=command 2>/dev/null || echo failed", "failed\n"},
	} {
		for _, user := range []string{"root", "user"} {
			caller, first := user, "root"
			if !r.ranged() { // a single id, whose first name is user
				caller, first = "user", "user"
			}
			want := strings.NewReplacer("CALLER", caller, "HOME", "/tmp", "USER0", first).Replace(tt.want)
			if got := call(t, s, "/run", testRequest{Command: "export HOME=/tmp; " + tt.command, User: user}); got.Output != want {
				t.Errorf("%s as %s: got %+v, want %q", tt.command, user, got, want)
			}
		}
	}
}

// TestTemplate checks that files written to the host's directories stay in the sandbox.
func TestTemplate(t *testing.T) {
	t.Parallel()
	tree := filepath.Join(t.TempDir(), "home", "venv")
	must.Do(t, os.MkdirAll(filepath.Join(tree, "bin"), 0o755))
	for path, text := range map[string]string{"bin/tool": "#!/bin/sh\necho tool\n", "../neighbour": "private"} {
		must.Do(t, os.WriteFile(filepath.Join(tree, path), []byte(text), 0o755))
	}
	r := startRoom(t, Options{Trees: []string{tree, "/usr", tree + "/bin"}, Path: tree + "/bin:" + DefaultPath})
	defer r.Close()
	for _, note := range r.Report().Notes {
		if strings.Contains(note, "cannot be changed") {
			t.Skipf("the template is not writable here: %s", note)
		}
	}
	a, b := newSandbox(t, r, engine.SandboxOptions{ID: "a"}), newSandbox(t, r, engine.SandboxOptions{ID: "b"})
	for _, user := range []string{"root", "user"} {
		write := "set -e; echo changed > " + tree + "/bin/tool; touch " + tree + "/new-$$ " + tree + "/bin/new-$$; mkdir " + tree + "/d-$$"
		if got := call(t, a, "/run", testRequest{Command: write, User: user}); got.Status != 0 {
			t.Errorf("%s cannot write to the tree: %+v", user, got)
		}
		local := "set -e; mkdir /usr/local/lib/node_modules/" + user + "; touch /usr/local/bin/" + user + " /usr/local/" + user + " /code/" + user
		if got := call(t, a, "/run", testRequest{Command: local, User: user}); got.Status != 0 {
			t.Errorf("%s cannot install below /usr/local: %+v", user, got)
		}
	}
	if got := sh(t, a, "cat "+tree+"/bin/tool"); got.Output != "changed\n" {
		t.Errorf("got %+v", got)
	}
	if r.ids.ranged {
		if got := sh(t, a, "set -e; touch /usr/lib/new; chown user /usr/lib/new; rm /usr/bin/env; stat -c %U /usr/lib/new"); got.Output != "user\n" {
			t.Errorf("got %+v", got)
		}
	}
	if got := sh(t, b, "ls /usr/lib/new; bash -lc tool 2>&1"); !strings.HasSuffix(got.Output, "\ntool\n") {
		t.Errorf("the other sandbox sees %+v", got)
	}
	if got := sh(t, b, "ls -A "+filepath.Dir(tree)); got.Output != "venv\n" {
		t.Errorf("beside the tree there is %+v", got)
	}
	if data, err := os.ReadFile(filepath.Join(tree, "bin", "tool")); err != nil || !strings.Contains(string(data), "echo tool") {
		t.Errorf("the host's file is now %q, %v", data, err)
	}
}

func TestCheckTree(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "relative", "/proc/self", "/dev", "/etc", "/home", "/home/user", "/no/such/directory", "/etc/passwd"} {
		if err := checkTree(path); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	trees := []string{"/usr/lib", "/opt/a"}
	for path, want := range map[string]bool{
		"/usr/lib": true, "/usr/lib/python3": true, "/opt/a/b/c": true,
		"/usr/lib64": false, "/usr": false, "/opt/ab": false, "/": false, "": false,
	} {
		if got := within(path, trees); got != want {
			t.Errorf("%q within %q: got %v, want %v", path, trees, got, want)
		}
	}
	if within("/usr", nil) {
		t.Error("/usr is within no trees")
	}
}

func TestTwoSandboxes(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	const server = `python3 -c "
import http.server,sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[1].encode())
s=http.server.HTTPServer(('127.0.0.1',3000),H)
print('up',flush=True)
s.serve_forever()" $(hostname) > /tmp/log 2>&1 & until grep -q up /tmp/log; do sleep 0.01; done`
	var all []*Sandbox
	for _, id := range []string{"one", "two"} {
		s := newSandbox(t, r, engine.SandboxOptions{ID: id})
		if _, err := s.Dial(t.Context(), 3000); !errors.Is(err, engine.ErrPortClosed) {
			t.Errorf("%s: dialling a closed port: %v", id, err)
		}
		all = append(all, s)
		if got := sh(t, s, server); got.Status != 0 {
			t.Fatalf("%+v", got)
		}
	}
	for _, s := range all {
		conn, err := s.Dial(t.Context(), 3000)
		must.Do(t, err)
		fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
		data, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || !strings.HasSuffix(string(data), s.options.ID) {
			t.Errorf("%s answered %q, %v", s.options.ID, data, err)
		}
		// Envd's own ports are there on the loopback as well.
		if got := sh(t, s, "bash -c 'exec 5<>/dev/tcp/127.0.0.1/49983; printf \"GET /config HTTP/1.0\\r\\n\\r\\n\" >&5; cat <&5'"); !strings.Contains(got.Output, "200 OK") {
			t.Errorf("envd's port inside: %+v", got)
		}
	}
	if err := all[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := all[0].Dial(t.Context(), 3000); !errors.Is(err, engine.ErrGone) {
		t.Errorf("dialling a closed sandbox: %v", err)
	}
	if err := all[0].Err(); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a closed sandbox ended by %v", err)
	}
	if got := sh(t, all[1], "hostname"); got.Output != "two\n" {
		t.Errorf("the other sandbox: %+v", got)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	o := engine.SandboxOptions{ID: "big"}
	empty, err := o.EncodeConfig()
	must.Do(t, err)
	o.Config.SandboxID = strings.Repeat("x", guest.MaxConfig-len(empty))
	big, err := o.EncodeConfig()
	must.Do(t, err)
	s := newSandbox(t, r, o)
	conn, err := s.Dial(t.Context(), 49983)
	must.Do(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "GET /config HTTP/1.0\r\n\r\n")
	data, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(data), string(big)) {
		t.Errorf("%d bytes of configuration, %v", len(data), err)
	}
	o.Config.SandboxID += "x"
	_, err = r.NewSandbox(t.Context(), o)
	must.Is(t, err, engine.ErrTooLarge)
	for _, id := range []string{"", "a/b", "..", strings.Repeat("x", 64)} {
		if _, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: id}); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
}

type denied struct{ error }

func (denied) Denied() bool { return true }

func TestEgress(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	var asked atomic.Value
	s := newSandbox(t, r, engine.SandboxOptions{Egress: &testEgress{dial: func(_ context.Context, host string, port uint16) (net.Conn, error) {
		asked.Store(fmt.Sprint(host, ":", port))
		if host == "denied.test" {
			return nil, denied{errors.New("denied.test is denied")}
		}
		a, b := net.Pipe()
		go func() {
			buf := make([]byte, 4)
			io.ReadFull(b, buf)
			b.Write([]byte("pong"))
			b.Close()
		}()
		return a, nil
	}}})
	if got := call(t, s, "/egress", testRequest{Host: "allowed.test", Port: 443}); got.Output != "pong" {
		t.Errorf("got %+v", got)
	}
	if asked.Load() != "allowed.test:443" {
		t.Errorf("the server was asked for %v", asked.Load())
	}
	if got := call(t, s, "/egress", testRequest{Host: "denied.test", Port: 80}); !strings.Contains(got.Error, "denied.test is denied") {
		t.Errorf("got %+v", got)
	}
	off := newSandbox(t, r, engine.SandboxOptions{ID: "off"})
	if got := call(t, off, "/egress", testRequest{Host: "allowed.test", Port: 443}); !strings.Contains(got.Error, "internet access is off") {
		t.Errorf("got %+v", got)
	}
}

// TestHijackedEnvd checks that an envd that breaks the protocol is ended, and so is one
// that reports its end and continues.
func TestHijackedEnvd(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	for path, why := range map[string]string{"/break": wire.ErrProtocol.Error(), "/kernel/spoof": wire.ErrProtocol.Error(), "/fail": "no, I did not"} {
		t.Run(path, func(t *testing.T) {
			s := newSandbox(t, r, engine.SandboxOptions{})
			conn, err := s.Dial(t.Context(), 49983)
			must.Do(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path)
			patience.Receive(t, "the end of the sandbox", s.Done())
			if err := s.Err(); !strings.Contains(err.Error(), why) {
				t.Errorf("it ended by %v", err)
			}
		})
	}
}

// TestOpenFiles checks that the limit inside is below the server's, see shareFiles.
func TestOpenFiles(t *testing.T) {
	t.Parallel()
	var server unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &server))
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		s := newSandbox(t, newRoomOn(t, level), engine.SandboxOptions{})
		got := strings.TrimSpace(sh(t, s, "ulimit -Hn").Output)
		if n, err := strconv.ParseUint(got, 10, 64); err != nil || n > server.Max/2 {
			t.Errorf("%s: %s inside, %d outside", level, got, server.Max)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	t.Logf("%+v", r.Report())
	memory := int64(256 << 20)
	if r.keeper.groups.How("memory") == "" {
		memory = 1 << 30 // envd itself is under RLIMIT_DATA, and large with -race
	}
	s := newSandbox(t, r, engine.SandboxOptions{Limits: engine.Limits{MemoryBytes: memory, MaxProcesses: 64, DiskBytes: 32 << 20, CPUs: 0.5}})
	t.Run("disk", func(t *testing.T) {
		got := sh(t, s, "dd if=/dev/zero of=/tmp/big bs=1M count=64; dd if=/dev/zero of=/usr/big bs=1M count=64; rm -f /tmp/big /usr/big")
		if strings.Count(got.Output, "No space left on device") != 2 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("memory of one process", func(t *testing.T) {
		got := sh(t, s, fmt.Sprintf("python3 -c 'x = bytearray(%d); print(len(x))'", 3*memory/2))
		if got.Status == 0 {
			t.Errorf("%d bytes fit into %d: %+v", 3*memory/2, memory, got)
		}
		if r.keeper.groups.How("memory") != "" && s.OOMKills() == 0 {
			t.Error("the kill is not counted")
		}
		if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
			t.Errorf("afterwards: %+v", got)
		}
		if err := s.failure("why"); err.Error() != "envd ended: why" {
			t.Errorf("after the end of a program, the end of envd has the error %v", err)
		}
		inGVisor := &Sandbox{room: &Room{runner: &gvisor{}}, share: allotment{group: s.share.group}}
		if err := inGVisor.failure("why"); errors.Is(err, engine.ErrOutOfMemory) != (s.OOMKills() > 0) {
			t.Errorf("after %d processes of gVisor were killed, its end has the error %v", s.OOMKills(), err)
		}
	})
	t.Run("terminals", func(t *testing.T) {
		got := sh(t, s, `python3 -c 'import os
n = 0
try:
  while n < 10**5: os.openpty(); n += 1
except OSError: print(n)'`)
		if n, err := strconv.Atoi(strings.TrimSpace(got.Output)); err != nil || n > guest.MaxTerminals {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("processes", func(t *testing.T) {
		got := sh(t, s, "for i in $(seq 200); do sleep 1 >/dev/null 2>&1 & done")
		if !strings.Contains(got.Output, "ork") { // "Cannot fork", in the words of any shell
			t.Errorf("200 processes fit into 64: %+v", got)
		}
		// Envd stays alive, and starts processes again as soon as it may.
		patience.Until(t, "a process starts again", func() bool { return sh(t, s, "echo alive").Output == "alive\n" })
	})
}

// TestEnvdOutOfMemory checks that an envd that was killed for lack of memory is
// distinguished from one that ended in any other way.
func TestEnvdOutOfMemory(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	if r.keeper.groups.How("memory") == "" {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatal(r.Report().Memory) // root has groups of its own, or this machine is broken
		}
		t.Skip(r.Report().Memory)
	}
	s := newSandbox(t, r, engine.SandboxOptions{Limits: engine.Limits{MemoryBytes: 64 << 20}})
	conn, err := s.Dial(t.Context(), 49983)
	must.Do(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "GET /eat HTTP/1.0\r\n\r\n")
	if data, err := io.ReadAll(conn); err != nil || len(data) > 0 {
		t.Errorf("it answered %q, %v", data, err)
	}
	patience.Receive(t, "the end of the sandbox", s.Done())
	if err := s.Err(); !errors.Is(err, engine.ErrOutOfMemory) {
		t.Errorf("it ended by %v", err)
	}
	if _, err := s.Dial(t.Context(), 49983); !errors.Is(err, engine.ErrGone) {
		t.Errorf("dialling it: %v", err)
	}
}

func TestCheckDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"open": 0o755, "closed": 0o700} {
		must.Do(t, os.Mkdir(filepath.Join(dir, name), mode))
	}
	must.Do(t, os.Symlink("closed", filepath.Join(dir, "link")))
	for _, path := range []string{"", "/", "relative", dir + "/open", dir + "/link", dir + "/closed/", dir + "/missing"} {
		if err := checkDir(path); err == nil {
			t.Errorf("%q was taken", path)
		}
	}
	if err := checkDir(dir + "/closed"); err != nil {
		t.Error(err)
	}
}

func TestNewSandboxCancelled(t *testing.T) {
	t.Parallel()
	r := newRoomWith(t, Options{Binary: withDetector})
	for d := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(d)*time.Millisecond)
		s, err := r.NewSandbox(ctx, engine.SandboxOptions{ID: "hurried"})
		cancel()
		if err == nil {
			s.Close()
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d ms: %v", d, err)
		}
	}
	if len(r.roster.sandboxes) > 0 || len(r.roster.slots) > 0 {
		t.Errorf("%d sandboxes and %d slots are left", len(r.roster.sandboxes), len(r.roster.slots))
	}
}

// TestInARow checks that a hundred sandboxes, one after the other, leave nothing
// behind.
func TestInARow(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{Warm: &engine.Limits{}})
	for i := range 100 {
		s, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: fmt.Sprintf("n-%d", i)})
		must.Do(t, err)
		must.Do(t, s.Close())
	}
	r.warm.end() // so that none is being made
	r.roster.mu.Lock()
	sandboxes, slots := len(r.roster.sandboxes), len(r.roster.slots)
	r.roster.mu.Unlock()
	if sandboxes > 1 || slots > 1 { // the warm sandbox
		t.Errorf("%d sandboxes and %d slots are left", sandboxes, slots)
	}
	for _, dir := range r.keeper.groups.Directories() {
		if below, err := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs")); err != nil || len(below) > 1 {
			t.Errorf("groups left: %v, %v", below, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{})
	s := newSandbox(t, r, engine.SandboxOptions{})
	sh(t, s, "setsid sleep 1000 >/dev/null 2>&1 & setsid sh -c 'trap \"\" TERM INT; while :; do sleep 1000; done' >/dev/null 2>&1 &")
	l := left{Dir: r.options.Dir, Roots: r.keeper.spec.Roots, Groups: r.keeper.groups.Directories(), Pids: []int{r.keeper.running().Cmd.Process.Pid, r.process.first.Cmd.Process.Pid, envdPID(r)}}
	if l.Pids[2] == 0 {
		t.Fatal("no envd to look for")
	}
	for range 2 {
		must.Do(t, r.Close())
	}
	if what := l.remains(); what != "" {
		t.Errorf("%s is left", what)
	}
	if _, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "late"}); !errors.Is(err, ErrRoomEnded) {
		t.Errorf("a sandbox of a closed room: %v", err)
	}
	select {
	case <-r.Done():
	default:
		t.Error("a closed room is not done")
	}
}

// TestInherited checks that descriptors that the server's caller left open end at the
// server.
func TestInherited(t *testing.T) {
	// Not parallel: programs that other tests start would inherit it too.
	from, to, err := os.Pipe()
	must.Do(t, err)
	defer from.Close()
	// The write end is not marked close-on-exec from here on, as a careless caller
	// leaves it; no process of the room may hold it open.
	if _, err := unix.FcntlInt(to.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	r := newRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{})
	to.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := from.Read(make([]byte, 1))
		ended <- err
	}()
	if err := patience.Receive(t, "the end of the pipe, which nobody may hold", ended); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
	if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
		t.Errorf("%+v", got)
	}
}

func (l left) remains() string {
	for _, pid := range l.Pids {
		if err := unix.Kill(pid, 0); err == nil || errors.Is(err, unix.EPERM) {
			return fmt.Sprintf("process %d", pid)
		}
	}
	for _, path := range append(l.Groups, l.Dir, l.Roots) {
		if path != "" && exists(path) {
			return path
		}
	}
	return ""
}

// TestServerKilled checks that nothing outlives the server, even without its help, nor
// the server and the keeper, once another server starts.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted, engine.None} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/keeper killed %v", level, both), func(t *testing.T) {
				t.Parallel()
				checkLevel(t, level)
				killServer(t, level, both, "")
			})
		}
	}
}

func killServer(t *testing.T, level engine.Isolation, both bool, freeze string) {
	parent := t.TempDir()
	dir := mkdir(t, filepath.Join(parent, "instance"))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "ROOM_TEST_SERVER="+dir, "ROOM_TEST_LEVEL="+string(level), "ROOM_TEST_FREEZE="+freeze)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	var l left
	must.Do(t, json.NewDecoder(out).Decode(&l))
	if len(l.Pids) < 3 {
		t.Fatalf("the server says %+v", l)
	}
	if both {
		unix.Kill(l.Pids[0], unix.SIGSTOP) // if the keeper was killed alone, the server could start another one
	}
	cmd.Process.Kill()
	cmd.Wait()
	if both {
		unix.Kill(l.Pids[0], unix.SIGKILL)
		processes := left{Pids: l.Pids}
		patience.Until(t, "the processes are gone", func() bool { return processes.remains() == "" })
		if l.remains() == "" {
			t.Fatal("there is nothing to reap")
		}
		r, err := Start(t.Context(), Options{Dir: mkdir(t, filepath.Join(parent, "next")), Isolation: level})
		must.Do(t, err)
		defer r.Close()
	}
	patience.Until(t, fmt.Sprintf("nothing is left of %+v", l), func() bool { return l.remains() == "" })
}

func mkdir(t testing.TB, dir string) string {
	t.Helper()
	must.Do(t, os.Mkdir(dir, 0o700))
	return dir
}

// TestForeignBinary checks that the error names a program that does not say hello.
func TestForeignBinary(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Dir: instanceDir(t), Binary: "/bin/cat", Isolation: engine.Full})
	if err == nil || !strings.Contains(err.Error(), "WithBinary") {
		t.Errorf("starting cat as envd: %v", err)
	}
}

// BenchmarkNewSandbox measures the time to the first connection. With a warm sandbox it
// does not request sandboxes faster than warm ones are made.
func BenchmarkNewSandbox(b *testing.B) {
	b.Run("cold", func(b *testing.B) { benchmarkNewSandbox(b, nil) })
	b.Run("warm", func(b *testing.B) { benchmarkNewSandbox(b, &engine.Limits{}) })
}

func benchmarkNewSandbox(b *testing.B, warm *engine.Limits) {
	r := startRoom(b, Options{Warm: warm})
	defer r.Close()
	for b.Loop() {
		b.StopTimer()
		if warm != nil {
			readyWarm(b, r)
		}
		b.StartTimer()
		s, err := r.NewSandbox(b.Context(), engine.SandboxOptions{ID: "bench"})
		must.Do(b, err)
		conn, err := s.Dial(b.Context(), 49983)
		must.Do(b, err)
		conn.Close()
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}
