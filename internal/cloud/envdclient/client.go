package envdclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Bounds of a sandbox's answers, in bytes.
const (
	maxMessage  = 4 << 20
	maxAnswer   = 64 << 10
	maxRepeated = 1 << 10
)

// Client calls the envd of one sandbox. It is safe for concurrent use. The caller must close
// it.
type Client struct {
	http      *http.Client
	transport *http.Transport
	processes processconnect.ProcessClient
	token     string
}

// New returns a client for a sandbox. dial connects to a port of the sandbox, and token is the
// sandbox's access token.
func New(dial func(ctx context.Context, port int) (net.Conn, error), token string) *Client {
	c := &Client{token: token, transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, protocol.PortEnvd) },
		DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
	}}
	c.http = &http.Client{Transport: c.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	c.processes = processconnect.NewProcessClient(c.http, base, connect.WithReadMaxBytes(maxMessage))
	return c
}

// base is the URL of envd. The host in it is not used.
const base = "http://envd"

// Close closes the connections of calls that have returned.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Command is a command for [Client.Run].
type Command struct {
	Args []string
	User string // "": the sandbox's default user
	Dir  string // "": the sandbox's default directory; ~ is the user's home
	Envs map[string]string
	// Stdout and Stderr receive the output. The output for a nil writer is dropped.
	Stdout, Stderr io.Writer
}

// Shell returns a command that runs line in a login shell, as the service does.
func Shell(line string) Command { return Command{Args: []string{"/bin/bash", "-l", "-c", line}} }

// Check returns a command that runs line to query the sandbox. The command reads no file of the
// user, because .bashrc must not change the result.
func Check(line string) Command {
	return Command{
		Args: []string{"/bin/bash", "-p", "-c", line}, // -p: ignores BASH_ENV
		// With this variable, ss reads /proc. Without it, ss first complains that it cannot
		// query the kernel.
		Envs: map[string]string{"PROC_ROOT": "/proc"},
	}
}

// OnlySleeps reports whether line does nothing but wait for a fixed time.
func OnlySleeps(line string) bool { return onlySleeps().MatchString(line) }

var onlySleeps = lazyregexp.New(`^\s*sleep\s+[0-9.]+[smhd]?\s*$`)

// ExitError reports that a command failed.
type ExitError struct {
	Code   int
	Detail string // description from envd
}

func (e *ExitError) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// RefusedError reports that envd did not run a command.
type RefusedError struct {
	Code   connect.Code
	Reason string
}

func (e *RefusedError) Error() string { return e.Reason }

// Run runs a command until it ends. The deadline of ctx ends the command, too. The error is an
// [*ExitError] if the command ran and failed.
func (c *Client) Run(ctx context.Context, command Command) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.start(ctx, command)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // all needed messages were received
	return outcome(ctx, stream, command)
}

// outcome passes on the output of a command, and returns the command's outcome.
func outcome(ctx context.Context, stream *connect.ServerStreamForClient[process.StartResponse], command Command) error {
	for stream.Receive() {
		switch event := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Data:
			if err := write(command.Stdout, event.Data.GetStdout()); err != nil {
				return err
			}
			if err := write(command.Stderr, event.Data.GetStderr()); err != nil {
				return err
			}
		case *process.ProcessEvent_End:
			if end := event.End; end.GetExitCode() != 0 || !end.GetExited() {
				return &ExitError{int(end.GetExitCode()), clip.Text(end.GetError(), maxRepeated)}
			}
			return nil
		}
	}
	return failure(ctx, stream.Err(), "it ended without a status")
}

// Start starts a command. The command continues to run when ctx is done. The channel receives the
// same result as [Client.Run] returns. If ctx is done before the command ends, the channel receives
// the cause of ctx.
func (c *Client) Start(ctx context.Context, command Command) (<-chan error, error) {
	// The deadline of ctx is left out, because envd would end the command at that time.
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	forget := func() { stop(); cancel(nil) }
	stream, err := c.start(lasting, command)
	if err != nil {
		forget()
		return nil, err
	}
	for stream.Receive() {
		if stream.Msg().GetEvent().GetStart() == nil {
			continue
		}
		ended := make(chan error, 1)
		go func() {
			defer forget()
			defer func() { _ = stream.Close() }() // all needed messages were received
			ended <- outcome(lasting, stream, command)
		}()
		return ended, nil
	}
	err = failure(lasting, stream.Err(), "it did not start")
	_ = stream.Close() // the call has failed already
	forget()
	return nil, err
}

func (c *Client) start(ctx context.Context, command Command) (*connect.ServerStreamForClient[process.StartResponse], error) {
	stdin := false
	config := &process.ProcessConfig{Cmd: command.Args[0], Args: command.Args[1:], Envs: command.Envs}
	if command.Dir != "" {
		config.Cwd = &command.Dir
	}
	request := connect.NewRequest(&process.StartRequest{Process: config, Stdin: &stdin})
	c.identify(request.Header(), command.User)
	stream, err := c.processes.Start(ctx, request)
	if err != nil {
		return nil, failure(ctx, err, "")
	}
	return stream, nil
}

func (c *Client) identify(header http.Header, user string) {
	if c.token != "" {
		header.Set(protocol.HeaderAccess, c.token)
	}
	if user != "" {
		request := http.Request{Header: header}
		request.SetBasicAuth(user, "")
	}
}

func write(w io.Writer, data []byte) error {
	if w == nil || len(data) == 0 {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// failure converts the error of a call to envd. If ctx is done, it returns the cause of ctx. If err
// is nil, it returns an error with the text in otherwise.
func failure(ctx context.Context, err error, otherwise string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		return errors.New(otherwise)
	}
	if refused, ok := errors.AsType[*connect.Error](err); ok {
		if refused.Code() == connect.CodeDeadlineExceeded {
			return context.DeadlineExceeded
		}
		return &RefusedError{refused.Code(), clip.Text(refused.Message(), maxRepeated)}
	}
	return err
}
