package sshserver

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

//go:embed testdata/sockets.py
var socketServer string

// testSockets uses sockets of the sandbox's user, and one of root that is for root alone. The user
// root has no Python, so that its relay is the one in Perl, and a profile that prints.
func testSockets(t *testing.T, sb *sandbox.Sandbox) {
	runSocketServer(t, sb, "user", "/home/user/sockets")
	runSocketServer(t, sb, "root", "/root/sockets")
	must.Do(t, sb.Files.Write(t.Context(), "/root/.bash_profile", []byte(
		"mkdir -p ~/bin && ln -sf /usr/bin/perl ~/bin/; PATH=~/bin; echo profile; echo 8 >&2\n"), &sandbox.FileParams{User: "root"}))
	defer func() {
		must.Do(t, sb.Files.Remove(t.Context(), "/root/.bash_profile", &sandbox.PathParams{User: "root"}))
	}()
	for user, directory := range map[string]string{"user": "/home/user/sockets", "root": "/root/sockets"} {
		s := connect(t, sb, user, nil)
		t.Run(user+" ends first", func(t *testing.T) { testClientEndsFirst(t, s, directory) })
		t.Run(user+" ends last", func(t *testing.T) { testServerEndsFirst(t, s, sb, directory) })
		t.Run(user+" goes", func(t *testing.T) { testSocketReleased(t, s, sb, directory) })
		t.Run(user+" is refused", func(t *testing.T) { testRefusedSockets(t, s, directory) })
	}
	s := connect(t, sb, "user", nil)
	if conn, err := s.Dial("unix", "/root/sockets/upper"); err == nil || !strings.Contains(err.Error(), "Permission denied") {
		_ = conn.Close()
		t.Errorf("a socket of root alone: %v", err)
	}
}

// runSocketServer runs a server until the end of the test.
func runSocketServer(t *testing.T, sb *sandbox.Sandbox, user, directory string) {
	t.Helper()
	r, w := io.Pipe()
	server, err := sb.Commands.Start(t.Context(), "exec python3 -c "+sandbox.Quote(socketServer)+" "+directory, &sandbox.CommandParams{User: user, Stdout: w})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, server.Kill(context.Background())) })
	_, err = io.ReadFull(r, make([]byte, len("ready\n")))
	must.Do(t, err)
}

// dialSocket connects to a socket of the sandbox.
func (s *served) dialSocket(t *testing.T, name string) (conn net.Conn, closeWrite func() error) {
	t.Helper()
	conn, err := s.Dial("unix", name)
	must.Do(t, err)
	return conn, conn.(interface{ CloseWrite() error }).CloseWrite
}

// testClientEndsFirst sends more than all buffers hold, and reads after the end of it.
func testClientEndsFirst(t *testing.T, s *served, directory string) {
	for _, sent := range [][]byte{nil, []byte("hello"), bytes.Repeat([]byte("0123456789abcde\n"), 1<<17)} {
		conn, closeWrite := s.dialSocket(t, directory+"/upper")
		_, err := conn.Write(sent)
		must.Do(t, err)
		must.Do(t, closeWrite())
		if answer, err := io.ReadAll(conn); err != nil || !bytes.Equal(answer, bytes.ToUpper(sent)) {
			t.Errorf("%d bytes were answered by %d, %.20q (%v)", len(sent), len(answer), answer, err)
		}
		_ = conn.Close() // the server has closed it already
	}
}

// testServerEndsFirst reads everything, and then sends.
func testServerEndsFirst(t *testing.T, s *served, sb *sandbox.Sandbox, directory string) {
	conn, _ := s.dialSocket(t, directory+"/greet")
	if greeting, err := io.ReadAll(conn); string(greeting) != "greeting" || err != nil {
		t.Errorf("the server sent %q, %v", greeting, err)
	}
	_, err := conn.Write([]byte("after it"))
	must.Do(t, err)
	must.Do(t, conn.Close()) // what was sent before it arrives
	patience.Until(t, "the server has it", func() bool {
		got, err := sb.Files.ReadText(t.Context(), directory+"/got", nil)
		return err == nil && got == "after it"
	})
}

// testSocketReleased leaves a server that never ends its side.
func testSocketReleased(t *testing.T, s *served, sb *sandbox.Sandbox, directory string) {
	conn, _ := s.dialSocket(t, directory+"/hold")
	_, err := io.ReadFull(conn, make([]byte, len("held")))
	must.Do(t, err)
	must.Do(t, conn.Close())
	patience.Until(t, "the server knows that its client has gone", func() bool {
		_, err := sb.Files.Stat(t.Context(), directory+"/released", nil)
		return err == nil
	})
}

func testRefusedSockets(t *testing.T, s *served, directory string) {
	long := "/" + strings.Repeat("x", 107)
	for name, want := range map[string]string{
		long:                      "at most 107 bytes, and this has 108",
		strings.Repeat(long, 900): "at most 107 bytes",
		long[1:]:                  "must be absolute",
		"":                        "must be absolute",
		"/tmp/a\x00b":             "zero byte",
		long[:107]:                "No such file or directory",
		"/no/such'; exit 0; '":    "No such file or directory",
		"/etc/passwd":             "it is not a socket",
		"/tmp":                    "it is not a socket",
		directory + "/gone":       "Connection refused",
		directory + "/datagrams":  "wrong type for socket",
	} {
		conn, err := s.Dial("unix", name)
		if err == nil {
			_ = conn.Close()
		}
		if failed, ok := errors.AsType[*ssh.OpenChannelError](err); !ok || failed.Reason != ssh.ConnectionFailed || !strings.Contains(failed.Message, want) {
			t.Errorf("%.30q: %v, want %q", name, err, want)
		}
	}
	if _, _, err := s.OpenChannel("direct-streamlocal@openssh.com", []byte("damaged")); err == nil || !strings.Contains(err.Error(), "not a path") {
		t.Errorf("a damaged request: %v", err)
	}
	if _, err := s.ListenUnix(directory + "/ours"); err == nil {
		t.Error("a socket of this machine was offered to the sandbox")
	}
}
