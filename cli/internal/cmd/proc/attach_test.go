package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
	"github.com/e2bctl/e2bctl/sandbox"
)

// daemon is the daemon of a sandbox with the process 7, which ends when the channel ends is closed.
type daemon struct {
	processconnect.UnimplementedProcessHandler
	ends   chan struct{}
	broken bool // the cmdtest.Output of the process breaks then
	full   bool // the process takes no input

	mu     sync.Mutex
	from   string // the byte with which the output begins
	input  bytes.Buffer
	closed int // inputs
	killed int
}

func (d *daemon) Connect(ctx context.Context, r *connect.Request[process.ConnectRequest], s *connect.ServerStream[process.ConnectResponse]) error {
	d.mu.Lock()
	d.from = r.Header().Get(protocol.HeaderOutputFrom)
	d.mu.Unlock()
	if d.from != protocol.OutputFromNow {
		s.ResponseHeader().Set(protocol.HeaderOutputFrom, d.from)
		s.ResponseHeader().Set(protocol.HeaderOutputOf, "mine")
	}
	for _, event := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("out")}}}},
	} {
		if err := s.Send(&process.ConnectResponse{Event: event}); err != nil {
			return err
		}
	}
	select {
	case <-d.ends:
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.broken {
		return connect.NewError(connect.CodeInternal, errors.New("broken"))
	}
	return s.Send(&process.ConnectResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}}})
}

func (d *daemon) SendInput(_ context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("its input is closed"))
	}
	d.input.Write(r.Msg.GetInput().GetStdin())
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (d *daemon) CloseStdin(context.Context, *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed++; d.closed == 1 {
		close(d.ends)
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

func (d *daemon) SendSignal(context.Context, *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killed++
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// serve returns the requests to the daemon's sandbox.
func (d *daemon) serve() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(d))
	return mux
}

// TestInputOfAProcess checks that all input arrives, and its end; and that input that cannot be read or sent is reported
// while the output goes on.
func TestInputOfAProcess(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 7<<10)
	const takes = "e2bctl: proc attach: the process takes no input: "
	for name, tt := range map[string]struct {
		input  io.Reader
		full   bool
		want   string // the input that arrives
		closed int
		text   string // in the messages
	}{
		"no input":     {},
		"an empty one": {input: strings.NewReader(""), closed: 1},
		"a long one":   {input: strings.NewReader(long), want: long, closed: 1},
		"in pieces":    {input: iotest.OneByteReader(strings.NewReader("abc")), want: "abc", closed: 1},
		"with its end": {input: iotest.DataErrReader(strings.NewReader("abc")), want: "abc", closed: 1},
		"broken":       {input: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(errors.New("no disk"))), want: "abc", text: takes + "no disk\n"},
		"not taken":    {input: strings.NewReader("abc"), full: true, text: takes},
	} {
		d := &daemon{ends: make(chan struct{}), full: tt.full}
		sb := cmdtest.Sandbox(t, d.serve())
		var out, errs cmdtest.Output
		f := cmdutil.NewFactory(cmdutil.NewIOStreams(nil, &out, &errs), nil)
		ended := make(chan error, 1)
		go func() {
			ended <- attach(patience.Context(t), f, sb, 7, &sandbox.CommandConnectParams{Stdout: &out, MaxOutputBytes: -1}, tt.input)
		}()
		if tt.closed == 0 {
			patience.Until(t, name+": all is said", func() bool { return strings.Contains(out.String(), "out") && strings.Contains(errs.String(), tt.text) })
			close(d.ends)
		}
		must.Do(t, <-ended)
		if got := d.input.String(); got != tt.want || d.closed != tt.closed || out.String() != "out" {
			t.Errorf("%s: %d bytes of input arrived, and it was closed %d times, want %d and %d; the output is %q", name, len(got), d.closed, len(tt.want), tt.closed, out.String())
		}
		if got := errs.String(); !strings.HasPrefix(got, "process 7; Ctrl-C leaves it running\n") || tt.text == "" && strings.Count(got, "\n") != 1 {
			t.Errorf("%s: got the messages %q", name, got)
		}
	}
}

// TestEndsOfAttach checks the ends of attach beside that of the process: the user leaves it running, and knows how to go on
// with its output, or the cmdtest.Output of its output breaks.
func TestEndsOfAttach(t *testing.T) {
	t.Parallel()
	interrupted := errors.New("interrupted")
	for name, tt := range map[string]struct {
		from   *int64
		broken bool
		text   string
	}{
		"left":                    {text: "process 7; Ctrl-C leaves it running\nprocess 7 goes on in sandbox i1\n"},
		"left at an offset":       {from: new(int64(40)), text: "process 7; Ctrl-C leaves it running\nprocess 7 goes on in sandbox i1\n  --from 43 goes on with its output\n"},
		"a broken cmdtest.Output": {broken: true, text: "process 7; Ctrl-C leaves it running\n"},
		"an input that ends":      {text: "process 7; Ctrl-C leaves it running\nprocess 7 goes on in sandbox i1\n"},
	} {
		d := &daemon{ends: make(chan struct{}), broken: tt.broken}
		sb := cmdtest.Sandbox(t, d.serve())
		var out, errs cmdtest.Output
		f := cmdutil.NewFactory(cmdutil.NewIOStreams(nil, &out, &errs), nil)
		ctx, leave := context.WithCancelCause(patience.Context(t))
		ended := make(chan error, 1)
		var input io.Reader
		if name == "an input that ends" { // after the user has left, which is no failure of the input
			r, w := io.Pipe()
			defer w.Close()
			input = r
		}
		go func() {
			ended <- attach(ctx, f, sb, 7, &sandbox.CommandConnectParams{Stdout: &out, MaxOutputBytes: -1, From: tt.from}, input)
		}()
		patience.Until(t, name+": the output arrives", func() bool { return out.String() == "out" })
		if tt.broken {
			close(d.ends)
		} else {
			leave(interrupted)
		}
		err := <-ended
		own, isOwn := errors.AsType[*cmdutil.OwnError](err)
		if left := errors.Is(err, interrupted); isOwn != tt.broken || isOwn && !own.Running || left == tt.broken {
			t.Errorf("%s: got error %v, a failure of e2bctl: %v", name, err, isOwn)
		}
		if got := errs.String(); got != tt.text || d.killed > 0 {
			t.Errorf("%s: got the messages %q and %d signals, want %q and none", name, got, d.killed, tt.text)
		}
		leave(nil)
	}
}

// TestStreamsOfAttach checks what attach passes on, and from which byte on, by its flags and its standard input.
func TestStreamsOfAttach(t *testing.T) {
	t.Setenv("E2B_API_KEY", "e2b_00")
	for args, tt := range map[string]struct {
		input io.Reader
		from  string
		want  string // the input that arrives
	}{
		"":                     {nil, protocol.OutputFromNow, ""},
		"with input":           {strings.NewReader("abc"), protocol.OutputFromNow, "abc"},
		"with input -n":        {strings.NewReader("abc"), protocol.OutputFromNow, ""},
		"--from 0":             {nil, "0", ""},
		"with input --from 12": {strings.NewReader("abc"), "12", "abc"},
	} {
		d := &daemon{ends: make(chan struct{})}
		mux := d.serve()
		mux.HandleFunc("POST /v2/sandboxes/i1/connect", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13"}`)
		})
		server := httptest.NewServer(mux)
		t.Setenv("E2B_SANDBOX_URL", server.URL)
		if tt.want == "" {
			close(d.ends)
		}
		words := append([]string{"--api-url", server.URL, "--no-env-file", "proc", "attach", "i1", "7"}, strings.Fields(strings.TrimPrefix(args, "with input"))...)
		var out, errs cmdtest.Output
		must.Do(t, cmdtest.Execute(t, cmdutil.NewIOStreams(tt.input, &out, &errs), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdProc(f)} }, words...))
		if d.from != tt.from || d.input.String() != tt.want || out.String() != "out" {
			t.Errorf("%s: the output from %q on is %q, and the input is %q, want %q from %q on", args, d.from, out.String(), d.input.String(), tt.want, tt.from)
		}
		server.Close()
	}
}
