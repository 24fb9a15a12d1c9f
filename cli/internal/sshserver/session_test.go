package sshserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rpc "connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// playedDaemon is a sandbox that runs one program, as a test plays it. It records the requests.
type playedDaemon struct {
	processconnect.UnimplementedProcessHandler
	*journal

	events []*process.ProcessEvent // of the program, one each second
	killed chan struct{}
	kill   sync.Once
}

func (d *playedDaemon) Start(ctx context.Context, r *rpc.Request[process.StartRequest], to *rpc.ServerStream[process.StartResponse]) error {
	size, program := r.Msg.GetPty().GetSize(), r.Msg.GetProcess()
	user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth()
	d.note("start %q as %s with %v in %dx%d", program.GetArgs(), user, program.GetEnvs(), size.GetCols(), size.GetRows())
	started := &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}
	if err := to.Send(&process.StartResponse{Event: started}); err != nil {
		return err
	}
	for _, event := range d.events {
		select {
		case <-time.After(time.Second):
		case <-d.killed:
			return rpc.NewError(rpc.CodeAborted, errors.New("killed"))
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := to.Send(&process.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

func (d *playedDaemon) SendInput(_ context.Context, r *rpc.Request[process.SendInputRequest]) (*rpc.Response[process.SendInputResponse], error) {
	d.note("input %s%s", r.Msg.GetInput().GetStdin(), r.Msg.GetInput().GetPty())
	return rpc.NewResponse(&process.SendInputResponse{}), nil
}

func (d *playedDaemon) CloseStdin(context.Context, *rpc.Request[process.CloseStdinRequest]) (*rpc.Response[process.CloseStdinResponse], error) {
	d.note("end of input")
	return rpc.NewResponse(&process.CloseStdinResponse{}), nil
}

func (d *playedDaemon) Update(_ context.Context, r *rpc.Request[process.UpdateRequest]) (*rpc.Response[process.UpdateResponse], error) {
	d.note("size %dx%d", r.Msg.GetPty().GetSize().GetCols(), r.Msg.GetPty().GetSize().GetRows())
	return rpc.NewResponse(&process.UpdateResponse{}), nil
}

func (d *playedDaemon) SendSignal(_ context.Context, r *rpc.Request[process.SendSignalRequest]) (*rpc.Response[process.SendSignalResponse], error) {
	d.note("%v", r.Msg.GetSignal())
	d.kill.Do(func() { close(d.killed) })
	return rpc.NewResponse(&process.SendSignalResponse{}), nil
}

// client is the channel of a session.
type client struct {
	ssh.Channel
	*journal

	in     io.Reader
	stderr bytes.Buffer
}

func (c *client) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c *client) Write(p []byte) (int, error) {
	c.note("output %s", p)
	return len(p), nil
}
func (c *client) Stderr() io.ReadWriter { return &c.stderr }

// printed is output of a program.
func printed(stdout, stderr, pty string) *process.ProcessEvent {
	e := &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(stdout)}}
	if stderr != "" {
		e.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte(stderr)}
	}
	if pty != "" {
		e.Output = &process.ProcessEvent_DataEvent_Pty{Pty: []byte(pty)}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: e}}
}

// exitEvent is the end of a program with an exit status.
func exitEvent(status int32) *process.ProcessEvent {
	end := &process.ProcessEvent_EndEvent{Exited: true, ExitCode: status, Status: fmt.Sprint("exit status ", status)}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}
}

// TestProgramsOfSessions checks how commands and terminals are started, what passes to and from them, and that they end
// with their session.
func TestProgramsOfSessions(t *testing.T) {
	t.Parallel()
	ends := exitEvent(3)
	const shell = `0s start ["-i" "-l"] as u with map[A:1 LANG:C.UTF-8 LC_ALL:C.UTF-8 TERM:xterm`
	for name, tt := range map[string]struct {
		pty    *terminalRequest
		early  *windowRequest // the size that was asked for before the start
		line   string
		events []*process.ProcessEvent
		after  time.Duration // the end of the session
		want   []string
		stderr string
		status int
		failed bool
	}{
		"a command": {nil, nil, "line", []*process.ProcessEvent{printed("text", "", ""), printed("", "oh", ""), ends}, time.Hour,
			[]string{`0s start ["-l" "-c" "line"] as u with map[A:1] in 0x0`, "0s input typed", "0s end of input", "1s output text"}, "oh", 3, false},
		"a command is left": {nil, nil, "line", []*process.ProcessEvent{ends}, time.Second / 2,
			[]string{`0s start ["-l" "-c" "line"] as u with map[A:1] in 0x0`, "0s input typed", "0s end of input", "500ms SIGNAL_SIGKILL"}, "", 0, true},
		"a terminal": {&terminalRequest{Term: "xterm", Cols: 1 << 16, Rows: 9}, nil, "", []*process.ProcessEvent{printed("", "", "text"), ends}, time.Hour,
			[]string{shell + "] in 65535x9", "0s input typed", "1s output text"}, "", 3, false},
		"a terminal of another size": {&terminalRequest{Cols: 7, Rows: 9}, &windowRequest{Cols: 5, Rows: 6}, "", []*process.ProcessEvent{ends}, time.Hour,
			[]string{shell + "-256color] in 5x6", "0s size 5x6", "0s input typed"}, "", 3, false},
		"a terminal is left": {&terminalRequest{Cols: 7, Rows: 9}, nil, "", []*process.ProcessEvent{ends}, time.Second / 2,
			[]string{shell + "-256color] in 7x9", "0s input typed", "500ms SIGNAL_SIGKILL"}, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{began: time.Now()}
				d := &playedDaemon{journal: j, events: tt.events, killed: make(chan struct{})}
				s := &server{Config: Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d))}, user: "u"}
				channel := &client{journal: j, in: strings.NewReader("typed")}
				c := &session{server: s, channel: channel, envs: map[string]string{"A": "1"}, pty: tt.pty, window: tt.early}
				ctx, cancel := context.WithTimeout(t.Context(), tt.after)
				defer cancel()
				run := c.command
				if tt.pty != nil {
					run = c.terminal
				}
				end, err := run(ctx, tt.line)
				if end != (exit{status: tt.status}) || (err != nil) != tt.failed || c.pid != 7 || (c.resize != nil) != (tt.pty != nil) {
					t.Errorf("ended with %+v and error %v, as the process %d; want the status %d", end, err, c.pid, tt.status)
				}
				s.running.Wait()
				if diff := cmp.Diff(tt.want, j.all()); diff != "" || channel.stderr.String() != tt.stderr {
					t.Errorf("the error output is %q; events (-want +got):\n%s", &channel.stderr, diff)
				}
				if !c.mu.TryLock() {
					t.Error("the program keeps the lock")
				}
			})
		})
	}
}

// TestProgramsThatDoNotStart checks that a program that cannot be started is an error.
func TestProgramsThatDoNotStart(t *testing.T) {
	t.Parallel()
	s := (&daemon{}).server(t)
	inTerminal := &session{server: s, pty: &terminalRequest{}}
	for _, run := range []func(context.Context, string) (exit, error){(&session{server: s, channel: &client{}}).command, inTerminal.terminal} {
		end, err := run(t.Context(), "line")
		must.Is(t, err, sandbox.ErrForbidden)
		if end != (exit{}) {
			t.Errorf("ended with %+v, want nothing", end)
		}
	}
	if !inTerminal.mu.TryLock() {
		t.Error("a terminal keeps the lock")
	}
}

// TestTerminalOfAClientThatReadsNothing checks that a terminal ends when its client takes nothing, and with that error.
func TestTerminalOfAClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{began: time.Now()}
		d := &playedDaemon{journal: j, events: []*process.ProcessEvent{printed("", "", "text"), exitEvent(3)}, killed: make(chan struct{})}
		s := &server{Config: Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d))}, user: "u"}
		broken := errors.New("broken")
		c := &session{server: s, channel: refusing{&client{in: strings.NewReader("")}, broken}, envs: map[string]string{}, pty: &terminalRequest{Term: "xterm", Cols: 7, Rows: 9}}
		end, err := c.terminal(t.Context(), "a line")
		if must.Is(t, err, broken); end != (exit{}) {
			t.Errorf("ended with %+v", end)
		}
		s.running.Wait()
		want := []string{`0s start ["-l" "-c" "a line"] as u with map[LANG:C.UTF-8 LC_ALL:C.UTF-8 TERM:xterm] in 7x9`, "1s SIGNAL_SIGKILL"}
		if diff := cmp.Diff(want, j.all()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// refusing is a client that takes no output.
type refusing struct {
	*client
	err error
}

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

// TestLinesOfSessions checks which line each request runs without a terminal.
func TestLinesOfSessions(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"exec": "-l -c sftp", "shell": "-l -c exec bash"} {
		d := &daemon{output: "text"}
		c := &session{server: d.server(t), channel: &client{journal: &journal{}, in: strings.NewReader("")}, envs: map[string]string{}}
		run, ok := c.handle(t.Context(), &ssh.Request{Type: kind, Payload: ssh.Marshal(struct{ Text string }{"sftp"})})
		if !ok || run == nil {
			t.Fatalf("%s was refused", kind)
		}
		_, _ = run(t.Context()) // its input is not taken
		if len(d.ran) != 1 || !strings.HasSuffix(d.ran[0], want) {
			t.Errorf("%s: ran %q, want %s", kind, d.ran, want)
		}
	}
}

// TestWholeSessions checks the answers to a client, and that what it started ends with its session, with its connection
// or with the server.
func TestWholeSessions(t *testing.T) {
	t.Parallel()
	keys, err := OpenKeys(t.TempDir())
	must.Do(t, err)
	for name, tt := range map[string]struct {
		leave func(session *ssh.Session, client *ssh.Client, end func()) error // after half a second
		want  error                                                            // of the server
		last  []string
		text  string
	}{
		"to the end":          {nil, nil, nil, "text"},
		"the session ends":    {func(s *ssh.Session, _ *ssh.Client, _ func()) error { return s.Close() }, nil, []string{"500ms SIGNAL_SIGKILL"}, ""},
		"the connection ends": {func(_ *ssh.Session, c *ssh.Client, _ func()) error { return c.Close() }, nil, []string{"500ms SIGNAL_SIGKILL"}, ""},
		"the server ends":     {func(_ *ssh.Session, _ *ssh.Client, end func()) error { end(); return nil }, context.Canceled, []string{"500ms SIGNAL_SIGKILL"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{began: time.Now()}
				d := &playedDaemon{journal: j, killed: make(chan struct{}), events: []*process.ProcessEvent{printed("text", "", ""), printed("", "oh", ""), exitEvent(3)}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				client, served := connectPiped(ctx, t, Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d)), Keys: keys, Message: func(err error) string { return err.Error() }})
				session, err := client.NewSession()
				must.Do(t, err)
				var stdout, stderr bytes.Buffer
				session.Stdout, session.Stderr = &stdout, &stderr
				must.Do(t, session.Setenv("A", "1"))
				if session.Setenv("LANG", "C") == nil {
					t.Error("a variable of the client's machine was accepted")
				}
				must.Do(t, session.Start("line"))
				if granted, err := session.SendRequest("exec", true, ssh.Marshal(struct{ Text string }{"line"})); granted || err != nil {
					t.Errorf("a second program: granted %v, and error %v", granted, err)
				}
				if granted, _, err := client.SendRequest("keepalive@openssh.com", true, nil); granted || err != nil {
					t.Errorf("a keepalive: got %v and error %v, want no as the answer", granted, err)
				}
				if tt.leave != nil {
					<-time.After(time.Second / 2)
					if err := tt.leave(session, client, cancel); err != nil && !errors.Is(err, io.EOF) {
						t.Error(err)
					}
				}
				exited, ok := errors.AsType[*ssh.ExitError](session.Wait())
				if ended := ok && exited.ExitStatus() == 3; ended != (tt.leave == nil) || stdout.String() != tt.text {
					t.Errorf("got %q with the end %v, want %q", &stdout, exited, tt.text)
				}
				_ = client.Close()
				must.Is(t, <-served, tt.want)
				want := append([]string{`0s start ["-l" "-c" "line"] as u with map[A:1] in 0x0`, "0s end of input"}, tt.last...)
				if diff := cmp.Diff(want, j.all()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestServerWaitsForItsSessions checks that a server ends after the commands of its client, and closes its input.
func TestServerWaitsForItsSessions(t *testing.T) {
	t.Parallel()
	keys, err := OpenKeys(t.TempDir())
	must.Do(t, err)
	for name, ended := range map[string]bool{"the client goes": false, "the server ends": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{began: time.Now()}
				d := &relayDaemon{journal: j, hangs: true, killed: make(chan struct{}), play: func(r *playedRelay) error { <-r.cut; return nil }}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				client, served := connectPiped(ctx, t, Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d)), Keys: keys, Message: func(err error) string { return err.Error() }})
				session, err := client.NewSession()
				must.Do(t, err)
				must.Do(t, session.Start("line"))
				<-time.After(time.Second)
				if ended {
					cancel()
				} else {
					_ = client.Close()
				}
				if err := <-served; errors.Is(err, context.Canceled) != ended || !ended && err != nil {
					t.Errorf("got error %v", err)
				}
				if took := time.Since(j.began); took != time.Second+cleanUpTime {
					t.Errorf("the server ended after %v, want %v", took, time.Second+cleanUpTime)
				}
				_ = client.Close()
				<-time.After(time.Minute)
			})
		})
	}
}
