package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// sshUser is a user with OpenSSH and a configuration for all sandboxes of a cloud.
type sshUser struct {
	t    *testing.T
	dir  string
	env  []string
	host string
}

func newSSHUser(t *testing.T, cloud *sandboxtest.Cloud, sb *sandbox.Sandbox) *sshUser {
	t.Helper()
	for _, program := range []string{"ssh", "scp", "sftp"} {
		if _, err := exec.LookPath(program); err != nil {
			pinned.Skip(t, "%s is not on this machine", program)
		}
	}
	u := &sshUser{t: t, dir: t.TempDir(), host: "e2b-" + sb.ID()}
	u.env = append(append(os.Environ(), cloud.Env()...), "HOME="+u.dir, "XDG_STATE_HOME="+filepath.Join(u.dir, "s %d"), "XDG_RUNTIME_DIR="+u.dir, "E2BCTL_LOCAL=", "LANG=xx_XX.UTF-8")
	out, status := u.runs("", "e2bctl", "ssh-config")
	if status != 0 {
		t.Fatalf("ssh-config: status %d, %s", status, out)
	}
	must.Do(t, os.WriteFile(u.path("config"), []byte(out+"  SendEnv LANG WORD\n"), 0o600))
	return u
}

func (u *sshUser) path(name string) string { return filepath.Join(u.dir, name) }

// command returns a program of OpenSSH with the configuration.
func (u *sshUser) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	if name != "e2bctl" {
		cmd.Args = append([]string{name, "-F", u.path("config")}, args...)
	}
	cmd.Env, cmd.Dir = u.env, u.dir
	return cmd
}

// runs runs a program, and returns its output, with the error output behind it.
func (u *sshUser) runs(stdin, name string, args ...string) (out string, status int) {
	u.t.Helper()
	cmd := u.command(u.t.Context(), name, args...)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		status = shellStatus(u.t, err)
	}
	return stdout.String() + stderr.String(), status
}

// wants runs a program of OpenSSH and compares its output and status.
func (u *sshUser) wants(output string, status int, stdin, name string, args ...string) {
	u.t.Helper()
	if out, got := u.runs(stdin, name, args...); out != output || got != status {
		u.t.Errorf("%s %q: status %d and %q, want %d and %q", name, args, got, out, status, output)
	}
}

// TestSSH uses a sandbox with the programs of OpenSSH.
func TestSSH(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	u := newSSHUser(t, cloud, sb)
	t.Run("commands", func(t *testing.T) {
		u.wants("hi\noh\n", 3, "", "ssh", u.host, "echo hi; echo oh >&2; exit 3")
		u.wants("root\nin", 0, "in", "ssh", "root@"+u.host, "id -un; cat")
		u.wants("7\nbash\n", 0, "X=7\necho $X\necho $0\n", "ssh", "-T", u.host)
		u.env = append(u.env, "WORD=kept")
		u.wants("kept C.UTF-8\n", 0, "", "ssh", u.host, "echo $WORD $LANG")
		if out, status := u.runs("", "ssh", "no-one@"+u.host, "true"); status != 255 || !strings.Contains(out, "no-one") {
			t.Errorf("an unknown user: status %d, %s", status, out)
		}
		if out, status := u.runs("", "ssh", "e2b-nosuch", "true"); status != 255 || !strings.Contains(out, "is gone") {
			t.Errorf("an unknown sandbox: status %d, %s", status, out)
		}
	})
	t.Run("a terminal", func(t *testing.T) {
		p := usesInTerminal(t, u.dir, append(u.env, "TERM=xterm"), "ssh", "-F", u.path("config"), "-t", u.host)
		p.types("tty; stty size; echo $TERM\r")
		p.sees("31 91\r\nxterm\r\n")
		p.resize(101, 41)
		p.types(`until [ "$(stty size)" = "41 101" ]; do :; done; echo re''sized` + "\r")
		p.sees("resized\r\n")
		p.types("echo sle''eping; cat\r")
		p.sees("sleeping\r\n")
		p.types("\x03")
		p.endsWith("~ $ ")
		p.types("exit 5\r")
		p.ends(5)
	})
	t.Run("files", func(t *testing.T) { u.copiesFiles(t, sb) })
	t.Run("sockets", func(t *testing.T) { u.usesSockets(t, sb) })
	t.Run("ports", func(t *testing.T) { u.forwards(t, sb) })
}

// copiesFiles uses scp and sftp.
func (u *sshUser) copiesFiles(t *testing.T, sb *sandbox.Sandbox) {
	big := strings.Repeat("0123456789abcde\n", 1<<17) // more requests than are answered at once
	must.Do(t, os.WriteFile(u.path("big"), []byte(big), 0o600))
	must.Do(t, os.WriteFile(u.path("run.sh"), []byte("#!/bin/sh\necho ran\n"), 0o700))
	must.Do(t, os.WriteFile(u.path("empty"), nil, 0o600))
	u.wants("", 0, "", "scp", "-q", u.path("big"), u.path("run.sh"), u.path("empty"), u.host+":")
	u.wants("ran\n0\n", 0, "", "ssh", u.host, "./run.sh; wc -c <empty")
	u.wants("", 0, "", "scp", "-q", u.host+":big", u.path("back"))
	if back, err := os.ReadFile(u.path("back")); err != nil || string(back) != big {
		t.Errorf("%d bytes came back (%v), want %d", len(back), err, len(big))
	}
	must.Do(t, os.MkdirAll(u.path("tree/a"), 0o700))
	must.Do(t, os.WriteFile(u.path("tree/a/f"), []byte("x"), 0o600))
	u.wants("", 0, "", "scp", "-q", "-p", "-r", u.path("tree"), u.host+":")
	u.wants("600 tree/a/f\n", 0, "", "ssh", u.host, "stat -c '%a %n' tree/a/f")

	// What the service has no call for. A minus before a command lets the next one run after a failure.
	half, rest := big[:1<<20], u.path("rest")
	must.Do(t, os.WriteFile(rest, []byte(half), 0o600))
	must.Do(t, sb.Files.Write(t.Context(), "half", []byte(half), nil))
	out, status := u.runs(`mkdir d
cd d
put run.sh old
put run.sh other
rename old new
symlink new link
chmod 640 new
ln new hard
-mkdir /home/user/d
-rmdir /home/user/d
-rm /home/user/d
-get nosuch
-chmod 600 nosuch
get link got
reget /home/user/big rest
reput /home/user/no/such half
`, "sftp", "-q", "-b", "-", u.host)
	if status == 0 {
		t.Errorf("a put of a missing file: status 0, %s", out)
	}
	out, status = u.runs("cd d\nreget /home/user/big rest\nreput big /home/user/half\nls -l\nrm new\nrm nosuch\n", "sftp", "-q", "-b", "-", u.host)
	for _, want := range []string{"-rw-r-----", "lrwxrwxrwx", " link", "No such file"} {
		if !strings.Contains(out, want) {
			t.Errorf("sftp prints %s, want %q in it", out, want)
		}
	}
	if status == 0 {
		t.Errorf("rm of a missing file: status 0, %s", out)
	}
	if whole, err := os.ReadFile(rest); err != nil || string(whole) != big {
		t.Errorf("reget: %d bytes (%v), want %d", len(whole), err, len(big))
	}
	if got, err := os.ReadFile(u.path("got")); err != nil || !strings.Contains(string(got), "ran") {
		t.Errorf("through a link: %q (%v)", got, err)
	}
	u.wants("same\nhard\nlink\nother\n", 0, "", "ssh", u.host, "cmp half big && echo same; ls d")
}

// usesSockets uses a socket of the sandbox through ssh, as user, and not one of root.
func (u *sshUser) usesSockets(t *testing.T, sb *sandbox.Sandbox) {
	const server = `umask 077; exec python3 -c '
import socket, sys
server = socket.create_server(sys.argv[1], family=socket.AF_UNIX)
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    peer.sendall(peer.makefile("rb").read().upper())
    peer.close()
' `
	for user, name := range map[string]string{"user": "/tmp/up.sock", "root": "/tmp/root.sock"} {
		ready, w := io.Pipe()
		started, err := sb.Commands.Start(t.Context(), server+name, &sandbox.CommandParams{User: user, Stdout: w})
		must.Do(t, err)
		defer started.Disconnect()
		_, err = io.ReadFull(ready, make([]byte, len("ready\n")))
		must.Do(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := u.command(ctx, "ssh", "-N", u.host)
	wants := map[string]string{"/tmp/up.sock": "FAR", "/tmp/root.sock": "Permission denied", "/tmp/none": "No such file", "/etc/passwd": "it is not a socket"}
	for name := range wants {
		cmd.Args = append(cmd.Args, "-L", u.path(path.Base(name))+":"+name)
	}
	var said, answers strings.Builder
	cmd.Stderr = &said
	must.Do(t, cmd.Start())
	for name := range wants {
		var near net.Conn
		patience.Until(t, "ssh listens", func() (ok bool) {
			var err error
			near, err = (&net.Dialer{}).DialContext(ctx, "unix", u.path(path.Base(name)))
			return err == nil
		})
		_, _ = near.Write([]byte("far"))
		_ = near.(*net.UnixConn).CloseWrite()
		answer, _ := io.ReadAll(near) // no answer is an error in the words of ssh
		answers.Write(answer)
		must.Do(t, near.Close())
	}
	cancel()
	_ = cmd.Wait()
	for name, want := range wants {
		if all := answers.String() + said.String(); !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %q in it", name, all, want)
		}
	}
	// The other way round is refused.
	if out, status := u.runs("", "ssh", "-o", "ExitOnForwardFailure=yes", "-R", "/tmp/back.sock:"+u.path("near"), u.host, "true"); status != 255 || !strings.Contains(out, "remote port forwarding failed") {
		t.Errorf("a socket of this machine in the sandbox: status %d, %s", status, out)
	}
}

// forwards uses ports of the sandbox through ssh.
func (u *sshUser) forwards(t *testing.T, sb *sandbox.Sandbox) {
	server, err := sb.Commands.Start(t.Context(), "cd /etc && exec python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1", nil)
	must.Do(t, err)
	defer server.Disconnect()
	must.Do(t, sb.WaitPort(t.Context(), 8000))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	socket := u.path("port")
	cmd := u.command(ctx, "ssh", "-L", socket+":localhost:8000", "-L", socket+".other:192.0.2.1:80", "-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo ready", u.host, "cat")
	_, err = cmd.StdinPipe() // the command does not end by itself
	must.Do(t, err)
	ready, err := cmd.StdoutPipe()
	must.Do(t, err)
	var errs strings.Builder
	cmd.Stderr = &errs
	must.Do(t, cmd.Start())
	_, err = io.ReadFull(ready, make([]byte, len("ready\n")))
	must.Do(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket+strings.TrimSuffix(strings.TrimPrefix(address, "port"), ":80"))
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://port/hostname", nil)
	must.Do(t, err)
	response, err := client.Do(request)
	must.Do(t, err)
	body, err := io.ReadAll(response.Body)
	must.Do(t, err)
	must.Do(t, response.Body.Close())
	name, err := sb.Files.ReadText(t.Context(), "/etc/hostname", nil)
	if err != nil || string(body) != name {
		t.Errorf("the port answered %q, want %q (%v)", body, name, err)
	}
	request.URL.Host = "port.other"
	if response, err := client.Do(request); err == nil {
		response.Body.Close()
		t.Error("another machine was reached through the sandbox")
	}

	// The end of the sandbox is the end of ssh.
	must.Do(t, sb.Kill(t.Context()))
	var exited *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exited) || !strings.Contains(errs.String(), "forwards ports of the sandbox only") || !strings.Contains(errs.String(), sb.ID()+" is gone") {
		t.Errorf("ssh ended with %v, and %q", err, &errs)
	}
}
