//go:build linux

package envd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// again asks for the output of a process from an offset, as after a cut. header has further headers and
// their values in turn.
func (d *daemon) again(t *testing.T, selector *process.ProcessSelector, from string, header ...string) connectStream {
	t.Helper()
	req := connect.NewRequest(&process.ConnectRequest{Process: selector})
	req.Header().Set(protocol.HeaderOutputFrom, from)
	for i := 0; i < len(header); i += 2 {
		req.Header().Set(header[i], header[i+1])
	}
	s, err := d.processes().Connect(t.Context(), req)
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	return connectStream{s}
}

// resumable is a request for a process whose output can be asked for again.
func resumable(script, id string) *connect.Request[process.StartRequest] {
	req := connect.NewRequest(shell(script))
	req.Msg.Stdin = nil
	req.Header().Set(protocol.HeaderOutputFrom, "0")
	req.Header().Set(protocol.HeaderOutputOf, id)
	return req
}

func wantOffsets(t *testing.T, header http.Header, stream, from, of string) {
	t.Helper()
	for name, want := range map[string]string{protocol.HeaderOutputStream: stream, protocol.HeaderOutputFrom: from, protocol.HeaderOutputOf: of} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestOutputAgain checks which output of a running process, and later of an ended one, a client gets that
// connects again, and that its earlier stream ends.
func TestOutputAgain(t *testing.T) {
	t.Parallel()
	d := serve(t)
	first, pid := d.begin(t, resumable("printf 0123456789; read a; printf abc; exit 3", "mine"))
	wantOffsets(t, first.ResponseHeader(), "1", "0", "mine")
	if !first.Receive() || string(first.event().GetData().GetStdout()) != "0123456789" {
		t.Fatalf("got %v and error %v, want the output", first.Msg(), first.Err())
	}
	second := d.again(t, byPid(pid), "4", protocol.HeaderOutputOf, "mine", protocol.HeaderOutputStream, "1")
	if first.Receive() || connect.CodeOf(first.Err()) != connect.CodeAborted {
		t.Errorf("the replaced stream: got %v and error %v, want %v", first.Msg(), first.Err(), connect.CodeAborted)
	}
	third := d.again(t, byPid(pid), protocol.OutputFromNow)
	for name, tt := range map[string]struct {
		s            connectStream
		stream, from string
	}{"from byte 4": {second, "2", "4"}, "from now on": {third, "3", "10"}} {
		if !tt.s.Receive() || tt.s.event().GetStart().GetPid() != pid {
			t.Fatalf("%s: got %v and error %v, want the start", name, tt.s.Msg(), tt.s.Err())
		}
		wantOffsets(t, tt.s.ResponseHeader(), tt.stream, tt.from, "mine")
	}
	input := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("\n")}}
	_, err := d.processes().SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{Process: byPid(pid), Input: input}))
	must.Do(t, err)
	for want, s := range map[string]connectStream{"456789abc": second, "abc": third} {
		if r, err := collect(s); err != nil || r.stdout != want || r.end.GetExitCode() != 3 {
			t.Errorf("got %q, end %v and error %v, want %q and exit code 3", r.stdout, r.end, err, want)
		}
	}
	for from, want := range map[string]string{"0": "0123456789abc", "12": "c", "13": "", protocol.OutputFromNow: ""} {
		s := d.again(t, byPid(1), from, protocol.HeaderOutputOf, "mine")
		if r, err := collect(s); err != nil || r.pid != pid || r.stdout != want || r.end.GetExitCode() != 3 {
			t.Errorf("after the end, from %s: got %+v and error %v, want %q and the end", from, r, err, want)
		}
	}
}

// TestRefusedOffsets checks which requests for output, and which reports of received bytes, are refused,
// and the effect of a report.
func TestRefusedOffsets(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, pid := d.begin(t, resumable("printf 0123456789; read a", "mine"))
	if !s.Receive() {
		t.Fatalf("got error %v, want output", s.Err())
	}
	running, err := d.server.processes.find(byPid(pid))
	must.Do(t, err)
	long := strings.Repeat("x", maxID)
	for _, tt := range []struct {
		from, of string
		want     connect.Code // 0: none
	}{
		{"0", "mine", 0}, {"10", "mine", 0}, {"0", "", 0}, {protocol.OutputFromNow, "mine", 0},
		{"11", "mine", connect.CodeOutOfRange},
		{"-1", "mine", connect.CodeInvalidArgument}, {"x", "mine", connect.CodeInvalidArgument}, {"9223372036854775808", "mine", connect.CodeInvalidArgument},
		{"0", "another", connect.CodeNotFound}, {"0", long, connect.CodeNotFound}, {"0", long + "x", connect.CodeInvalidArgument},
	} {
		again := d.again(t, byPid(pid), tt.from, protocol.HeaderOutputOf, tt.of)
		if again.Receive() != (tt.want == 0) || tt.want != 0 && connect.CodeOf(again.Err()) != tt.want {
			t.Errorf("output of %.20q from %s: got error %v, want %v", tt.of, tt.from, again.Err(), tt.want)
		}
		_ = again.Close() // nothing more is read
		report := connect.NewRequest(&process.UpdateRequest{Process: byPid(pid)})
		report.Header().Set(protocol.HeaderOutputStream, "1")
		report.Header().Set(protocol.HeaderOutputFrom, tt.from)
		report.Header().Set(protocol.HeaderOutputOf, tt.of)
		if _, err := d.processes().Update(t.Context(), report); (err == nil) != (tt.want == 0) || err != nil && connect.CodeOf(err) != tt.want {
			t.Errorf("a report of %s bytes of %.20q: got error %v, want %v", tt.from, tt.of, err, tt.want)
		}
	}
	running.output.mu.Lock()
	received := running.output.subscribers[0].received
	running.output.mu.Unlock()
	if received != 10 {
		t.Errorf("the client is known to have %d bytes, want 10", received)
	}
	start := resumable("true", long+"x")
	if refused, err := d.processes().Start(t.Context(), start); err != nil || refused.Receive() || connect.CodeOf(refused.Err()) != connect.CodeInvalidArgument {
		t.Errorf("a start with an id that is too long: got error %v, want it to be refused", err)
	}
}

// TestIDsOfProcesses checks that each process gets an id of its own if the client chooses none, and that
// an answer has offsets only if the client asks for them.
func TestIDsOfProcesses(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ids := map[string]bool{}
	for range 3 {
		s, _ := d.begin(t, resumable("true", ""))
		ids[s.ResponseHeader().Get(protocol.HeaderOutputOf)] = true
	}
	if len(ids) != 3 || ids[""] {
		t.Errorf("got the ids %v, want three", ids)
	}
	s, _ := d.begin(t, connect.NewRequest(shell("true")))
	wantOffsets(t, s.ResponseHeader(), "", "", "")
}

// TestStreamsOfOneProcessAreBounded checks the bound with requests, for a client that connects again and
// for one that does not, and that a place that becomes free can be used.
func TestStreamsOfOneProcessAreBounded(t *testing.T) {
	t.Parallel()
	d := serve(t)
	_, pid := d.begin(t, resumable("read a", "mine"))
	running, err := d.server.processes.find(byPid(pid))
	must.Do(t, err)
	var last *subscriber
	for range maxSubscribers - 1 {
		last, err = running.output.subscribe()
		must.Do(t, err)
	}
	refused := func(s connectStream) bool {
		return !s.Receive() && connect.CodeOf(s.Err()) == connect.CodeResourceExhausted
	}
	plain, err := d.processes().Connect(t.Context(), connect.NewRequest(&process.ConnectRequest{Process: byPid(pid)}))
	must.Do(t, err)
	defer plain.Close()
	if !refused(connectStream{plain}) || !refused(d.again(t, byPid(pid), "0")) {
		t.Errorf("got a stream more than %d, want it to be refused", maxSubscribers)
	}
	running.output.unsubscribe(last)
	if s := d.again(t, byPid(pid), "0"); !s.Receive() {
		t.Errorf("in the place of another: got error %v", s.Err())
	}
}

// TestReplayed checks that kept output is sent again in events of their greatest size, and that its
// memory is free afterwards. It runs alone, so that a replay without an end fails here.
func TestReplayed(t *testing.T) { //nolint:paralleltest // see above
	for _, of := range []stream{stdout, stderr, terminal} {
		for beyond, want := range map[int][]int{-1: {of.limit() - 1}, 0: {of.limit()}, 1: {of.limit(), 1}} {
			b := newBudget()
			o, first := newOutput(b)
			o.unsubscribe(first)
			p := piece{of: of, data: make([]byte, of.limit()+beyond), in: newChunk(of)}
			s := newSubscriber()
			s.replay = []piece{p}
			sizes := make(chan []int)
			go func() {
				var got []int
				for from, data := s.replayed(); data != nil; from, data = s.replayed() {
					if from != of {
						got = append(got, -1)
					}
					got = append(got, len(data))
				}
				sizes <- got
			}()
			if got := patience.Receive(t, "the end of the replay", sizes); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%d bytes beyond the limit of %d: got events of %v bytes, want %v", beyond, of.limit(), got, want)
			}
			if n := p.in.refs.Load(); n != 0 {
				t.Errorf("the chunk is held %d times", n)
			}
		}
	}
	if stdout.limit() != 64<<10 || stderr.limit() != 64<<10 || terminal.limit() != 16<<10 {
		t.Errorf("the limits are %d, %d and %d", stdout.limit(), stderr.limit(), terminal.limit())
	}
}
