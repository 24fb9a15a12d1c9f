//go:build linux

package inside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// startedContainer is a process of this program that is the first one of a container.
type startedContainer struct {
	cmd    *exec.Cmd
	in     io.WriteCloser // its standard input
	out    io.ReadCloser  // its standard output
	stderr bytes.Buffer   // complete when it has ended
	ended  chan error
	etc    string // its /etc
}

func (c *startedContainer) Read(p []byte) (int, error)  { return c.out.Read(p) }
func (c *startedContainer) Write(p []byte) (int, error) { return c.in.Write(p) }
func (c *startedContainer) Close() error                { return errors.Join(c.in.Close(), c.out.Close()) }

// attached is one of several servers that have the standard input and output one after the other.
type attached struct {
	io.Reader
	io.Writer
}

func (attached) Close() error { return nil }

// attach returns a function that returns the connection of the next server. What the container writes from
// then on is for that one.
func (c *startedContainer) attach() func() io.ReadWriteCloser {
	var mu sync.Mutex
	var newest *io.PipeWriter
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := c.out.Read(buffer)
			mu.Lock()
			to := newest
			mu.Unlock()
			if err != nil {
				_ = to.CloseWithError(err)
				return
			}
			_, _ = to.Write(buffer[:n]) // its server may be gone
		}
	}()
	return func() io.ReadWriteCloser {
		from, to := io.Pipe()
		mu.Lock()
		defer mu.Unlock()
		newest = to
		return attached{from, c.in}
	}
}

// newEtc makes the /etc of a container.
func newEtc(t *testing.T) string {
	t.Helper()
	etc := t.TempDir()
	must.Do(t, errors.Join(os.Chmod(etc, 0o755), os.MkdirAll(etc+"/removed/a", 0o755)))
	must.Do(t, os.WriteFile(etc+"/passwd", []byte("root:x:0:0::/root:/bin/sh\nshort:x\napp:x:1234:1234::/srv/app:/bin/sh\n"), 0o644))
	return etc
}

// startContainer starts this program as user in a root and a network of its own.
func startContainer(t *testing.T, user uint32, env []string, args ...string) *startedContainer {
	t.Helper()
	return startContainerWith(t, newEtc(t), user, env, args...)
}

func startContainerWith(t *testing.T, etc string, user uint32, env []string, args ...string) *startedContainer {
	t.Helper()
	c := &startedContainer{ended: make(chan error, 1), etc: etc}
	root := t.TempDir()
	started := false
	apart(t, func() error {
		err := enterOwnRoot(root)
		if err == nil {
			err = errors.Join(unix.Mount(c.etc, "/etc", "", unix.MS_BIND, ""), loopbackUp())
		}
		for _, dir := range []string{"/home", "/root", "/run", "/srv", "/tmp"} {
			if err == nil {
				err = errors.Join(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"))
			}
		}
		if err == nil {
			err = errors.Join(os.MkdirAll("/srv/app", 0o755), os.Chown("/srv/app", 1234, 1234), os.Chmod("/tmp", 0o777|os.ModeSticky))
		}
		if err != nil {
			return err
		}
		c.cmd = exec.CommandContext(context.Background(), "/proc/self/exe")
		c.cmd.Args, c.cmd.Env, c.cmd.Dir, c.cmd.Stderr = args, env, "/srv/app", &c.stderr
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWUTS, Credential: &syscall.Credential{Uid: user, Gid: user}}
		in, failed := c.cmd.StdinPipe()
		out, err := c.cmd.StdoutPipe()
		if err = errors.Join(failed, err); err == nil {
			err = c.cmd.Start()
		}
		c.in, c.out, started = in, out, err == nil
		return err
	})
	if !started {
		t.FailNow()
	}
	go func() { c.ended <- c.cmd.Wait() }()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.ended
	})
	return c
}

// end waits for the end of the program, and returns its last words.
func (c *startedContainer) end(t *testing.T) string {
	t.Helper()
	err := patience.Receive(t, "the end of the container", c.ended)
	c.ended <- err
	return fmt.Sprint(err, " ", c.stderr.String())
}

// outside is the egress of a container.
type outside struct{ err error }

func (o outside) Dial(_ context.Context, host string, port uint16) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = fmt.Fprintf(theirs, "%s %d ", host, port)
		_ = theirs.Close()
	}()
	return ours, o.err
}
func (outside) Connect(context.Context, *net.TCPConn) (net.Conn, error) { return nil, net.ErrClosed }
func (outside) Answer(context.Context, []byte) []byte                   { return nil }
func (outside) Closed() bool                                            { return false }

// refusal is an error of a policy.
type refusal struct{}

func (refusal) Error() string { return "not there" }
func (refusal) Denied() bool  { return true }

// reach asks the envd of a container.
func reach(t *testing.T, server *tunnel.Server, order string) string {
	t.Helper()
	conn, err := server.Dial(patience.Context(t), protocol.PortEnvd)
	must.Do(t, err)
	defer conn.Close()
	return answered(t, conn, order)
}

// TestContainer checks what envd has in a container of an image, and that each server that takes over from
// another one reaches it.
func TestContainer(t *testing.T) {
	t.Parallel()
	for _, user := range []uint32{0, 1234} {
		c := startContainer(t, user, []string{"OWN=1", "HOME=/h"}, guest.Program, guest.ProgramArgument)
		lines := make(chan string, 16)
		o := tunnel.Options{
			Hello:  tunnel.Hello{ID: "own", Config: json.RawMessage(`{"user":"asked"}`), Removed: []string{"/etc/removed"}},
			Egress: outside{}, Tell: func(line []byte) { lines <- string(line) },
		}
		if user != 0 {
			o.Hello.Removed = nil
		}
		server, err := tunnel.Open(patience.Context(t), c, o)
		must.Do(t, err)
		got := factsFrom(t, reach(t, server, ""))
		var config guest.Config
		must.Do(t, json.Unmarshal(got.Config, &config))
		home, run, last := guest.UserHome, runDirectory, "user"
		if user != 0 {
			home, run, last = "/srv/app", "/tmp/.e2b", "asked"
		}
		want := []any{true, "1", "/srv/app", "user", home, user, user, user == 0, "/", "/tmp", run, true, true, false, true, last}
		second, end := got.Users[1], got.Users[len(got.Users)-1]
		has := []any{
			config.Contained, config.Envs["OWN"], config.Workdir, second.Name, second.Home, second.UID, second.GID, got.AnyUser, got.Root, got.Temp, got.Run,
			got.Loopback, got.Egress, got.Dumpable, got.Threads, end.Name,
		}
		if diff := cmp.Diff(want, has); diff != "" {
			t.Errorf("the user %d has %+v and the configuration %+v (-want +got):\n%s", user, got, config, diff)
		}
		if exists(c.etc+"/removed") != (user != 0) {
			t.Errorf("the user %d: the file that was removed is there: %v", user, user == 0)
		}
		for order, want := range map[string]string{"leave": "a.test 80 <nil> false", "kernel": "room: fork a kernel: a container has no such process"} {
			if got := reach(t, server, order); got != want {
				t.Errorf("%s: got %q, want %q", order, got, want)
			}
		}
		if _, err := server.Dial(patience.Context(t), 3000); err == nil {
			t.Error("a port on which nobody listens is open")
		}
		reach(t, server, `log "own"`)
		for _, want := range []string{`"began"`, `"own"`} {
			if line := patience.Receive(t, "a line", lines); line != want {
				t.Errorf("got the line %s, want %s", line, want)
			}
		}
		server.Close()
		if text := c.end(t); !strings.HasPrefix(text, "exit status 1 ") {
			t.Errorf("without a server it ended with %s", text)
		}
	}
}

// TestContainerOfARoom checks what envd has if a room has built its root, and becomes with the next server.
func TestContainerOfARoom(t *testing.T) {
	t.Parallel()
	c := startContainer(t, 0, nil, guest.MountedProgram, guest.ProgramArgument)
	o := tunnel.Options{
		Hello:  tunnel.Hello{ID: "own", Config: json.RawMessage(`{"own":1}`), Room: &tunnel.Room{Hostname: "own", Names: map[string]netip.Addr{"a.test": netip.MustParseAddr("10.0.0.1")}}},
		Egress: outside{refusal{}}, Kills: func() int { return 3 },
	}
	attach := c.attach()
	server, err := tunnel.Open(patience.Context(t), attach(), o)
	must.Do(t, err)
	got := factsFrom(t, reach(t, server, ""))
	want := []any{users(false), `{"own":1}`, runDirectory, 3, false, "", true}
	if diff := cmp.Diff(want, []any{got.Users, string(got.Config), got.Run, got.Kills, got.AnyUser, got.Became, strings.HasSuffix(got.Hosts, "10.0.0.1\ta.test\n")}); diff != "" {
		t.Errorf("got %+v (-want +got):\n%s", got, diff)
	}
	if got := reach(t, server, "leave"); got != "room: connect to a.test:80: not there true" {
		t.Errorf("it leaves with %s", got)
	}
	o.Restored, o.Hello.Config, o.Hello.Room, o.Kills = true, json.RawMessage(`"next"`), &tunnel.Room{Hostname: "next"}, func() int { return 4 }
	next, err := tunnel.Open(patience.Context(t), attach(), o)
	must.Do(t, err)
	got = factsFrom(t, reach(t, next, ""))
	if got.Became != `"next"` || got.Kills != 4 || !strings.Contains(got.Hosts, "\tnext\n") {
		t.Errorf("after another server came: got %+v", got)
	}
	o.Hello.Config = json.RawMessage(`"refused"`)
	if _, err := tunnel.Open(patience.Context(t), attach(), o); err == nil || !strings.Contains(err.Error(), "go on with another server: it does not become that") {
		t.Errorf("it becomes what it refuses: %v", err)
	}
	c.end(t)
}

// TestContainerFails checks that the server of a container learns why it cannot be used.
func TestContainerFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		hello tunnel.Hello
		want  string
	}{
		"a file that stays": {tunnel.Hello{Config: json.RawMessage("{}"), Removed: []string{"/proc/version"}}, "remove what the saved sandbox had removed"},
		"a configuration":   {tunnel.Hello{Config: json.RawMessage("[]")}, "configuration of the sandbox"},
		"a name of a room":  {tunnel.Hello{Config: json.RawMessage("{}"), Room: &tunnel.Room{Hostname: "own"}}, "/etc/hosts"},
	} {
		user := uint32(0)
		if name == "a name of a room" {
			user = 1234
		}
		c := startContainer(t, user, nil, guest.Program, guest.ProgramArgument)
		if _, err := tunnel.Open(patience.Context(t), c, tunnel.Options{Hello: tt.hello}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %s", name, err, tt.want)
		}
		if text := c.end(t); !strings.HasPrefix(text, "exit status 1 ") || !strings.Contains(text, tt.want) {
			t.Errorf("%s: it ended with %s", name, text)
		}
	}
	c := startContainer(t, 0, nil, guest.Program, guest.ProgramArgument)
	must.Do(t, c.Close())
	if text := c.end(t); !strings.Contains(text, "talk to the server: ") {
		t.Errorf("without a server it ended with %s", text)
	}
}
