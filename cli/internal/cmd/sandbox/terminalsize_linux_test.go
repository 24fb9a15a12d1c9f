package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"connectrpc.com/connect"
	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestSizeOfATerminal checks the size that a session opens a terminal with, and that a terminal without a size has none.
func TestSizeOfATerminal(t *testing.T) {
	t.Parallel()
	keyboard, tty, err := pty.Open()
	must.Do(t, err)
	defer keyboard.Close()
	defer tty.Close()
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer null.Close()
	mine := errors.New("mine")
	for _, test := range []struct {
		in         io.Reader
		cols, rows uint16
		want       string
	}{
		{tty, 80, 24, "80 24"}, {tty, 1, 1, "1 1"}, {tty, 0, 24, "0 0"}, {tty, 80, 0, "0 0"}, {tty, 0, 0, "0 0"}, {null, 0, 0, "0 0"}, {http.NoBody, 0, 0, ""},
	} {
		must.Do(t, pty.Setsize(tty, &pty.Winsize{Cols: test.cols, Rows: test.rows}))
		got := ""
		session := terminalSession{IO: &cmdutil.IOStreams{In: test.in}, Open: func(_ context.Context, cols, rows int) (*sandbox.Terminal, error) {
			got = fmt.Sprint(cols, rows)
			return nil, mine
		}}
		err := session.run(t.Context())
		if got != test.want || err == nil || errors.Is(err, mine) != (test.want != "") {
			t.Errorf("%d columns and %d rows of %T: opened with %q, error %v, want %q", test.cols, test.rows, test.in, got, err, test.want)
		}
	}
}

// terminals is the daemon of a sandbox, which records what is asked of its terminals.
type terminals struct {
	processconnect.UnimplementedProcessHandler
	asked []string
}

func (d *terminals) Start(_ context.Context, r *connect.Request[process.StartRequest], to *connect.ServerStream[process.StartResponse]) error {
	user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth()
	config, size := r.Msg.GetProcess(), r.Msg.GetPty().GetSize()
	d.asked = append(d.asked, fmt.Sprintf("start %q in %s with A=%s as %s, %d %d", config.GetArgs(), config.GetCwd(), config.GetEnvs()["A"], user, size.GetCols(), size.GetRows()))
	return to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}})
}

func (d *terminals) Connect(_ context.Context, r *connect.Request[process.ConnectRequest], to *connect.ServerStream[process.ConnectResponse]) error {
	user, _, _ := (&http.Request{Header: r.Header()}).BasicAuth()
	d.asked = append(d.asked, fmt.Sprintf("connect %d as %s", r.Msg.GetProcess().GetPid(), user))
	err := to.Send(&process.ConnectResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: r.Msg.GetProcess().GetPid()}}}})
	return err
}

func (d *terminals) Update(_ context.Context, r *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	size := r.Msg.GetPty().GetSize()
	d.asked = append(d.asked, fmt.Sprintf("resize %d to %d %d", r.Msg.GetProcess().GetPid(), size.GetCols(), size.GetRows()))
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// TestTerminalsOfConnect checks the request with which connect opens a terminal, for each of its flags.
func TestTerminalsOfConnect(t *testing.T) {
	t.Parallel()
	d := &terminals{}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(d))
	sb := cmdtest.Sandbox(t, mux)
	for _, test := range []struct {
		shell      string
		pid        int
		cols, rows int
		want       []string
	}{
		{"", 0, 90, 30, []string{`start ["-i" "-l"] in /w with A=b as u, 90 30`}}, {"z sh", 0, 0, 0, []string{`start ["-l" "-c" "exec 'z sh'"] in /w with A=b as u, 80 24`}},
		{"", 8, 0, 0, []string{"connect 8 as u"}},
	} {
		o := &connectOptions{Shell: test.shell, PID: test.pid}
		o.Process.User, o.Process.Cwd, o.Process.Envs = "u", "/w", map[string]string{"A": "b"}
		d.asked = nil
		terminal, err := o.open(t.Context(), sb, test.cols, test.rows)
		must.Do(t, err)
		if diff := cmp.Diff(test.want, d.asked); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test, diff)
		}
		terminal.Disconnect()
	}
}
