package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// shells is the daemon of a sandbox with a shell. A digit that is typed is its exit status, and the key c cuts its stream.
type shells struct {
	processconnect.UnimplementedProcessHandler
	keys chan byte

	mu     sync.Mutex
	killed int
}

func (d *shells) Start(ctx context.Context, _ *connect.Request[process.StartRequest], to *connect.ServerStream[process.StartResponse]) error {
	for _, event := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Pty{Pty: []byte("hello")}}}},
	} {
		if err := to.Send(&process.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case key := <-d.keys:
		if key == 'c' {
			return connect.NewError(connect.CodeInternal, errors.New("broken"))
		}
		end := &process.ProcessEvent_EndEvent{ExitCode: int32(key - '0'), Exited: true}
		return to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}})
	}
}

func (d *shells) SendInput(_ context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	for _, key := range r.Msg.GetInput().GetPty() {
		d.keys <- key
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (d *shells) SendSignal(context.Context, *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killed++
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// TestSessionsOfAShell checks the ends of a shell in a terminal: its status, or how to come back to it; whether it goes on; and
// that the terminal is as it was.
func TestSessionsOfAShell(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	const left, kept = "the shell goes on in sandbox i1\n  e2bctl connect --pid 7 i1 comes back\n  e2bctl kill i1 ends it\n", "sandbox i1 is kept\n  e2bctl connect i1 comes back\n  e2bctl kill i1 ends it\n"
	for name, tt := range map[string]struct {
		keys     string // "": the context ends
		remove   bool
		want     error // nil: none
		own      bool  // it is a failure of e2bctl
		said     string
		ordinary bool // the screen is made an ordinary one
	}{
		"status 0":        {keys: "0", said: kept},
		"status 3":        {keys: "3", want: cmdutil.RemoteStatus(3), said: kept},
		"status 3, --rm":  {keys: "3", remove: true, want: cmdutil.RemoteStatus(3)},
		"it is left":      {keys: "\x10\x11", said: left, ordinary: true},
		"it is cut off":   {keys: "c", own: true, said: left, ordinary: true},
		"it is abandoned": {want: enough, said: left, ordinary: true},
	} {
		d := &shells{keys: make(chan byte, 10)}
		mux := http.NewServeMux()
		mux.Handle(processconnect.NewProcessHandler(d))
		sb := cmdtest.Sandbox(t, mux)
		keyboard, tty, err := pty.Open()
		must.Do(t, err)
		must.Do(t, pty.Setsize(tty, &pty.Winsize{Cols: 80, Rows: 24}))
		before, err := term.GetState(int(tty.Fd()))
		must.Do(t, err)
		var screen, said cmdtest.Output
		o := &connectOptions{IO: &cmdutil.IOStreams{In: tty, Out: &screen, OutIsTerminal: true}, Progress: &said, Remove: tt.remove, DetachKeys: []byte{0x10, 0x11}}
		ctx, end := context.WithCancelCause(patience.Context(t))
		ended := make(chan error, 1)
		go func() { ended <- o.session(ctx, sb) }()
		patience.Until(t, name+": the shell begins", func() bool { return screen.String() == "hello" })
		if tt.keys == "" {
			end(enough)
		}
		_, err = io.WriteString(keyboard, tt.keys)
		must.Do(t, err)
		err = patience.Receive(t, "the end of the session", ended)
		own, isOwn := errors.AsType[*cmdutil.OwnError](err)
		if isOwn != tt.own || isOwn && !own.Running {
			t.Errorf("%s: got error %v, a failure of e2bctl beside a running shell: want %v", name, err, tt.own)
		}
		if !isOwn && !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		if got := screen.String(); strings.HasSuffix(got, ordinaryScreen) != tt.ordinary || said.String() != tt.said || d.killed > 0 {
			t.Errorf("%s: the screen has %q, said %q, %d kills, want %q", name, got, said.String(), d.killed, tt.said)
		}
		if after, err := term.GetState(int(tty.Fd())); err != nil || *after != *before {
			t.Errorf("%s: the terminal is not as it was: %v", name, err)
		}
		end(nil)
		tty.Close()
		_, _ = io.WriteString(keyboard, "\n") // ends the read that the session leaves behind
		keyboard.Close()
	}
}

// TestTerminalThatIsNotKept checks that the program of a terminal ends with a session that does not keep it.
func TestTerminalThatIsNotKept(t *testing.T) {
	t.Parallel()
	d := &shells{keys: make(chan byte, 10)}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(d))
	sb := cmdtest.Sandbox(t, mux)
	keyboard, tty, err := pty.Open()
	must.Do(t, err)
	var screen cmdtest.Output
	ctx, end := context.WithCancelCause(patience.Context(t))
	ended := make(chan error, 1)
	go func() {
		ended <- runTerminal(ctx, &cmdutil.IOStreams{In: tty, Out: &screen}, sb, "work", processFlags{})
	}()
	patience.Until(t, "the program begins", func() bool { return screen.String() == "hello" })
	end(sandbox.ErrClosed)
	must.Is(t, patience.Receive(t, "the end of the session", ended), sandbox.ErrClosed)
	patience.Until(t, "the program is killed", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.killed > 0 })
	if got := screen.String(); got != "hello" { // a file is not made an ordinary screen
		t.Errorf("the output is %q", got)
	}
	tty.Close()
	_, _ = io.WriteString(keyboard, "\n")
	keyboard.Close()
}
