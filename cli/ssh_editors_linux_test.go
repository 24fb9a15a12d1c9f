package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/net/proxy"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestSSHEditors uses OpenSSH in the ways of VS Code and of JetBrains Gateway.
func TestSSHEditors(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	u := newSSHUser(t, cloud, sb)
	t.Run("a script", func(t *testing.T) {
		u.wants("7 one two\n", 4, "X=7\necho $X $1 \"$2\"\nexit 4\n", "ssh", "-T", "-o", "RemoteCommand=none", u.host, "bash", "-s", "one", "two")
	})
	t.Run("keepalive", func(t *testing.T) {
		u.wants("alive\n", 0, "", "ssh", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1", u.host, "sleep 2.5; echo alive")
	})
	t.Run("sessions of one connection", func(t *testing.T) { u.shares(t) })
	t.Run("a proxy", func(t *testing.T) { u.proxies(t, sb) })
	t.Run("files", func(t *testing.T) { u.replacesFiles() })
	t.Run("rsync", func(t *testing.T) { u.synchronizes(t) })
}

// shares runs several sessions over the connection of a first ssh.
func (u *sshUser) shares(t *testing.T) {
	control := "ControlPath=" + u.path("c")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	master := u.command(ctx, "ssh", "-M", "-N", "-o", control, u.host)
	must.Do(t, master.Start())
	patience.Until(t, "the first connection", func() bool {
		_, status := u.runs("", "ssh", "-o", control, "-O", "check", u.host)
		return status == 0
	})
	const sessions = 4
	said := make(chan string, sessions)
	for n := range sessions {
		go func() {
			out, err := u.command(ctx, "ssh", "-o", control, "-o", "ProxyCommand=false", u.host, "echo", fmt.Sprint(n)).Output()
			said <- fmt.Sprintf("%s%v", out, err)
		}()
	}
	got := map[string]bool{}
	for range sessions {
		got[patience.Receive(t, "the output of a session", said)] = true
	}
	for n := range sessions {
		if !got[fmt.Sprintf("%d\n<nil>", n)] {
			t.Errorf("the sessions said %v, want the number %d", got, n)
		}
	}
	if out, status := u.runs("put config shared\nls -1\n", "sftp", "-q", "-o", control, "-o", "ProxyCommand=false", "-b", "-", u.host); status != 0 || !strings.Contains(out, "\nshared\n") {
		t.Errorf("sftp over the first connection: status %d, %s", status, out)
	}
	if out, status := u.runs("", "ssh", "-o", control, "-O", "exit", u.host); status != 0 {
		t.Errorf("end the first connection: status %d, %s", status, out)
	}
	var exited *exec.ExitError
	if err := master.Wait(); err != nil && !errors.As(err, &exited) { // its status depends on the version of OpenSSH
		t.Error(err)
	}
}

// proxies reaches ports of the sandbox through ssh -D.
func (u *sshUser) proxies(t *testing.T, sb *sandbox.Sandbox) {
	server, err := sb.Commands.Start(t.Context(), "mkdir w && cd w && echo here >f && exec python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1", nil)
	must.Do(t, err)
	defer server.Disconnect()
	must.Do(t, sb.WaitPort(t.Context(), 8000))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	at := l.Addr().String()
	must.Do(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := u.command(ctx, "ssh", "-D", at, "-o", "ExitOnForwardFailure=yes", "-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo ready", u.host, "cat")
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	ready, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	_, err = bufio.NewReader(ready).ReadString('\n')
	must.Do(t, err)
	through, err := proxy.SOCKS5("tcp", at, nil, &net.Dialer{})
	must.Do(t, err)
	conn, err := through.Dial("tcp", "localhost:8000")
	must.Do(t, err)
	_, err = io.WriteString(conn, "GET /f HTTP/1.0\r\n\r\n")
	must.Do(t, err)
	if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "\r\n\r\nhere\n") {
		t.Errorf("the port answered %q (%v)", got, err)
	}
	must.Do(t, conn.Close())
	if conn, err := through.Dial("tcp", "192.0.2.1:80"); err == nil {
		_ = conn.Close()
		t.Error("another machine was reached through the sandbox")
	}
	must.Do(t, stdin.Close())
	must.Do(t, cmd.Wait())
}

// replacesFiles uses what OpenSSH adds to sftp: a rename that replaces, hard links, and the space of a
// file system. Without the extension fsync, put -f works as put.
func (u *sshUser) replacesFiles() {
	must.Do(u.t, os.WriteFile(u.path("new"), []byte("new\n"), 0o600))
	out, status := u.runs("put -f new first\nput new second\nrename first second\nln second third\ndf\n", "sftp", "-q", "-b", "-", u.host)
	if status != 0 || !strings.Contains(out, "%Capacity") {
		u.t.Errorf("status %d, %s", status, out)
	}
	u.wants("new\nnew\n", 0, "", "ssh", u.host, "cat second third && test ! -e first && test second -ef third")
}

// synchronizes uses rsync, which both machines need.
func (u *sshUser) synchronizes(t *testing.T) {
	if _, err := exec.LookPath("rsync"); err != nil {
		pinned.Skip(t, "rsync is not on this machine")
	}
	if _, status := u.runs("", "ssh", u.host, "command -v rsync"); status != 0 {
		pinned.Skip(t, "rsync is not in the sandbox")
	}
	must.Do(t, os.MkdirAll(u.path("from/a"), 0o700))
	must.Do(t, os.WriteFile(u.path("from/a/f"), []byte(strings.Repeat("line\n", 1<<16)), 0o640))
	must.Do(t, os.WriteFile(u.path("from/old"), nil, 0o600))
	rsync := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "rsync", append([]string{"-a", "--delete", "-e", "ssh -F '" + u.path("config") + "'"}, args...)...)
		cmd.Env, cmd.Dir = u.env, u.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("rsync %q: %v, %s", args, err, out)
		}
	}
	rsync("from/", u.host+":to/")
	must.Do(t, os.Remove(u.path("from/old")))
	rsync("from/", u.host+":to/")
	u.wants("640 to/a/f\nto/a\n", 0, "", "ssh", u.host, "stat -c '%a %n' to/a/f; ls -d to/*")
	rsync(u.host+":to/", "back/")
	if got, err := os.ReadFile(u.path("back/a/f")); err != nil || len(got) != 5<<16 {
		t.Errorf("%d bytes came back (%v)", len(got), err)
	}
}
