package sshserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a client that is connected to a server, and the end of that server.
type served struct {
	*ssh.Client
	near net.Conn
	end  context.CancelFunc
	done chan error // receives the result of Serve
}

// connect connects a client with the right key.
func connect(t *testing.T, sb *sandbox.Sandbox, user string, change func(*Config)) *served {
	t.Helper()
	dir := t.TempDir()
	keys, err := OpenKeys(dir)
	must.Do(t, err)
	signer, err := readKey(keys.ClientFile)
	must.Do(t, err)
	config := Config{Sandbox: sb, Keys: keys, Message: func(err error) string { return err.Error() }}
	if change != nil {
		change(&config)
	}
	s := serve(t, config)
	conn, channels, requests, err := ssh.NewClientConn(s.near, "sandbox", &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(keys.Host.PublicKey()),
	})
	must.Do(t, err)
	s.Client = ssh.NewClient(conn, channels, requests)
	return s
}

// serve starts a server whose client is the caller, at near. At the end of the test the server must
// have ended.
func serve(t *testing.T, config Config) *served {
	t.Helper()
	// Both sides begin by writing, so it needs a buffer.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	near, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	must.Do(t, err)
	must.Do(t, near.SetDeadline(patience.Deadline())) // a client that waits in vain fails
	far, err := listener.Accept()
	must.Do(t, err)
	must.Do(t, listener.Close())
	ctx, end := context.WithCancel(t.Context())
	s := &served{near: near, end: end, done: make(chan error, 1)}
	go func() { s.done <- Serve(ctx, far, far, config) }()
	t.Cleanup(func() {
		_ = near.Close()
		_ = patience.Receive(t, "the end of the server", s.done)
		end()
	})
	return s
}

// session opens a session with the streams of the result.
func (s *served) session(t *testing.T) (session *ssh.Session, stdout, stderr *bytes.Buffer) {
	t.Helper()
	session, err := s.NewSession()
	must.Do(t, err)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	session.Stdout, session.Stderr = stdout, stderr
	return session, stdout, stderr
}

func TestServer(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	t.Run("requests of a session", func(t *testing.T) { testSession(t, sb) })
	t.Run("signals", func(t *testing.T) { testSignals(t, sb) })
	t.Run("terminals and shells", func(t *testing.T) { testTerminals(t, sb) })
	t.Run("refused", func(t *testing.T) { testRefused(t, sb) })
	t.Run("reasons", func(t *testing.T) { testReasons(t, sb) })
	t.Run("many channels", func(t *testing.T) { testManyChannels(t, sb) })
	t.Run("a port", func(t *testing.T) { testPort(t, sb) })
	t.Run("sockets", func(t *testing.T) { testSockets(t, sb) })
	t.Run("files", func(t *testing.T) { testFiles(t, sb) })
	t.Run("the client goes", func(t *testing.T) { testClientGoes(t, sb) })
	t.Run("the sandbox goes", func(t *testing.T) { testSandboxGoes(t, sb) })
}

func testSession(t *testing.T, sb *sandbox.Sandbox) {
	s := connect(t, sb, "user", nil)
	session, stdout, stderr := s.session(t)
	must.Do(t, session.Setenv("WORD", "two words"))
	for _, refused := range []struct{ name, value string }{
		{"LANG", "de_DE.UTF-8"}, {"LC_ALL", "C"}, {"a b", "x"}, {"1A", "x"}, {"", "x"}, {"NUL", "a\x00b"}, {"BIG", strings.Repeat("x", maxEnvBytes)},
	} {
		if err := session.Setenv(refused.name, refused.value); err == nil {
			t.Errorf("%s was accepted", refused.name)
		}
	}
	for i := range maxEnvs - 1 {
		must.Do(t, session.Setenv(fmt.Sprint("N", i), "x"))
	}
	if err := session.Setenv("ONE_MORE", "x"); err == nil {
		t.Errorf("more than %d variables were accepted", maxEnvs)
	}
	session.Stdin = strings.NewReader("in")
	err := session.Run(`cat; echo " $WORD $N126$ONE_MORE"; echo oh >&2; exit 300`)
	exited, ok := errors.AsType[*ssh.ExitError](err)
	if !ok || exited.ExitStatus() != 300&0xff || stdout.String() != "in two words x\n" || stderr.String() != "oh\n" {
		t.Errorf("%v, %q and %q", err, stdout, stderr)
	}
	// A client that does not read its output holds only its own command up.
	slow, err := s.NewSession()
	must.Do(t, err)
	_, err = slow.StdoutPipe()
	must.Do(t, err)
	must.Do(t, slow.Start("yes"))
	session, stdout, _ = s.session(t)
	must.Do(t, session.Run("echo other"))
	if stdout.String() != "other\n" {
		t.Errorf("another session printed %q", stdout)
	}
	must.Do(t, slow.Close())
}

func testSignals(t *testing.T, sb *sandbox.Sandbox) {
	s := connect(t, sb, "user", nil)
	for _, name := range []ssh.Signal{ssh.SIGINT, ssh.SIGTERM, ssh.SIGKILL} {
		session, err := s.NewSession()
		must.Do(t, err)
		out, err := session.StdoutPipe()
		must.Do(t, err)
		must.Do(t, session.Start("echo; exec sleep 1000"))
		_, err = io.ReadFull(out, make([]byte, 1))
		must.Do(t, err)
		if ok, err := session.SendRequest("signal", true, ssh.Marshal(struct{ Name string }{"NOSUCH; touch /tmp/x"})); ok || err != nil {
			t.Errorf("an unknown signal was accepted (%v)", err)
		}
		must.Do(t, session.Signal(name))
		exited, ok := errors.AsType[*ssh.ExitError](session.Wait())
		if !ok || exited.Signal() != string(name) {
			t.Errorf("ended by %v, want %s", exited, name)
		}
	}
}

func testRefused(t *testing.T, sb *sandbox.Sandbox) {
	s := connect(t, sb, "user", nil)
	for kind, payload := range map[string][]byte{
		"x11":                        nil,
		"auth-agent@openssh.com":     nil,
		"direct-tcpip":               []byte("damaged"),
		strings.Repeat("x", 100_000): nil,
	} {
		if _, _, err := s.OpenChannel(kind, payload); err == nil {
			t.Errorf("a channel of type %.40s was opened", kind)
		}
	}
	for _, address := range []string{"192.0.2.1:80", "other:80", "127.0.0.2:80", strings.Repeat("x", 100_000) + ":80"} {
		if _, err := s.DialContext(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(), "e2bctl forwards ports of the sandbox only") {
			t.Errorf("%.40s: %v", address, err)
		}
	}
	if _, err := s.DialContext(t.Context(), "tcp", "localhost:1"); err == nil || !strings.Contains(err.Error(), "port 1") {
		t.Errorf("a closed port: %v", err)
	}
	if _, err := s.ListenTCP(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}); err == nil {
		t.Error("a port of this machine was offered to the sandbox")
	}
	for _, name := range []string{"keepalive@openssh.com", "no-such-request"} {
		if ok, _, err := s.SendRequest(name, true, nil); ok || err != nil {
			t.Errorf("%s: %v, %v, want no as the answer", name, ok, err)
		}
	}
	session, _, _ := s.session(t)
	for _, name := range []string{"x11-req", "auth-agent-req@openssh.com", "nosuch", "window-change", "signal", "pty-req", "exec"} {
		if ok, err := session.SendRequest(name, true, nil); ok || err != nil {
			t.Errorf("%s: %v, %v, want no as the answer", name, ok, err)
		}
	}
	if err := session.RequestSubsystem("nosuch"); err == nil {
		t.Error("an unknown subsystem was accepted")
	}
	must.Do(t, session.Run("true")) // none of this was the start
	_ = session.Close()

	// A name of a megabyte is longer than any packet: the connection ends, and nothing else.
	if _, _, err := s.OpenChannel("session", bytes.Repeat([]byte("x"), 1<<20)); err == nil {
		t.Error("a packet of a megabyte was accepted")
	}
}

func testManyChannels(t *testing.T, sb *sandbox.Sandbox) {
	s := connect(t, sb, "user", func(c *Config) { c.MaxChannels = 20 })
	var mu sync.Mutex
	var open []*ssh.Session
	refused := 0
	var opening sync.WaitGroup
	for range 1000 {
		opening.Go(func() {
			session, err := s.NewSession()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				open = append(open, session)
				return
			}
			if failed, ok := errors.AsType[*ssh.OpenChannelError](err); !ok || failed.Reason != ssh.ResourceShortage || !strings.Contains(failed.Message, "at most 20") {
				t.Errorf("a channel too many: %v", err)
			}
			refused++
		})
	}
	opening.Wait()
	if len(open) != 20 || refused != 980 {
		t.Errorf("%d were opened and %d refused, want 20 and 980", len(open), refused)
	}
	for _, session := range open {
		_ = session.Close()
	}
	patience.Until(t, "a session can be opened again", func() bool {
		session, err := s.NewSession()
		if err != nil {
			return false
		}
		return session.Run("true") == nil
	})
}

func testPort(t *testing.T, sb *sandbox.Sandbox) {
	s := connect(t, sb, "user", nil)
	server, err := sb.Commands.Start(t.Context(), `exec python3 -c '
import socket
server = socket.create_server(("127.0.0.1", 8000))
while True:
    connection, _ = server.accept()
    connection.sendall(connection.recv(100).upper())
    connection.close()
'`, nil)
	must.Do(t, err)
	defer func() { must.Do(t, server.Kill(context.Background())) }()
	must.Do(t, sb.WaitPort(t.Context(), 8000))
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		conn, err := s.DialContext(t.Context(), "tcp", host+":8000")
		must.Do(t, err)
		_, err = conn.Write([]byte("hello"))
		must.Do(t, err)
		if answer, err := io.ReadAll(conn); string(answer) != "HELLO" || err != nil {
			t.Errorf("through %s: %q, %v", host, answer, err)
		}
		_ = conn.Close() // the server has closed it already
	}
}

// testTerminals checks the size and the type of a terminal, a shell without one, and that a session has one
// program.
func testTerminals(t *testing.T, sb *sandbox.Sandbox) {
	s := connect(t, sb, "user", nil)
	session, stdout, _ := s.session(t)
	must.Do(t, session.RequestPty("xterm-odd", 31, 91, nil))
	must.Do(t, session.Run(`echo "$TERM $(stty size)"; exit 0`))
	if got := strings.TrimSpace(stdout.String()); got != "xterm-odd 31 91" {
		t.Errorf("the terminal is %q", got)
	}
	session, _, _ = s.session(t)
	must.Do(t, session.RequestPty("", 31, 91, nil))
	if err := session.RequestPty(strings.Repeat("x", maxUser+1), 31, 91, nil); err == nil {
		t.Error("a long type of a terminal was accepted")
	}
	must.Do(t, session.WindowChange(32, 92)) // before there is a terminal
	in, err := session.StdinPipe()
	must.Do(t, err)
	session.Stdout = nil
	out, err := session.StdoutPipe()
	must.Do(t, err)
	must.Do(t, session.Start("stty -echo; stty size; read a; stty size; exit 7"))
	var rows, cols int
	if _, err := fmt.Fscan(out, &rows, &cols); err != nil || rows != 32 || cols != 92 {
		t.Errorf("the size is %d %d (%v), want the one of before the start", rows, cols, err)
	}
	for _, name := range []string{"shell", "exec", "pty-req"} {
		payload := ssh.Marshal(struct{ Text string }{"true"})
		if name == "pty-req" {
			payload = ssh.Marshal(terminalRequest{Term: "x"})
		}
		if ok, err := session.SendRequest(name, true, payload); ok || err != nil {
			t.Errorf("%s in a session that has a program: %v, %v, want no as the answer", name, ok, err)
		}
	}
	if ok, err := session.SendRequest("window-change", true, ssh.Marshal(windowRequest{Cols: 93, Rows: 33})); !ok || err != nil {
		t.Errorf("the size was not changed: %v, %v", ok, err)
	}
	_, err = in.Write([]byte("\n"))
	must.Do(t, err)
	if _, err := fmt.Fscan(out, &rows, &cols); err != nil || rows != 33 || cols != 93 {
		t.Errorf("the size is %d %d (%v), want the new one", rows, cols, err)
	}
	if exited, ok := errors.AsType[*ssh.ExitError](session.Wait()); !ok || exited.ExitStatus() != 7 {
		t.Errorf("ended by %v, want status 7", exited)
	}
	session, stdout, _ = s.session(t)
	session.Stdin = strings.NewReader("echo $((6*7)); exit 5\n")
	must.Do(t, session.Shell())
	if exited, ok := errors.AsType[*ssh.ExitError](session.Wait()); !ok || exited.ExitStatus() != 5 || stdout.String() != "42\n" {
		t.Errorf("a shell ended by %v, and printed %q", exited, stdout)
	}
}

// testReasons checks why channels are refused, and when the sandbox is looked at.
func testReasons(t *testing.T, sb *sandbox.Sandbox) {
	broke := make(chan struct{}, 8)
	s := connect(t, sb, "user", func(c *Config) { c.Broke = func() { broke <- struct{}{} } })
	to := func(host string, port uint32) []byte { return ssh.Marshal(forwardRequest{Host: host, Port: port}) }
	for _, tt := range []struct {
		kind    string
		payload []byte
		reason  ssh.RejectionReason
		message string
		broke   int
	}{
		{"x11", nil, ssh.UnknownChannelType, "has sessions and forwards ports and sockets", 0},
		{"direct-streamlocal@openssh.com", nil, ssh.ConnectionFailed, "not a path", 0},
		{"direct-tcpip", []byte("damaged"), ssh.ConnectionFailed, "not a port", 0},
		{"direct-tcpip", to("localhost", 0), ssh.ConnectionFailed, "not a port", 0},
		{"direct-tcpip", to("localhost", 65536), ssh.ConnectionFailed, "not a port", 0},
		{"direct-tcpip", to("localhost", 65535), ssh.ConnectionFailed, "port 65535", 1},
		{"direct-tcpip", to("localhost", 1), ssh.ConnectionFailed, "port 1", 1},
		{"direct-tcpip", to("", 80), ssh.Prohibited, "want localhost", 0},
	} {
		_, _, err := s.OpenChannel(tt.kind, tt.payload)
		if failed, ok := errors.AsType[*ssh.OpenChannelError](err); !ok || failed.Reason != tt.reason || !strings.Contains(failed.Message, tt.message) {
			t.Errorf("%s %q: got error %v, want %v with %q", tt.kind, tt.payload, err, tt.reason, tt.message)
		}
		if len(broke) != tt.broke {
			t.Errorf("%s %q: the sandbox was looked at %d times, want %d", tt.kind, tt.payload, len(broke), tt.broke)
		}
		for range len(broke) {
			<-broke
		}
	}
	who := connect(t, sb, "nobody-here", nil)
	session, _, stderr := who.session(t)
	if exited, ok := errors.AsType[*ssh.ExitError](session.Run("true")); !ok || exited.ExitStatus() != failed || !strings.Contains(stderr.String(), "nobody-here") {
		t.Errorf("a user that is not there: ended by %v and %q", exited, stderr)
	}
	session, _, stderr = who.session(t)
	must.Do(t, session.RequestPty("xterm", 31, 91, nil))
	if exited, ok := errors.AsType[*ssh.ExitError](session.Run("true")); !ok || exited.ExitStatus() != failed || !strings.Contains(stderr.String(), "nobody-here") {
		t.Errorf("a terminal of a user that is not there: ended by %v and %q", exited, stderr)
	}
}

// testClientGoes lets a client go without a word while it has a command, a terminal and files open.
func testClientGoes(t *testing.T, sb *sandbox.Sandbox) {
	for _, pty := range []bool{false, true} {
		s := connect(t, sb, "root", nil)
		session, err := s.NewSession()
		must.Do(t, err)
		if pty {
			must.Do(t, session.RequestPty("xterm", 30, 90, nil))
			must.Do(t, session.WindowChange(31, 91))
		}
		out, err := session.StdoutPipe()
		must.Do(t, err)
		_, err = session.StdinPipe()
		must.Do(t, err)
		must.Do(t, session.Start("echo $$; stty size 2>/dev/null; exec sleep 1000"))
		var pid int
		_, err = fmt.Fscan(out, &pid)
		must.Do(t, err)
		must.Do(t, s.near.Close())
		if err := patience.Receive(t, "the end of the server", s.done); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		s.done <- nil
		patience.Until(t, "the command has ended", func() bool {
			_, err := sb.Commands.Exec(t.Context(), "kill", []string{"-0", fmt.Sprint(pid)}, &sandbox.CommandParams{User: "root"})
			return err != nil
		})
	}
}

// testSandboxGoes ends the sandbox below a session, and then the context of the server.
func testSandboxGoes(t *testing.T, sb *sandbox.Sandbox) {
	broke := make(chan struct{}, 8)
	s := connect(t, sb, "user", func(c *Config) { c.Broke = func() { broke <- struct{}{} } })
	session, _, stderr := s.session(t)
	_, err := session.StdinPipe()
	must.Do(t, err)
	must.Do(t, session.Start("cat"))
	must.Do(t, sb.Kill(t.Context()))
	exited, ok := errors.AsType[*ssh.ExitError](session.Wait())
	if !ok || exited.ExitStatus() != failed || !strings.Contains(stderr.String(), "e2bctl: ") {
		t.Errorf("ended by %v and %q, want status %d and the reason", exited, stderr, failed)
	}
	patience.Receive(t, "the report", broke)
	s.end()
	if err := <-s.done; !errors.Is(err, context.Canceled) {
		t.Errorf("the server ended with %v", err)
	}
	s.done <- nil
}

// TestHandshake has clients that do not get in.
func TestHandshake(t *testing.T) {
	t.Parallel()
	keys, err := OpenKeys(t.TempDir())
	must.Do(t, err)
	others, err := OpenKeys(t.TempDir())
	must.Do(t, err)
	mine, err := readKey(keys.ClientFile)
	must.Do(t, err)
	other, err := readKey(others.ClientFile)
	must.Do(t, err)
	for name, client := range map[string]ssh.ClientConfig{
		"another key":  {User: "user", Auth: []ssh.AuthMethod{ssh.PublicKeys(other)}},
		"a password":   {User: "user", Auth: []ssh.AuthMethod{ssh.Password("secret")}},
		"nothing":      {User: "user"},
		"a long name":  {User: strings.Repeat("x", 1000), Auth: []ssh.AuthMethod{ssh.PublicKeys(mine)}},
		"no name":      {User: "", Auth: []ssh.AuthMethod{ssh.PublicKeys(mine)}},
		"a wild name":  {User: "a\x1b[2J", Auth: []ssh.AuthMethod{ssh.PublicKeys(mine)}},
		"a huge name":  {User: strings.Repeat("x", 1<<20), Auth: []ssh.AuthMethod{ssh.PublicKeys(mine)}},
		"the host key": {User: "user", Auth: []ssh.AuthMethod{ssh.PublicKeys(keys.Host)}},
	} {
		s := serve(t, Config{Keys: keys})
		client.HostKeyCallback = ssh.FixedHostKey(keys.Host.PublicKey())
		if _, _, _, err := ssh.NewClientConn(s.near, "sandbox", &client); err == nil {
			t.Errorf("%s: it got in", name)
		}
		_ = s.near.Close()
		if err := patience.Receive(t, "the end of the server", s.done); err == nil {
			t.Errorf("%s: the server ended without an error", name)
		}
		s.done <- nil
	}
	s := serve(t, Config{Keys: keys, Handshake: 50 * time.Millisecond})
	_, _ = s.near.Write([]byte("SSH-2.0-half\r\n"))
	go func() { _, _ = io.Copy(io.Discard, s.near) }()
	if err := patience.Receive(t, "the end of the server", s.done); err == nil || !strings.Contains(err.Error(), "more than 50ms") {
		t.Errorf("half a handshake: %v", err)
	}
	s.done <- nil
}

func TestOpenKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var opening sync.WaitGroup
	var all [20]Keys
	for i := range all {
		opening.Go(func() {
			var err error
			if all[i], err = OpenKeys(dir); err != nil {
				t.Error(err)
			}
		})
	}
	opening.Wait()
	for _, keys := range all {
		if !bytes.Equal(keys.Client.Marshal(), all[0].Client.Marshal()) || !bytes.Equal(keys.Host.PublicKey().Marshal(), all[0].Host.PublicKey().Marshal()) {
			t.Fatal("processes that began at once have different keys")
		}
	}
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	if len(entries) != 3 {
		t.Errorf("%v were left, want two keys and the known hosts", entries)
	}
	known, err := os.ReadFile(all[0].KnownHosts)
	must.Do(t, err)
	must.Do(t, os.WriteFile(all[0].KnownHosts, []byte("wrong"), 0o600))
	keys, err := OpenKeys(dir)
	must.Do(t, err)
	if again, err := os.ReadFile(keys.KnownHosts); err != nil || !bytes.Equal(again, known) {
		t.Errorf("a damaged file of known hosts is now %q (%v)", again, err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, name := range []string{"id_ed25519", "host_ed25519"} {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v (%v)", name, info.Mode(), err)
		}
		must.Do(t, os.Chmod(path, 0o640))
		if _, err := OpenKeys(dir); err == nil || !strings.Contains(err.Error(), name+" has the mode 0640") {
			t.Errorf("a key that others can read: %v", err)
		}
		must.Do(t, os.Chmod(path, 0o600))
	}
}
