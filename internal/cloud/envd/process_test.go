//go:build linux

package envd

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// result is the output and the end of a stream.
type result struct {
	pid                 uint32
	stdout, stderr, pty string
	end                 *process.ProcessEvent_EndEvent
	keepalives          int
}

type eventStream interface {
	Receive() bool
	Err() error
	Close() error
}

type startStream struct {
	*connect.ServerStreamForClient[process.StartResponse]
}

func (s startStream) event() *process.ProcessEvent { return s.Msg().GetEvent() }

type connectStream struct {
	*connect.ServerStreamForClient[process.ConnectResponse]
}

func (s connectStream) event() *process.ProcessEvent { return s.Msg().GetEvent() }

func shell(script string) *process.StartRequest {
	return &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}},
		Stdin:   proto.Bool(false),
	}
}

// begin starts a process and waits for its start event.
func (d *daemon) begin(t *testing.T, req *connect.Request[process.StartRequest], options ...connect.ClientOption) (startStream, uint32) {
	t.Helper()
	s, err := d.processes(options...).Start(t.Context(), req)
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	if !s.Receive() {
		t.Fatalf("no start event: %v", s.Err())
	}
	return startStream{s}, s.Msg().GetEvent().GetStart().GetPid()
}

// attach connects to a process and waits for its start event.
func (d *daemon) attach(t *testing.T, ctx context.Context, selector *process.ProcessSelector) connectStream {
	t.Helper()
	s, err := d.processes().Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: selector}))
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	if !s.Receive() {
		t.Fatalf("no start event: %v", s.Err())
	}
	return connectStream{s}
}

func collect(s interface {
	eventStream
	event() *process.ProcessEvent
}) (result, error) {
	var r result
	var stdout, stderr, pty strings.Builder
	for s.Receive() {
		switch event := s.event().GetEvent().(type) {
		case *process.ProcessEvent_Start:
			r.pid = event.Start.GetPid()
		case *process.ProcessEvent_Data:
			stdout.Write(event.Data.GetStdout())
			stderr.Write(event.Data.GetStderr())
			pty.Write(event.Data.GetPty())
		case *process.ProcessEvent_End:
			r.end = event.End
		case *process.ProcessEvent_Keepalive:
			r.keepalives++
		}
	}
	r.stdout, r.stderr, r.pty = stdout.String(), stderr.String(), pty.String()
	return r, s.Err()
}

func (d *daemon) run(t *testing.T, req *process.StartRequest, options ...connect.ClientOption) result {
	t.Helper()
	s, pid := d.begin(t, connect.NewRequest(req), options...)
	r, err := collect(s)
	must.Do(t, err)
	r.pid = pid
	return r
}

func byPid(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

func byTag(tag string) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
}

func TestRun(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Envs = map[string]string{"GREETING": "hello"} })
	programs := t.TempDir()
	put(t, programs+"/data", "")
	must.Do(t, errors.Join(os.WriteFile(programs+"/orphan", []byte("#!/no/such/program\n"), 0o755), os.WriteFile(programs+"/script", []byte("echo script $1\n"), 0o755)))
	for name, test := range map[string]struct {
		req            *process.StartRequest
		stdout, stderr string
		end            *process.ProcessEvent_EndEvent
	}{
		"success": {
			shell(`echo out; echo err >&2`), "out\n", "err\n",
			&process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"},
		},
		"failure": {
			shell(`exit 3`), "", "",
			&process.ProcessEvent_EndEvent{ExitCode: 3, Exited: true, Status: "exit status 3", Error: proto.String("exit status 3")},
		},
		"signal": {
			shell(`kill -9 $$`), "", "",
			&process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed", Error: proto.String("signal: killed")},
		},
		"missing program": {
			&process.StartRequest{Process: &process.ProcessConfig{Cmd: "no-such-program"}}, "", "sh: 1: exec: no-such-program: not found\n",
			&process.ProcessEvent_EndEvent{ExitCode: 127, Exited: true, Status: "exit status 127", Error: proto.String("exit status 127")},
		},
		"no program": {
			&process.StartRequest{Process: &process.ProcessConfig{Cmd: programs + "/data"}}, "", "sh: 1: exec: " + programs + "/data: Permission denied\n",
			&process.ProcessEvent_EndEvent{ExitCode: 126, Exited: true, Status: "exit status 126", Error: proto.String("exit status 126")},
		},
		"missing interpreter": {
			&process.StartRequest{Process: &process.ProcessConfig{Cmd: programs + "/orphan"}}, "", "sh: 1: exec: " + programs + "/orphan: not found\n",
			&process.ProcessEvent_EndEvent{ExitCode: 127, Exited: true, Status: "exit status 127", Error: proto.String("exit status 127")},
		},
		"script without an interpreter": {
			&process.StartRequest{Process: &process.ProcessConfig{Cmd: programs + "/script", Args: []string{"a b"}}}, "script a b\n", "",
			&process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"},
		},
		"found in PATH": {
			&process.StartRequest{Process: &process.ProcessConfig{Cmd: "printf", Args: []string{"%s", "$x y"}}}, "$x y", "",
			&process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"},
		},
		"environment": {
			&process.StartRequest{Process: &process.ProcessConfig{
				Cmd: "/bin/sh", Args: []string{"-c", `echo $GREETING $NAME $HOME $USER $LOGNAME`}, Envs: map[string]string{"NAME": "you"},
			}}, "hello you " + d.home + " me me\n", "",
			&process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"},
		},
		"default cwd":    {shell(`pwd`), d.home + "\n", "", &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}},
		"stdin disabled": {shell(`cat`), "", "", &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}},
		"session of its own": {
			shell(`test "$(ps -o sid= -p $$ | tr -d ' ')" = $$ && echo yes`), "yes\n", "",
			&process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for codec, options := range map[string][]connect.ClientOption{"proto": nil, "json": {connect.WithProtoJSON()}, "grpc-web": {connect.WithGRPCWeb()}} {
				r := d.run(t, test.req, options...)
				if r.stdout != test.stdout || r.stderr != test.stderr {
					t.Errorf("%s: stdout %q, stderr %q, want %q and %q", codec, r.stdout, r.stderr, test.stdout, test.stderr)
				}
				if diff := cmp.Diff(test.end, r.end, protocmp.Transform()); diff != "" {
					t.Errorf("%s: end (-want +got):\n%s", codec, diff)
				}
			}
		})
	}
}

// TestWireBytes checks the bytes on which clients depend that decode frames by hand.
func TestWireBytes(t *testing.T) {
	t.Parallel()
	d := serve(t)
	res, body := d.do(t, "POST", "/process.Process/Start",
		envelope(`{"process":{"cmd":"/bin/sh","args":["-c","printf hi; exit 3"]},"stdin":false}`),
		"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1",
		"Connect-Accept-Encoding", "identity", "Connect-Content-Encoding", "identity")
	if got, want := res.Header.Get("Content-Type"), "application/connect+json"; got != want {
		t.Errorf("Content-Type %q, want %q", got, want)
	}
	var frames []string
	var pid int
	for rest := []byte(body); len(rest) >= 5; {
		n := int(binary.BigEndian.Uint32(rest[1:5]))
		payload := compact(t, rest[5:5+n])
		if len(frames) == 0 {
			if _, err := fmt.Sscanf(payload, `{"event":{"start":{"pid":%d}}}`, &pid); err != nil {
				t.Fatalf("start event %s: %v", payload, err)
			}
		}
		frames = append(frames, fmt.Sprintf("%d %s", rest[0], payload))
		rest = rest[5+n:]
	}
	want := []string{
		fmt.Sprintf(`0 {"event":{"start":{"pid":%d}}}`, pid),
		`0 {"event":{"data":{"stdout":"aGk="}}}`,
		`0 {"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}}}`,
		`2 {}`,
	}
	if diff := cmp.Diff(want, frames); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}

	_, body = d.do(t, "POST", "/process.Process/Connect", envelope(`{"process":{"pid":999999999}}`), "Content-Type", "application/connect+json")
	want = []string{"\x02\x00\x00\x00\x4f" + `{"error":{"code":"not_found","message":"process with pid 999999999 not found"}}`}
	if diff := cmp.Diff(want, []string{body}); diff != "" {
		t.Errorf("failed stream (-want +got):\n%s", diff)
	}
	for _, request := range []struct{ target, body, want string }{
		{"/process.Process/List", "\n{ }\n", `{}`},
		{"/process.Process/SendSignal", `{"process":{"pid":999999999},"signal":9}`, `{"code":"not_found","message":"process with pid 999999999 not found"}`},
		{"/process.Process/SendSignal", `{}`, `{"code":"unimplemented","message":"invalid input type \u003cnil\u003e"}`},
	} {
		_, body := d.do(t, "POST", request.target, request.body, "Content-Type", "application/json", "Content-Encoding", "identity", "Accept-Encoding", "identity")
		if body != request.want {
			t.Errorf("%s %s: %s, want %s", request.target, request.body, body, request.want)
		}
	}
}

// compact removes the white space that protojson adds at random.
func compact(t *testing.T, text []byte) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, json.Compact(&b, text))
	return b.String()
}

func TestStartRefused(t *testing.T) {
	t.Parallel()
	d := serve(t)
	file := d.home + "/file"
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for name, test := range map[string]struct {
		config  *process.ProcessConfig
		code    connect.Code
		message string
	}{
		"missing cwd":       {&process.ProcessConfig{Cmd: "true", Cwd: proto.String("/no/such")}, connect.CodeInvalidArgument, "cwd '/no/such' does not exist"},
		"cwd is a file":     {&process.ProcessConfig{Cmd: "true", Cwd: &file}, connect.CodeInvalidArgument, "is not a directory"},
		"cwd of a stranger": {&process.ProcessConfig{Cmd: "true", Cwd: proto.String("~you")}, connect.CodeInvalidArgument, "cannot expand"},
		"bad variable":      {&process.ProcessConfig{Cmd: "true", Envs: map[string]string{"": "x"}}, connect.CodeInvalidArgument, "cannot be the name"},
		"zero byte":         {&process.ProcessConfig{Cmd: "true", Args: []string{"a\x00b"}}, connect.CodeInvalidArgument, "start true as me"},
		"too long":          {&process.ProcessConfig{Cmd: "true", Args: []string{strings.Repeat("x", 1<<20)}}, connect.CodeInvalidArgument, "argument list too long"},
	} {
		s, err := d.processes().Start(t.Context(), connect.NewRequest(&process.StartRequest{Process: test.config}))
		must.Do(t, err)
		if s.Receive() {
			t.Errorf("%s: an event came", name)
		}
		if connect.CodeOf(s.Err()) != test.code || !strings.Contains(s.Err().Error(), test.message) {
			t.Errorf("%s: %v, want %v with %q", name, s.Err(), test.code, test.message)
		}
		s.Close()
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ctx := t.Context()
	s, pid := d.begin(t, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}, Tag: proto.String("echo")}))
	for _, part := range []string{"one ", "two "} {
		_, err := d.processes().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
			Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(part)}},
		}))
		must.Do(t, err)
	}
	in := d.processes().StreamInput(ctx)
	for _, msg := range []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byTag("echo")}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{
			Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("three")}}}}},
	} {
		must.Do(t, in.Send(msg))
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.processes().CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byPid(pid)})); err != nil {
		t.Errorf("CloseStdin: %v", err)
	}
	r, err := collect(s)
	if err != nil || r.stdout != "one two three" || r.end.GetExitCode() != 0 {
		t.Errorf("got %+v, %v, want stdout %q, exit code 0 and no error", r, err, "one two three")
	}
}

func TestInputRefused(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ctx := t.Context()
	_, pid := d.begin(t, connect.NewRequest(shell(`exec sleep 60`)))
	for name, test := range map[string]struct {
		input *process.ProcessInput
		code  connect.Code
		want  string
	}{
		"stdin disabled": {&process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}, connect.CodeInternal, "internal: error writing to stdin: stdin not enabled or closed"},
		"no terminal":    {&process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("x")}}, connect.CodeInternal, "internal: error writing to tty: tty not assigned to process: input should be written to stdin, not to the pty"},
		"nothing":        {nil, connect.CodeUnimplemented, "unimplemented: "},
	} {
		_, err := d.processes().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: byPid(pid), Input: test.input}))
		if connect.CodeOf(err) != test.code || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %v with %q", name, err, test.code, test.want)
		}
	}
	_, err := d.processes().Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: byPid(pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 1, Rows: 1}}}))
	if connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("Update: %v, want internal", err)
	}
	if _, err := d.processes().Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: byPid(pid)})); err != nil {
		t.Errorf("Update of nothing: %v", err)
	}
	_, err = d.processes().SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{Process: byPid(pid), Signal: 2}))
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("SendSignal(2): %v, want unimplemented", err)
	}
}

func TestCloseStdinTwice(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for _, req := range []*process.StartRequest{
		shell(`exec sleep 60`), // it never had a stdin
		{Process: &process.ProcessConfig{Cmd: "sleep", Args: []string{"60"}}},
	} {
		_, pid := d.begin(t, connect.NewRequest(req))
		for range 2 {
			if _, err := d.processes().CloseStdin(t.Context(), connect.NewRequest(&process.CloseStdinRequest{Process: byPid(pid)})); err != nil {
				t.Errorf("CloseStdin: %v", err)
			}
		}
	}
}

// TestInputGivesUp writes more than a pipe holds to a process that does not read.
func TestInputGivesUp(t *testing.T) {
	t.Parallel()
	d := serve(t)
	_, pid := d.begin(t, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "sleep", Args: []string{"60"}}}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := d.processes().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
		Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}},
	}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("SendInput: %v, want deadline_exceeded", err)
	}
	// The next process is not held up by it: this one is still there to be killed.
	d.kill(t, pid, process.Signal_SIGNAL_SIGKILL)
}

func (d *daemon) kill(t *testing.T, pid uint32, signal process.Signal) {
	t.Helper()
	_, err := d.processes().SendSignal(t.Context(), connect.NewRequest(&process.SendSignalRequest{Process: byPid(pid), Signal: signal}))
	must.Do(t, err)
}

// TestKillReachesGroup ends a shell with a child that holds its output.
func TestKillReachesGroup(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, pid := d.begin(t, connect.NewRequest(shell(`sleep 600 & echo $!; wait`)))
	if !s.Receive() {
		t.Fatalf("got %v, want a message", s.Err())
	}
	var child int
	if _, err := fmt.Sscan(string(s.event().GetData().GetStdout()), &child); err != nil {
		t.Fatal(err)
	}
	d.kill(t, pid, process.Signal_SIGNAL_SIGTERM)
	r, err := collect(s)
	if want := "signal: terminated"; err != nil || r.end.GetStatus() != want {
		t.Errorf("end %v, %v, want status %q and no error", r.end, err, want)
	}
	patience.Until(t, "the end of the child", func() bool {
		state := stateOf(child)
		return state == "" || state == "Z"
	})
}

// stateOf returns the state letter of a process, or "" if there is none.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[0]
}

// TestKillLiftsWait ends the stream even though a detached process keeps the output
// open.
func TestKillLiftsWait(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, pid := d.begin(t, connect.NewRequest(shell(`setsid sh -c 'echo $$; exec sleep 600' & echo last; sleep 0.1; exit 0`)))
	var out string
	var detached int
	for detached == 0 {
		if !s.Receive() {
			t.Fatalf("got %v, want a message", s.Err())
		}
		out += string(s.event().GetData().GetStdout())
		for line := range strings.Lines(out) {
			_, _ = fmt.Sscan(line, &detached)
		}
	}
	t.Cleanup(func() { _ = syscall.Kill(detached, syscall.SIGKILL) })
	d.kill(t, pid, process.Signal_SIGNAL_SIGTERM)
	r, err := collect(s)
	if err != nil || r.end == nil || !strings.Contains(out+r.stdout, "last") {
		t.Errorf("got %+v, %v, want an end, %q in its output and no error", r, err, "last")
	}
}

func TestDeadlineKills(t *testing.T) {
	t.Parallel()
	d := serve(t)
	inTime(t, 150*time.Millisecond, func(limit time.Duration) bool {
		req := connect.NewRequest(shell(`echo $$; sleep 600; true`))
		req.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(limit.Milliseconds(), 10))
		s, err := d.processes().Start(t.Context(), req)
		must.Do(t, err)
		defer s.Close()
		if !s.Receive() {
			return wantTimeUp(t, s.Err())
		}
		watching := d.attach(t, t.Context(), byPid(s.Msg().GetEvent().GetStart().GetPid()))
		r, err := collect(startStream{s})
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded || r.end != nil {
			t.Errorf("Start: end %v, %v, want deadline_exceeded without an end", r.end, err)
		}
		// The process has ended, and all others receive its end.
		seen, err := collect(watching)
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded && seen.end.GetStatus() != "signal: killed" {
			t.Errorf("Connect: end %v, %v", seen.end, err)
		}
		return true
	})
}

// inTime calls f with a limit, and then with longer ones until f reports that the limit was
// not too early. On a busy machine it may end before there is anything to see.
func inTime(t *testing.T, limit time.Duration, f func(limit time.Duration) bool) {
	t.Helper()
	for ; limit < patience.Limit; limit *= 2 {
		if f(limit) {
			return
		}
	}
	t.Fatalf("even %v were over too early", limit/2)
}

// wantTimeUp fails the test unless err means that the time is over. It returns false, for
// inTime.
func wantTimeUp(t *testing.T, err error) bool {
	t.Helper()
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Fatalf("got %v, want deadline_exceeded", err)
	}
	return false
}

// TestDeadlineOfConnect ends the stream and leaves the process alone.
func TestDeadlineOfConnect(t *testing.T) {
	t.Parallel()
	d := serve(t)
	_, pid := d.begin(t, connect.NewRequest(shell(`sleep 600`)))
	inTime(t, 200*time.Millisecond, func(limit time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		s, err := d.processes().Connect(ctx, connect.NewRequest(&process.ConnectRequest{Process: byPid(pid)}))
		if err != nil {
			return wantTimeUp(t, err)
		}
		defer s.Close()
		if !s.Receive() {
			return wantTimeUp(t, s.Err())
		}
		if _, err := collect(connectStream{s}); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("Connect: %v, want deadline_exceeded", err)
		}
		return true
	})
	d.kill(t, pid, process.Signal_SIGNAL_SIGKILL)
}

// TestDisconnect leaves a process running after its client has gone. The process can be
// found and connected to again.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, pid := d.begin(t, connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "read x; echo got $x"}}, Tag: proto.String("waiting"),
	}))
	r, err := d.server.processes.find(byPid(pid))
	must.Do(t, err)
	s.Close()
	patience.Until(t, "the end of the subscription", func() bool { return len(r.output.current()) == 0 })
	list, err := d.processes().List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	must.Do(t, err)
	want := []*process.ProcessInfo{{
		Config: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "read x; echo got $x"}}, Pid: pid, Tag: proto.String("waiting"),
	}}
	if diff := cmp.Diff(want, list.Msg.GetProcesses(), protocmp.Transform()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	again := d.attach(t, t.Context(), byTag("waiting"))
	if _, err := d.processes().SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{
		Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("it\n")}},
	})); err != nil {
		t.Fatal(err)
	}
	got, err := collect(again)
	if err != nil || got.stdout != "got it\n" || got.end.GetExitCode() != 0 {
		t.Errorf("got %+v, %v, want stdout %q, exit code 0 and no error", got, err, "got it\n")
	}

	// Its end is kept for a while, but it is no longer listed.
	late := d.attach(t, t.Context(), byPid(pid))
	if r, err := collect(late); err != nil || r.end.GetStatus() != "exit status 0" {
		t.Errorf("late Connect: %+v, %v, want status %q and no error", r, err, "exit status 0")
	}
	list, err = d.processes().List(t.Context(), connect.NewRequest(&process.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 0 {
		t.Errorf("List: %v, %v, want none", list, err)
	}
}

func TestKeepalive(t *testing.T) {
	t.Parallel()
	d := serve(t)
	req := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "cat"}})
	req.Header().Set("Keepalive-Ping-Interval", "1")
	began := time.Now()
	s, pid := d.begin(t, req)
	if !s.Receive() || s.event().GetKeepalive() == nil {
		t.Fatalf("got %v, %v, want a sign of life", s.event(), s.Err())
	}
	if after := time.Since(began); after < time.Second {
		t.Errorf("a sign of life after %v, want none before %v", after, time.Second)
	}
	d.kill(t, pid, process.Signal_SIGNAL_SIGKILL)
	if r, err := collect(s); err != nil || r.end == nil {
		t.Errorf("got the end %v, %v, want one and no error", r.end, err)
	}
}

func TestKeepaliveInterval(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"": 90 * time.Second, "50": 50 * time.Second, "0": 90 * time.Second, "1": time.Second, "86400": 24 * time.Hour, "86401": 90 * time.Second, "-1": 90 * time.Second, "x": 90 * time.Second, "99999999999": 90 * time.Second} {
		if got := keepaliveInterval(http.Header{"Keepalive-Ping-Interval": {value}}); got != want {
			t.Errorf("keepaliveInterval(%q) = %v, want %v", value, got, want)
		}
	}
}

// TestCloseEndsEverything closes envd while a process runs whose output no client reads.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	d := serve(t)
	_, pid := d.begin(t, connect.NewRequest(shell(`while :; do echo yes yes yes yes yes yes yes; done`)))
	must.Do(t, d.server.Close())
	if state := stateOf(int(pid)); state != "" {
		t.Errorf("the process goes on, in state %s", state)
	}
	s, err := d.processes().Start(t.Context(), connect.NewRequest(shell(`true`)))
	must.Do(t, err)
	defer s.Close()
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeUnavailable {
		t.Errorf("Start after Close: %v, want unavailable", s.Err())
	}
}

// TestThroughput reads a lot of output and checks that all of it arrived, in order.
func TestThroughput(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const size = 64 << 20
	s, _ := d.begin(t, connect.NewRequest(shell(fmt.Sprintf("yes 0123456789abcde | head -c %d", size))))
	began := time.Now()
	pattern := []byte(strings.Repeat("0123456789abcde\n", 4<<10))
	n := 0
	var end *process.ProcessEvent_EndEvent
	for s.Receive() {
		data := s.event().GetData().GetStdout()
		if len(data) > maxChunk {
			t.Fatalf("an event of %d bytes, want at most %v", len(data), maxChunk)
		}
		if !bytes.HasPrefix(pattern[n%16:], data) {
			t.Fatalf("wrong bytes at %d", n)
		}
		n += len(data)
		if s.event().GetEnd() != nil {
			end = s.event().GetEnd()
		}
	}
	if err := s.Err(); err != nil || n != size || end.GetExitCode() != 0 {
		t.Errorf("%d of %d bytes, end %v, %v", n, size, end, err)
	}
	t.Logf("%.0f MB/s", float64(size)/time.Since(began).Seconds()/1e6)
}

// TestSlowReader checks that a process waits for its only reader, that memory stays
// bounded, and that the reader gets everything when it finally reads.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	d := serve(t)
	d.hesitate(t)
	const size = 64 << 20
	marker := d.home + "/written"
	s, pid := d.begin(t, connect.NewRequest(shell(fmt.Sprintf(`head -c %d /dev/zero; echo >%s`, size, marker))))
	r, err := d.server.processes.find(byPid(pid))
	must.Do(t, err)
	patience.Until(t, "a full queue", func() bool { return len(r.output.current()[0].chunks) == queuedChunks })
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the process wrote %d bytes that nobody read: %v, want os.ErrNotExist", size, err)
	}
	got, err := collect(s)
	if err != nil || len(got.stdout) != size {
		t.Errorf("%d bytes, %v, want %d and no error", len(got.stdout), err, size)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error(err)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/ptmx"); err != nil {
		t.Skip("no /dev/ptmx")
	}
	d := serve(t)
	ctx := t.Context()
	s, pid := d.begin(t, connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", `stty size; tty >/dev/null && echo tty; read line; stty size; exit 4`}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}},
	}))
	var seen string
	for !strings.Contains(seen, "tty\r\n") {
		if !s.Receive() {
			t.Fatalf("got %q, %v, want a message", seen, s.Err())
		}
		seen += string(s.event().GetData().GetPty())
	}
	if !strings.HasPrefix(seen, "24 80\r\n") {
		t.Errorf("%q, want the size 24 80 first", seen)
	}
	if _, err := d.processes().Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: byPid(pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 100, Rows: 30}}})); err != nil {
		t.Fatal(err)
	}
	if _, err := d.processes().CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: byPid(pid)})); connect.CodeOf(err) != connect.CodeUnknown {
		t.Errorf("CloseStdin: %v, want unknown", err)
	}
	if _, err := d.processes().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
		Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}},
	})); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("SendInput stdin: %v, want internal", err)
	}
	if _, err := d.processes().SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
		Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("go\n")}},
	})); err != nil {
		t.Fatal(err)
	}
	r, err := collect(s)
	if err != nil || r.end.GetExitCode() != 4 {
		t.Errorf("got %+v, %v, want exit code 4 and no error", r, err)
	}
	if !strings.HasSuffix(r.pty, "30 100\r\n") || r.stdout != "" {
		t.Errorf("got the terminal %q and stdout %q, want %q at the end, and none", r.pty, r.stdout, "30 100\r\n")
	}
}

// TestTerminalInterrupted types lines, with Ctrl-C between them, into a program that asks
// its terminal to keep pending input: every line arrives, in order. (Otherwise a terminal
// drops all unread input at Ctrl-C.)
func TestTerminalInterrupted(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/ptmx"); err != nil {
		t.Skip("no /dev/ptmx")
	}
	d := serve(t)
	const script = `
import signal, sys, termios
interrupts = []
signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
mode = termios.tcgetattr(0)
mode[3] = mode[3] & ~termios.ECHO | termios.NOFLSH
termios.tcsetattr(0, termios.TCSANOW, mode)
print("ready", flush=True)
lines = iter(sys.stdin.readline, "end\n")
print("in order:", list(lines) == ["%d\n" % i for i in range(500)], "interrupted:", len(interrupts) > 0)`
	s, pid := d.begin(t, connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "python3", Args: []string{"-c", script}}, Pty: &process.PTY{},
	}))
	for seen := ""; !strings.Contains(seen, "ready\r\n"); {
		if !s.Receive() {
			t.Fatalf("got %q, %v, want a message", seen, s.Err())
		}
		seen += string(s.event().GetData().GetPty())
	}
	send := func(text string) {
		t.Helper()
		_, err := d.processes().SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{
			Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(text)}},
		}))
		must.Do(t, err)
	}
	for i := range 500 {
		if i%2 == 0 {
			send("\x03")
			send(fmt.Sprintf("%d\n", i))
		} else {
			send(fmt.Sprintf("\x03%d\n\x03", i))
		}
	}
	send("end\n")
	if r, err := collect(s); err != nil || !strings.HasSuffix(r.pty, "in order: True interrupted: True\r\n") {
		t.Errorf("got %+v, %v, want %q at the end and no error", r, err, "in order: True interrupted: True\r\n")
	}
}

// TestCredential runs a process as another user, if the test may do that.
func TestCredential(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may run processes as somebody else")
	}
	home := t.TempDir()
	must.Do(t, os.Chmod(filepath.Dir(home), 0o755))
	d := serve(t, func(o *Options) {
		o.Users = append(o.Users, User{
			Name: "user", UID: 1000, GID: 1001, Home: home,
			Credential: &syscall.Credential{Uid: 1000, Gid: 1001, Groups: []uint32{1002}},
		})
	})
	req := connect.NewRequest(shell(`id -u; id -g; id -G; echo $USER`))
	req.Header().Set("Authorization", basic("user"))
	s, _ := d.begin(t, req)
	r, err := collect(s)
	if want := "1000\n1001\n1001 1002\nuser\n"; err != nil || r.stdout != want {
		t.Errorf("got %+v, %v, want stdout %q and no error", r, err, want)
	}

	if res, body := d.do(t, "POST", "/files?username=user&path=a/b/c", "x", "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
		t.Fatalf("upload: %d %s, want 200", res.StatusCode, body)
	}
	for _, name := range []string{"a", "a/b", "a/b/c"} {
		info, err := os.Stat(home + "/" + name)
		must.Do(t, err)
		if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 1000 || stat.Gid != 1001 {
			t.Errorf("%s belongs to %d:%d, want 1000:1001", name, stat.Uid, stat.Gid)
		}
	}
}

func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ps := d.server.processes
	ps.mu.Lock()
	ps.starting += maxProcesses // until the end of the test
	ps.mu.Unlock()
	defer func() {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.starting -= maxProcesses
	}()
	s, err := d.processes().Start(t.Context(), connect.NewRequest(shell("true")))
	must.Do(t, err)
	defer s.Close()
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeResourceExhausted || !strings.Contains(s.Err().Error(), "1024") {
		t.Errorf("Start: %v, want the bound named", s.Err())
	}
}

// TestManyAtOnce starts many processes and mixes up none of them.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	d := serve(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			s, err := d.processes().Start(t.Context(), connect.NewRequest(shell(fmt.Sprintf("echo %d; exit %d", i, i%7))))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			r, err := collect(startStream{s})
			if err != nil || r.stdout != fmt.Sprintln(i) || r.end.GetExitCode() != int32(i%7) {
				t.Errorf("%d: got %+v, %v, want stdout %q, exit code %v and no error", i, r, err, fmt.Sprintln(i), int32(i%7))
			}
		})
	}
	wg.Wait()
}
