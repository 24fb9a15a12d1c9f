package sshserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
)

// journal records events with the time since its beginning.
type journal struct {
	began time.Time

	mu     sync.Mutex
	events []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, time.Since(j.began).String()+" "+fmt.Sprintf(format, args...))
}

// all returns the events, once nothing else happens. The caller must be in a bubble.
func (j *journal) all() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

// relayDaemon is a sandbox that runs one relay, as a test plays it.
type relayDaemon struct {
	processconnect.UnimplementedProcessHandler
	*journal

	play   func(r *playedRelay) error // until the end of the relay
	killed chan struct{}
	hangs  bool // signals are not answered
}

// playedRelay is a relay that a test plays.
type playedRelay struct {
	*relayDaemon
	marker string          // of a relay to a socket
	cut    <-chan struct{} // closed when nobody reads the output
	to     *rpc.ServerStream[process.StartResponse]
}

func (d *relayDaemon) Start(ctx context.Context, r *rpc.Request[process.StartRequest], to *rpc.ServerStream[process.StartResponse]) error {
	relay := &playedRelay{relayDaemon: d, cut: ctx.Done(), to: to}
	if _, words, ok := strings.Cut(strings.Join(r.Msg.GetProcess().GetArgs(), " "), "set -- "); ok {
		relay.marker = strings.Fields(words)[1]
	}
	err := to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}})
	if err != nil {
		return err
	}
	return d.play(relay)
}

func (d *relayDaemon) SendInput(_ context.Context, r *rpc.Request[process.SendInputRequest]) (*rpc.Response[process.SendInputResponse], error) {
	d.note("input %s", r.Msg.GetInput().GetStdin())
	return rpc.NewResponse(&process.SendInputResponse{}), nil
}

func (d *relayDaemon) CloseStdin(context.Context, *rpc.Request[process.CloseStdinRequest]) (*rpc.Response[process.CloseStdinResponse], error) {
	d.note("end of input")
	return rpc.NewResponse(&process.CloseStdinResponse{}), nil
}

func (d *relayDaemon) SendSignal(ctx context.Context, r *rpc.Request[process.SendSignalRequest]) (*rpc.Response[process.SendSignalResponse], error) {
	d.note("%v", r.Msg.GetSignal())
	if d.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	close(d.killed)
	return rpc.NewResponse(&process.SendSignalResponse{}), nil
}

// print sends output of the relay.
func (r *playedRelay) print(stdout string) error {
	return r.to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{
		Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(stdout)}},
	}}})
}

// exit ends the relay, after a line of its error output.
func (r *playedRelay) exit(status int32, stderr string) error {
	return errors.Join(
		r.to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{
			Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte(stderr)}},
		}}}),
		r.to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{
			End: &process.ProcessEvent_EndEvent{Exited: true, ExitCode: status, Status: fmt.Sprintf("exit status %d", status)},
		}}}),
	)
}

// offer is a channel that a client wants to open, and then the channel itself.
type offer struct {
	ssh.Channel
	*journal

	data     []byte // nil: the path of a socket
	refuses  error  // of Accept
	read     *io.PipeReader
	requests chan *ssh.Request
	closing  sync.Once
}

func (*offer) ChannelType() string { return "direct-streamlocal@openssh.com" }

func (o *offer) ExtraData() []byte {
	if o.data != nil {
		return o.data
	}
	return ssh.Marshal(socketRequest{Path: "/s"})
}

func (o *offer) Reject(reason ssh.RejectionReason, message string) error {
	o.note("rejected: %s", message)
	if prohibited := strings.Contains(message, "forwards ports of the sandbox only"); prohibited != (reason == ssh.Prohibited) {
		o.note("for the reason %v", reason)
	}
	return nil
}

func (o *offer) Accept() (ssh.Channel, <-chan *ssh.Request, error) {
	o.note("accepted")
	return o, o.requests, o.refuses
}

func (o *offer) Read(p []byte) (int, error) { return o.read.Read(p) }

func (o *offer) Write(p []byte) (int, error) {
	o.note("output %s", p)
	return len(p), nil
}

func (o *offer) CloseWrite() error {
	o.note("end of output")
	return nil
}

func (o *offer) Close() error {
	o.closing.Do(func() {
		o.note("closed")
		o.leave()
	})
	return nil
}

func (*offer) Stderr() io.ReadWriter { return new(bytes.Buffer) }

func (o *offer) SendRequest(name string, _ bool, _ []byte) (bool, error) {
	o.note("%s", name)
	return true, nil
}

// leave ends the client's side of the channel.
func (o *offer) leave() {
	_ = o.read.Close()
	close(o.requests)
}

// TestTimesOfSocketRelays checks each step of a connection to a socket, and when the connection ends.
func TestTimesOfSocketRelays(t *testing.T) {
	t.Parallel()
	waits := func(r *playedRelay) error {
		select {
		case <-r.killed:
		case <-r.cut:
		}
		return r.exit(0, "")
	}
	connects := func(r *playedRelay) error { return errors.Join(r.print("profile"+r.marker), waits(r)) }
	gone := errors.New("gone")
	for name, tt := range map[string]struct {
		play    func(r *playedRelay) error
		client  func(o *offer, typed *io.PipeWriter, end func()) // after an hour, which is more than any limit
		refuses error                                            // of the client, when its channel is accepted
		broke   int
		want    []string
	}{
		"nobody listens": {waits, nil, nil, 0, []string{"1m0s SIGNAL_SIGKILL", `1m0s rejected: "/s" in the sandbox: its server accepted no connection for 1m0s`}},
		"it is refused": {func(r *playedRelay) error { return r.exit(1, "first\nno such file\n") }, nil, nil, 0,
			[]string{`0s rejected: "/s" in the sandbox: no such file`}},
		"it breaks before": {func(*playedRelay) error { return rpc.NewError(rpc.CodePermissionDenied, gone) }, nil, nil, 1, []string{"0s rejected: broken"}},
		"it breaks": {func(r *playedRelay) error {
			return errors.Join(r.print(r.marker), rpc.NewError(rpc.CodePermissionDenied, gone))
		}, nil, nil, 1, []string{"0s accepted", "0s closed"}},
		"it ends":  {func(r *playedRelay) error { return errors.Join(r.print(r.marker), r.exit(0, "")) }, nil, nil, 0, []string{"0s accepted", "0s closed"}},
		"it fails": {func(r *playedRelay) error { return errors.Join(r.print(r.marker), r.exit(1, "")) }, nil, nil, 0, []string{"0s accepted", "0s closed"}},
		"the server ends first": {func(r *playedRelay) error {
			return errors.Join(r.print(r.marker+"text"), r.exit(0, r.marker+" 4\n"))
		}, nil, nil, 0, []string{"0s accepted", "0s output text", "0s end of output", "0s closed"}},
		"the client is gone": {connects, nil, gone, 0, []string{"0s accepted", "0s SIGNAL_SIGKILL"}},
		"the client goes": {connects, func(o *offer, typed *io.PipeWriter, _ func()) {
			_, _ = typed.Write([]byte("last"))
			_ = typed.Close()
			o.closing.Do(o.leave)
		}, nil, 0, []string{"0s accepted", "1h0m0s input last", "1h0m0s end of input", "1h0m5s SIGNAL_SIGKILL"}},
		"the connection ends": {connects, func(_ *offer, _ *io.PipeWriter, end func()) { end() }, nil, 0,
			[]string{"0s accepted", "1h0m0s SIGNAL_SIGKILL", "1h0m0s closed"}},
		"the connection ends, and no kill": {connects, func(_ *offer, _ *io.PipeWriter, end func()) { end() }, nil, 0,
			[]string{"0s accepted", "1h0m0s SIGNAL_SIGKILL", "1h0m5s closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{began: time.Now()}
				d := &relayDaemon{journal: j, play: tt.play, killed: make(chan struct{}), hangs: strings.HasSuffix(name, "no kill")}
				broke := 0
				s := &server{Config: Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d)), Broke: func() { broke++ }, Message: func(err error) string {
					if strings.HasPrefix(err.Error(), `"`) {
						return err.Error()
					}
					return "broken"
				}}, user: "u"}
				read, typed := io.Pipe()
				o := &offer{journal: j, refuses: tt.refuses, read: read, requests: make(chan *ssh.Request)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.client != nil {
					go func() {
						<-time.After(time.Hour)
						tt.client(o, typed, cancel)
					}()
				}
				s.forwardSocket(ctx, o)
				s.running.Wait()
				events := j.all()
				if tt.refuses != nil { // its input ends when the relay does, and this may come in time
					events = slices.DeleteFunc(events, func(event string) bool { return strings.HasSuffix(event, "end of input") })
				}
				if diff := cmp.Diff(tt.want, events); diff != "" || broke != tt.broke {
					t.Errorf("the sandbox was looked at %d times, want %d; events (-want +got):\n%s", broke, tt.broke, diff)
				}
			})
		})
	}
}

// daemonOf returns the handler of a daemon that runs processes.
func daemonOf(processes processconnect.ProcessHandler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(processes))
	return mux
}

// TestEndsOfSocketRelays checks when the direction to the client ends: when the socket has ended, and the client has all
// of its bytes.
func TestEndsOfSocketRelays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		steps []string // "out" or "err", and the text
		ends  bool
	}{
		"all of it":               {[]string{"out MARKtext", "err MARK 4\n"}, true},
		"the end comes first":     {[]string{"err MARK 4\n", "out MARKtext"}, true},
		"the end in pieces":       {[]string{"out MARKtext", "err MARK", "err  4", "err \n"}, true},
		"nothing":                 {[]string{"out MARK", "err MARK 0\n"}, true},
		"nothing, before":         {[]string{"err MARK 0\n", "out MARK"}, true},
		"a byte is missing":       {[]string{"out MARKtext", "err MARK 5\n"}, false},
		"no end":                  {[]string{"out MARKtext", "err 4\n"}, false},
		"it has not connected":    {[]string{"out profile", "err MARK 0\n"}, false},
		"the end is not complete": {[]string{"out MARKtext", "err MARK 4"}, false},
		"other errors before":     {[]string{"out MARKtext", "err warning\n", "err MARK 4\n"}, true},
	} {
		j := &journal{}
		r := newSocketRelay(t.Context())
		r.accepted <- &offer{journal: j}
		for _, step := range tt.steps {
			kind, text, _ := strings.Cut(strings.ReplaceAll(step, "MARK", r.marker), " ")
			write := r.output
			if kind == "err" {
				write = r.errors
			}
			if n, err := writeFunc(write).Write([]byte(text)); n != len(text) || err != nil {
				t.Errorf("%s: got %d and error %v, want %d", name, n, err, len(text))
			}
		}
		if all := strings.Join(j.events, "\n"); strings.Contains(all, "end of output") != tt.ends || strings.Count(all, "end of output") > 1 {
			t.Errorf("%s: got %q, want an end: %v", name, all, tt.ends)
		}
	}
	r := newSocketRelay(t.Context())
	for size, want := range map[int]int{maxRelayError: maxRelayError, 1: maxRelayError} {
		must.Do(t, r.errors(make([]byte, size)))
		if len(r.errs) > want {
			t.Errorf("%d bytes of the error output are kept, want at most %d", len(r.errs), want)
		}
	}
	if other := newSocketRelay(t.Context()); other.marker == r.marker || other.marker == "" {
		t.Errorf("two relays have the markers %q and %q", r.marker, other.marker)
	}
}

// TestPathsOfSockets checks which paths of sockets are refused.
func TestPathsOfSockets(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"/s", "/" + strings.Repeat("x", maxSocketPath-1)} {
		if got, err := socketPath(ssh.Marshal(socketRequest{Path: name})); err != nil || got != name {
			t.Errorf("%.20q: got %q and error %v, want that path", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"/" + strings.Repeat("x", maxSocketPath): "at most 107 bytes, and this has 108", "/a\x00b": "zero byte", "s": "must be absolute", "": "must be absolute",
	} {
		if got, err := socketPath(ssh.Marshal(socketRequest{Path: name})); err == nil || got != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %q and error %v, want %q", name, got, err, want)
		}
	}
	if _, err := socketPath([]byte("damaged")); err == nil {
		t.Error("a damaged request was accepted")
	}
}

// TestTimesOfPorts checks each step of a connection to a port, and when the connection ends.
func TestTimesOfPorts(t *testing.T) {
	t.Parallel()
	waits := func(r *playedRelay) error {
		select {
		case <-r.killed:
		case <-r.cut:
		}
		return r.exit(0, "")
	}
	connects := func(r *playedRelay) error { return errors.Join(r.print("+text"), waits(r)) }
	for name, tt := range map[string]struct {
		play    func(r *playedRelay) error
		client  func(o *offer, typed *io.PipeWriter, end func()) // after an hour
		refuses error
		broke   int
		want    []string
	}{
		"nobody listens":      {func(r *playedRelay) error { return r.exit(1, "oh") }, nil, nil, 1, []string{"0s rejected: broken"}},
		"the client is gone":  {connects, nil, errors.New("gone"), 0, []string{"0s accepted", "0s SIGNAL_SIGTERM"}},
		"the server ends":     {func(r *playedRelay) error { return errors.Join(r.print("+text"), r.exit(0, "")) }, nil, nil, 0, []string{"0s accepted", "0s output text", "0s closed"}},
		"the client goes":     {connects, func(o *offer, _ *io.PipeWriter, _ func()) { o.closing.Do(o.leave) }, nil, 0, []string{"0s accepted", "0s output text", "1h0m0s SIGNAL_SIGTERM"}},
		"the client ends":     {connects, func(_ *offer, typed *io.PipeWriter, _ func()) { _ = typed.Close() }, nil, 0, []string{"0s accepted", "0s output text", "1h0m0s SIGNAL_SIGTERM", "1h0m0s closed"}},
		"the connection ends": {connects, func(_ *offer, _ *io.PipeWriter, end func()) { end() }, nil, 0, []string{"0s accepted", "0s output text", "1h0m0s SIGNAL_SIGTERM", "1h0m0s closed"}},
		"the requests end":    {connects, func(o *offer, _ *io.PipeWriter, _ func()) { o.closing.Do(func() { close(o.requests) }) }, nil, 0, []string{"0s accepted", "0s output text", "1h0m0s SIGNAL_SIGTERM"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{began: time.Now()}
				d := &relayDaemon{journal: j, play: tt.play, killed: make(chan struct{})}
				broke := 0
				s := &server{Config: Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d)), Broke: func() { broke++ }, Message: func(error) string { return "broken" }}}
				read, typed := io.Pipe()
				o := &offer{journal: j, data: ssh.Marshal(forwardRequest{Host: "::1", Port: 80}), refuses: tt.refuses, read: read, requests: make(chan *ssh.Request)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.client != nil {
					go func() {
						<-time.After(time.Hour)
						tt.client(o, typed, cancel)
						time.AfterFunc(time.Second, func() { _ = typed.Close() }) // too late to matter
					}()
				}
				s.forward(ctx, o)
				events := j.all()
				slices.Sort(events) // the end of the relay and of the channel come together
				slices.Sort(tt.want)
				if diff := cmp.Diff(tt.want, events); diff != "" || broke != tt.broke {
					t.Errorf("the sandbox was looked at %d times, want %d; events (-want +got):\n%s", broke, tt.broke, diff)
				}
			})
		})
	}
}

// TestRefusedPorts checks which destinations of a forwarded connection are refused, and the reasons.
func TestRefusedPorts(t *testing.T) {
	t.Parallel()
	const only = "e2bctl forwards ports of the sandbox only: want localhost, 127.0.0.1 or ::1"
	for want, all := range map[string][]forwardRequest{
		"not a port": {{Host: "localhost"}, {Host: "localhost", Port: 65536}, {Host: "example.com"}},
		only:         {{Port: 80}, {Host: "127.0.0.2", Port: 80}, {Host: "LOCALHOST", Port: 80}, {Host: "example.com", Port: 65535}},
	} {
		for _, to := range all {
			j := &journal{began: time.Now()}
			(&server{}).forward(t.Context(), &offer{journal: j, data: ssh.Marshal(to)})
			if got := strings.Join(j.events, "; "); !strings.HasSuffix(got, " rejected: "+want) {
				t.Errorf("%+v: got %q, want %q", to, got, want)
			}
		}
	}
	for _, port := range []uint32{1, 65535} { // no sandbox has it
		j := &journal{began: time.Now()}
		(&daemon{}).server(t).forward(t.Context(), &offer{journal: j, data: ssh.Marshal(forwardRequest{Host: "localhost", Port: port})})
		if got := strings.Join(j.events, "; "); !strings.Contains(got, " rejected: message of ") {
			t.Errorf("the port %d: got %q, want the reason of the sandbox", port, got)
		}
	}
	j := &journal{began: time.Now()}
	(&server{}).forward(t.Context(), &offer{journal: j, data: []byte("damaged")})
	if len(j.events) != 1 || !strings.HasSuffix(j.events[0], " rejected: not a port") {
		t.Errorf("a damaged request: got %q", j.events)
	}
}

// TestSessionsWaitForTheirPrograms checks that a session ends after its program, and that a refused channel has none.
func TestSessionsWaitForTheirPrograms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		refuses error
		want    []string
		took    time.Duration
	}{
		"accepted": {nil, []string{"0s accepted", "1s SIGNAL_SIGKILL", "6s exit-status"}, time.Second + cleanUpTime},
		"refused":  {errors.New("gone"), []string{"0s accepted"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{began: time.Now()}
				d := &relayDaemon{journal: j, killed: make(chan struct{}), hangs: true, play: func(r *playedRelay) error { <-r.cut; return nil }}
				s := &server{Config: Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d)), Message: func(err error) string { return err.Error() }}}
				read, _ := io.Pipe()
				o := &offer{journal: j, refuses: tt.refuses, read: read, requests: make(chan *ssh.Request, 1)}
				o.requests <- &ssh.Request{Type: "exec", Payload: ssh.Marshal(struct{ Text string }{"line"})}
				time.AfterFunc(time.Second, func() { o.closing.Do(o.leave) })
				s.session(t.Context(), o)
				if took := time.Since(j.began); took != tt.took {
					t.Errorf("it ended after %v, want %v", took, tt.took)
				}
				events := slices.DeleteFunc(j.all(), func(event string) bool { return strings.HasSuffix(event, "end of input") })
				if diff := cmp.Diff(tt.want, events); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				<-time.After(time.Minute)
			})
		})
	}
}

// TestRelaysThatDoNotStart checks that a client whose relay cannot be started is rejected with the reason, and that its
// sandbox is looked at.
func TestRelaysThatDoNotStart(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{"refused": nil, "damaged": []byte("damaged")} {
		j, broke := &journal{began: time.Now()}, 0
		d := &daemon{}
		s := d.server(t)
		s.Broke = func() { broke++ }
		s.forwardSocket(t.Context(), &offer{journal: j, data: data})
		want := map[string]string{"refused": " rejected: message of ", "damaged": " rejected: not a path"}[name]
		if len(j.events) != 1 || !strings.Contains(j.events[0], want) || (broke == 1) != (name == "refused") {
			t.Errorf("%s: got %q, and the sandbox was looked at %d times, want %q", name, j.events, broke, want)
		}
		if slices.ContainsFunc(d.users, func(user string) bool { return user != "u" }) {
			t.Errorf("%s: requests of %q, want the session's user", name, d.users)
		}
	}
}

// typed is an offer of another kind.
type typed struct {
	*offer
	kind string
}

func (o typed) ChannelType() string { return o.kind }

// TestKindsOfChannels checks how each kind of channel is served, and the place that it takes meanwhile.
func TestKindsOfChannels(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  string
		taken int // of two places
		want  string
	}{
		{"direct-tcpip", 0, "rejected: not a port"}, {"direct-streamlocal@openssh.com", 1, "rejected: not a path"}, {"session", 1, "accepted"},
		{"session", 2, "rejected: e2bctl serves at most 2 sessions and forwarded connections at once"}, {"x11", 0, "rejected: e2bctl has sessions and forwards ports and sockets of the sandbox"},
	} {
		s := &server{slots: make(chan struct{}, 2)}
		for range tt.taken {
			s.slots <- struct{}{}
		}
		j := &journal{began: time.Now()}
		s.open(t.Context(), typed{&offer{journal: j, data: []byte("damaged"), refuses: errors.New("gone")}, tt.kind})
		s.running.Wait()
		if len(j.events) != 1 || !strings.HasSuffix(j.events[0], " "+tt.want) || len(s.slots) != tt.taken {
			t.Errorf("%s with %d places taken: got %q, and %d are taken, want %q", tt.kind, tt.taken, j.events, len(s.slots), tt.want)
		}
	}
}

// TestPartsOfFiles checks that what is written into a file reaches its program, and that the program of a read ends with that.
func TestPartsOfFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{began: time.Now()}
		d := &relayDaemon{journal: j, killed: make(chan struct{}), play: func(r *playedRelay) error {
			select {
			case <-r.cut:
				r.note("cut")
			case <-time.After(time.Second):
			}
			return r.exit(0, "")
		}}
		f := &files{server: &server{Config: Config{Sandbox: cmdtest.PipedSandbox(t, daemonOf(d))}, user: "u"}, life: t.Context()}
		u := f.write("/f", 9, false)
		_, err := u.Write([]byte("text"))
		must.Do(t, errors.Join(err, u.end(nil)))
		if diff := cmp.Diff([]string{"0s input text", "0s end of input"}, j.all()); diff != "" {
			t.Errorf("events of a write (-want +got):\n%s", diff)
		}
		j.events = nil
		r, err := f.read("/f", 9)
		must.Do(t, err)
		synctest.Wait()
		must.Do(t, r.Close())
		events := j.all()
		slices.Sort(events) // the two come together
		if diff := cmp.Diff([]string{"1s SIGNAL_SIGKILL", "1s cut"}, events); diff != "" {
			t.Errorf("events of a read that was left (-want +got):\n%s", diff)
		}
	})
}
