package sshserver

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/sandbox"
)

// The relay is a command in the sandbox that connects its standard input and output to a socket, as
// the user of the connection. It is written in Python and Perl, because bash cannot open sockets of
// the file system. It first prints a marker, so that output of the user's profile is not taken for its own. A
// command cannot end its standard output alone. So when the socket has ended, the relay prints to
// standard error how many bytes came from it.
var (
	//go:embed relay.sh
	relayShell string
	//go:embed relay.py
	relayPython string
	//go:embed relay.pl
	relayPerl string
)

const (
	maxSocketPath = 107         // bytes; the 108th ends the path
	maxProfile    = 64 << 10    // bytes that the profile may print
	maxRelayError = 4 << 10     // bytes of the relay's error output that are kept
	relayStart    = time.Minute // for the connection: a server that accepts no connections holds the relay up
)

// socketRequest is the destination of a forwarded connection to a socket. The other fields are
// reserved by OpenSSH.
type socketRequest struct {
	Path   string
	Origin string
	Port   uint32
}

// socketPath returns the path of the socket that a client wants.
func socketPath(payload []byte) (string, error) {
	var to socketRequest
	switch {
	case ssh.Unmarshal(payload, &to) != nil:
		return "", errors.New("not a path")
	case len(to.Path) > maxSocketPath:
		return "", fmt.Errorf("the path of a socket has at most %d bytes, and this has %d", maxSocketPath, len(to.Path))
	case strings.ContainsRune(to.Path, 0):
		return "", errors.New("the path contains a zero byte")
	case !path.IsAbs(to.Path):
		return "", errors.New("the path of a socket in the sandbox must be absolute")
	}
	return to.Path, nil
}

// forwardSocket serves a channel of type direct-streamlocal@openssh.com: a connection to a socket in
// the file system of the sandbox, with the rights of the connection's user.
func (s *server) forwardSocket(ctx context.Context, offered ssh.NewChannel) {
	name, err := socketPath(offered.ExtraData())
	if err != nil {
		_ = offered.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	in, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	relay := newSocketRelay(ctx)
	command, err := s.Sandbox.Commands.Start(ctx, relay.line(name), &sandbox.CommandParams{
		User: s.user, Stdin: in, Stdout: writeFunc(relay.output), Stderr: writeFunc(relay.errors), MaxOutputBytes: -1,
	})
	if err != nil {
		_ = offered.Reject(ssh.ConnectionFailed, s.broken(err))
		return
	}
	ended := make(chan error, 1)
	s.running.Go(func() { ended <- awaitOrKill(ctx, command) })
	late := time.AfterFunc(relayStart, end)
	defer late.Stop()
	select {
	case <-relay.connected:
		late.Stop()
	case err := <-ended:
		_ = offered.Reject(ssh.ConnectionFailed, s.relayError(name, relay, err))
		return
	}
	channel, requests, err := offered.Accept()
	if err != nil {
		return
	}
	relay.accepted <- channel
	var sending sync.WaitGroup
	sending.Go(func() {
		ssh.DiscardRequests(requests) // until the channel is closed
		// The server still gets the last bytes of the client, and then their end.
		late.Reset(cleanUpTime)
	})
	sending.Go(func() {
		_, err := io.Copy(typed, channel)
		_ = typed.CloseWithError(err)
	})
	err = <-ended
	if _, ok := errors.AsType[*sandbox.ExitError](err); err != nil && !ok && ctx.Err() == nil {
		_ = s.broken(err) // the sandbox may have ended
	}
	_ = in.Close()
	_ = channel.Close()
	sending.Wait()
}

// relayError returns the reason why a relay has not connected.
func (s *server) relayError(name string, relay *socketRelay, err error) string {
	if _, ok := errors.AsType[*sandbox.ExitError](err); ok {
		return s.Message(fmt.Errorf("%q in the sandbox: %s", name, clip.LastLine(string(relay.errs), 256)))
	}
	if errors.Is(err, context.Canceled) {
		return s.Message(fmt.Errorf("%q in the sandbox: its server accepted no connection for %v", name, relayStart))
	}
	return s.broken(err)
}

// socketRelay receives the output of a relay. One goroutine calls output and errors.
type socketRelay struct {
	ctx       context.Context //nolint:containedctx // the context of the channel, which is no call
	marker    string
	connected chan struct{}    // closed after the marker
	accepted  chan ssh.Channel // receives the channel to which the bytes go

	opened  bool        // connected is closed
	head    []byte      // output before the marker
	channel ssh.Channel // nil before the first byte
	sent    int64       // the bytes that the channel has
	errs    []byte      // the end of the error output
}

func newSocketRelay(ctx context.Context) *socketRelay {
	return &socketRelay{ctx: ctx, marker: rand.Text(), connected: make(chan struct{}), accepted: make(chan ssh.Channel, 1)}
}

// line returns the command line of the relay to a socket.
func (r *socketRelay) line(name string) string {
	return joined([][]string{{"set", "--", name, r.marker, relayPython, relayPerl}}) + "\n" + relayShell
}

type writeFunc func(p []byte) error

func (f writeFunc) Write(p []byte) (int, error) { return len(p), f(p) }

// output handles a piece of the standard output.
func (r *socketRelay) output(p []byte) error {
	if !r.opened {
		r.head = append(r.head, p...)
		_, rest, found := bytes.Cut(r.head, []byte(r.marker))
		switch {
		case !found && len(r.head) > maxProfile:
			return errors.New("the user's profile prints too much")
		case !found:
			return nil
		}
		r.opened, r.head, p = true, nil, rest
		close(r.connected)
	}
	if len(p) > 0 {
		if err := r.awaitChannel(); err != nil {
			return err
		}
		n, err := r.channel.Write(p)
		r.sent += int64(n)
		if err != nil {
			return err
		}
	}
	return r.endIfComplete()
}

// errors handles a piece of the error output.
func (r *socketRelay) errors(p []byte) error {
	r.errs = append(r.errs, p...)
	r.errs = r.errs[max(0, len(r.errs)-maxRelayError):]
	return r.endIfComplete()
}

// endIfComplete ends the direction to the client if the socket has ended, and the channel has all of
// its bytes.
func (r *socketRelay) endIfComplete() error {
	_, total, ended := strings.Cut(string(r.errs), r.marker)
	if !ended || !r.opened || total != fmt.Sprintf(" %d\n", r.sent) {
		return nil
	}
	if err := r.awaitChannel(); err != nil {
		return err
	}
	return r.channel.CloseWrite()
}

// awaitChannel waits until the client has its channel.
func (r *socketRelay) awaitChannel() error {
	if r.channel != nil {
		return nil
	}
	select {
	case r.channel = <-r.accepted:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}
