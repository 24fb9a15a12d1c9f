// Package sshserver is an SSH server for one sandbox. It runs on the machine of its client, and
// does everything by the calls of the SDK: nothing has to run in the sandbox, and the sandbox may
// belong to any service.
//
// A connection is a pair of streams, usually the standard input and output of a program that ssh
// started (ProxyCommand). The user name of the connection is the user of the sandbox.
package sshserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/sandbox"
)

// Bounds of one connection.
const (
	// DefaultHandshake is the default of [Config].Handshake.
	DefaultHandshake = 30 * time.Second
	// DefaultMaxChannels is the default of [Config].MaxChannels.
	DefaultMaxChannels = 100
	maxUser            = 64       // bytes of a user name
	maxEnvs            = 128      // variables of one session
	maxEnvBytes        = 64 << 10 // bytes of their names and values
	cleanUpTime        = 5 * time.Second
)

// Config configures the server of one connection.
type Config struct {
	Sandbox *sandbox.Sandbox
	Keys    Keys
	// Message returns the text of an error for the user. It must not contain control characters. It is
	// required.
	Message func(error) string
	// Broke is called when a request to the sandbox has failed, so that the caller can find out whether
	// the sandbox has ended. Several goroutines may call it. May be nil.
	Broke func()
	// Handshake bounds the time until the client is authenticated. Zero means [DefaultHandshake].
	Handshake time.Duration
	// MaxChannels bounds the sessions and forwarded connections that are open at once. Zero means
	// [DefaultMaxChannels].
	MaxChannels int
}

// server serves one connection.
type server struct {
	Config
	user    string
	slots   chan struct{} // an element per open channel
	running sync.WaitGroup
}

// Serve serves one client until it leaves or ctx ends. It then kills the commands that the client
// started, waits for everything that it began, and closes in.
func Serve(ctx context.Context, in io.ReadCloser, out io.Writer, config Config) error {
	if config.Handshake == 0 {
		config.Handshake = DefaultHandshake
	}
	if config.MaxChannels == 0 {
		config.MaxChannels = DefaultMaxChannels
	}
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	stream := streams{in, out}
	defer func() { _ = stream.Close() }()
	stop := context.AfterFunc(life, func() { _ = stream.Close() })
	defer stop()

	late := time.AfterFunc(config.Handshake, func() { end(fmt.Errorf("it took more than %v", config.Handshake)) })
	conn, channels, requests, err := ssh.NewServerConn(stream, serverConfig(config.Keys))
	late.Stop()
	if err != nil {
		return fmt.Errorf("the handshake of the ssh client: %w", cmp.Or(context.Cause(life), err))
	}
	s := &server{Config: config, user: conn.User(), slots: make(chan struct{}, config.MaxChannels)}
	// Each request about the connection is answered by no: a keepalive needs only some answer, and
	// ports of the client's machine are not offered to the sandbox.
	s.running.Go(func() { ssh.DiscardRequests(requests) })
	for channel := range channels {
		s.open(life, channel)
	}
	end(nil)
	_ = conn.Close()
	s.running.Wait()
	return context.Cause(ctx)
}

// serverConfig accepts the key of the client, and user names that a sandbox may have.
func serverConfig(keys Keys) *ssh.ServerConfig {
	accepted := keys.Client.Marshal()
	config := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-e2bctl",
		PublicKeyCallback: func(conn ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), accepted) {
				return nil, errors.New("not the key of e2bctl")
			}
			if !isUserName(conn.User()) {
				return nil, errors.New("not a name of a user")
			}
			return &ssh.Permissions{}, nil
		},
	}
	config.AddHostKey(keys.Host)
	return config
}

func isUserName(name string) bool {
	if name == "" || len(name) > maxUser || !utf8.ValidString(name) {
		return false
	}
	for _, c := range name {
		if unicode.IsControl(c) {
			return false
		}
	}
	return true
}

// open serves a channel that the client wants to open, or rejects it.
func (s *server) open(ctx context.Context, channel ssh.NewChannel) {
	serve := s.session
	switch channel.ChannelType() {
	case "session":
	case "direct-tcpip":
		serve = s.forward
	case "direct-streamlocal@openssh.com":
		serve = s.forwardSocket
	default:
		_ = channel.Reject(ssh.UnknownChannelType, "e2bctl has sessions and forwards ports and sockets of the sandbox")
		return
	}
	select {
	case s.slots <- struct{}{}:
	default:
		_ = channel.Reject(ssh.ResourceShortage, fmt.Sprintf("e2bctl serves at most %d sessions and forwarded connections at once", cap(s.slots)))
		return
	}
	s.running.Go(func() {
		defer func() { <-s.slots }()
		serve(ctx, channel)
	})
}

// broken returns the text of an error of the sandbox, and reports it to [Config].Broke.
func (s *server) broken(err error) string {
	if s.Broke != nil {
		s.Broke()
	}
	return s.Message(err)
}

// streams is a connection over two streams. It has no deadlines, and Close closes only the reader.
type streams struct {
	io.ReadCloser
	out io.Writer
}

func (s streams) Write(p []byte) (int, error) { return s.out.Write(p) }

func (streams) LocalAddr() net.Addr              { return streamAddr{} }
func (streams) RemoteAddr() net.Addr             { return streamAddr{} }
func (streams) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (streams) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (streams) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

type streamAddr struct{}

func (streamAddr) Network() string { return "stream" }
func (streamAddr) String() string  { return "stream" }
