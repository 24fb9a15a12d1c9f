package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// wireErrorOf returns an error that the daemon sends.
func wireErrorOf(t *testing.T, code connect.Code) error {
	t.Helper()
	s := newService(t)
	s.start = func(context.Context, *process.StartRequest, *startStream) error {
		return connect.NewError(code, errors.New("of the daemon"))
	}
	sb := s.sandbox()
	stream, err := sb.processes.Start(t.Context(), streamRequest("", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "x"}}, outputFrom{}))
	must.Do(t, err)
	defer stream.Close()
	if stream.Receive() || !connect.IsWireError(stream.Err()) {
		t.Fatalf("got error %v, want one of the daemon", stream.Err())
	}
	return stream.Err()
}

// TestBoundsOfNumbers checks the least and the greatest size of a terminal and pid, and the numbers beyond.
func TestBoundsOfNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{-1: false, 0: false, 1: true, 80: true, math.MaxUint16: true, math.MaxUint16 + 1: false} {
		for _, size := range [][2]int{{n, 2}, {2, n}} {
			got, err := terminalSize(size[0], size[1])
			if (err == nil) != want || want && (got.GetSize().GetCols() != uint32(size[0]) || got.GetSize().GetRows() != uint32(size[1])) {
				t.Errorf("a terminal of %v: got %v and error %v, want it: %v", size, got, err, want)
			}
		}
	}
	for pid, want := range map[int64]bool{-1: false, 0: false, 1: true, math.MaxUint32: true, math.MaxUint32 + 1: false} {
		if got, err := wirePID(int(pid)); (err == nil) != want || want && got != uint32(pid) {
			t.Errorf("the pid %d: got %d and error %v, want it: %v", pid, got, err, want)
		}
	}
	for character, want := range []int{0, 1, 3, 6, 7, 7} {
		if got := byteIndex("aé€b", character); got != want {
			t.Errorf("character %d begins at byte %d, want %d", character, got, want)
		}
	}
	if got := byteIndex("aé", -1); got != 0 {
		t.Errorf("a negative character begins at byte %d, want 0", got)
	}
}

// TestErrorsOfConnections checks which errors of a connection to a process are final, and which leave open whether the request arrived.
func TestErrorsOfConnections(t *testing.T) {
	t.Parallel()
	missing, exhausted := wireErrorOf(t, connect.CodeNotFound), wireErrorOf(t, connect.CodeResourceExhausted)
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNRESET}
	for _, tt := range []struct {
		err        error
		final, cut bool
	}{
		{&OutputLostError{}, true, false}, {&GoneError{}, true, false}, {errReplaced, true, false}, {errForgets, true, false},
		{missing, true, false}, {exhausted, false, false}, {connect.NewError(connect.CodeNotFound, io.EOF), false, true},
		{ErrCommandLost, false, true}, {io.EOF, false, true}, {io.ErrUnexpectedEOF, false, true}, {syscall.ECONNRESET, false, true}, {syscall.EPIPE, false, true},
		{refused, false, false}, {&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, false, true}, {syscall.ECONNREFUSED, false, false},
		{errors.New("http: transport connection broken: x"), false, true}, {errors.New("other"), false, false},
	} {
		if isFinal(tt.err) != tt.final || wasCut(tt.err) != tt.cut {
			t.Errorf("%v: final %v, cut %v; want %v and %v", tt.err, isFinal(tt.err), wasCut(tt.err), tt.final, tt.cut)
		}
	}
	if wasCut(nil) {
		t.Error("no error is taken for a cut")
	}
	for err, want := range map[error]bool{
		&portClosedError{}: true, &jupyter.DialError{StatusCode: 401}: true, &jupyter.DialError{StatusCode: 403}: true, &jupyter.DialError{StatusCode: 404}: true,
		&jupyter.DialError{StatusCode: 500}: false, ErrGone: false,
	} {
		if got := closed(fmt.Errorf("in it: %w", err)); got != want {
			t.Errorf("%v: there is no websocket: %v, want %v", err, got, want)
		}
	}
	lost, other := fmt.Errorf("cut: %w", ErrCommandLost), errors.New("other")
	if _, ok := errors.AsType[*brokenError](broken(lost)); !ok || !errors.Is(broken(lost), ErrCommandLost) || broken(other) != other { //nolint:errorlint // the error itself
		t.Errorf("got %v and %v, want only the lost stream to be broken", broken(lost), broken(other))
	}
	for _, tt := range []struct {
		state GoneState
		err   error
		want  error // beside ErrGone
	}{{GonePaused, lost, ErrCommandLost}, {GonePaused, ErrKernelLost, ErrKernelLost}, {GonePaused, other, nil}, {GoneKilled, lost, nil}} {
		got := lostIn(&GoneError{State: tt.state}, tt.err)
		for _, kind := range []error{ErrCommandLost, ErrKernelLost} {
			if errors.Is(got, kind) != (kind == tt.want) || !errors.Is(got, ErrGone) { //nolint:errorlint // it is a name in a table
				t.Errorf("%s after %v: got %v, want %v", tt.state, tt.err, got, tt.want)
			}
		}
	}
}

// TestPausesBetweenConnections checks the pauses after failed attempts to connect, and after streams without output.
func TestPausesBetweenConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var at []time.Duration
		other := errors.New("other")
		bounded, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		err := again(bounded, func() error {
			if at = append(at, time.Since(begun)); len(at) == 9 {
				return errReplaced
			}
			return other
		})
		var want []time.Duration
		for _, ms := range []int{0, 50, 150, 350, 750, 1550, 3150, 5150, 7150} {
			want = append(want, time.Duration(ms)*time.Millisecond)
		}
		if diff := cmp.Diff(want, at); diff != "" || !errors.Is(err, errReplaced) {
			t.Errorf("got error %v, want the final one; attempts (-want +got):\n%s", err, diff)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if err := again(ctx, func() error { return other }); !errors.Is(err, other) || time.Since(begun) != time.Second {
			t.Errorf("got error %v after %v, want the last one after a second", err, time.Since(begun))
		}
		for fruitless, want := range map[int]int64{0: 0, 1: 0, 2: 200, 3: 400, 5: 1600, 6: 2000, 39: 2000} {
			begun = time.Now()
			if went := pauseFor(t.Context(), fruitless); !went || time.Since(begun).Milliseconds() != want {
				t.Errorf("after %d streams: a pause of %v, want %d ms", fruitless, time.Since(begun), want)
			}
		}
		for _, fruitless := range []int{0, 5} {
			if pauseFor(ctx, fruitless) {
				t.Error("the end of the context is not noticed")
			}
		}
	})
}

// TestErrorsOfTheSystem checks the error for each text and status of the daemon.
func TestErrorsOfTheSystem(t *testing.T) {
	t.Parallel()
	all := []error{syscall.ENOSPC, syscall.ENOTDIR, syscall.EISDIR, fs.ErrExist, syscall.ENOTEMPTY, fs.ErrPermission, fs.ErrNotExist, syscall.ENAMETOOLONG, syscall.EXDEV, fs.ErrInvalid}
	for text, want := range map[string]error{
		"a: no space left on device": syscall.ENOSPC, "a: disk quota exceeded": syscall.ENOSPC, "a: not a directory": syscall.ENOTDIR, "it is not a directory: a": syscall.ENOTDIR,
		"path is a file: a": syscall.ENOTDIR, "a: is a directory": syscall.EISDIR, "'a' is a directory": syscall.EISDIR, "path is a directory: a": syscall.EISDIR,
		"a: file exists": fs.ErrExist, "a: permission denied": fs.ErrPermission, "a: operation not permitted": fs.ErrPermission,
		"a: no such file or directory": fs.ErrNotExist, "a: file name too long": syscall.ENAMETOOLONG, "a: invalid cross-device link": syscall.EXDEV,
		"a: no space left on device, it says": nil, "": nil,
	} {
		err := &api.Error{StatusCode: http.StatusInternalServerError, Message: text}
		for _, kind := range all {
			if got := asSystem(err); errors.Is(got, kind) != errors.Is(want, kind) || !errors.Is(got, error(err)) {
				t.Errorf("%q: got %v, is %v: %v", text, got, kind, errors.Is(got, kind))
			}
		}
	}
	for status, want := range map[int]error{507: syscall.ENOSPC, 404: fs.ErrNotExist, 403: fs.ErrPermission, 400: fs.ErrInvalid, 409: nil, 500: nil} {
		for _, kind := range all {
			if got := asSystem(&api.Error{StatusCode: status}); errors.Is(got, kind) != errors.Is(want, kind) {
				t.Errorf("status %d: got %v, is %v: %v", status, got, kind, errors.Is(got, kind))
			}
		}
	}
	for line, want := range map[string]bool{"mkdir: a: File exists": true, "tar: a: Cannot open: File exists": true, "tar: a: File exists, too": false, "File exists": false} {
		if saysExists(line) != want {
			t.Errorf("%q: a file exists: %v, want %v", line, !want, want)
		}
	}
}

// TestOldSandboxesOfAPool checks which waiting sandboxes are too old, and when the next one will be.
func TestOldSandboxesOfAPool(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ending := func(after ...time.Duration) (all []*Sandbox) {
		for _, d := range after {
			all = append(all, &Sandbox{endAt: now.Add(d)})
		}
		return all
	}
	const least = time.Minute
	for name, tt := range map[string]struct {
		warm       []*Sandbox
		worn, kept int
		next       time.Duration
	}{
		"none":         {nil, 0, 0, time.Hour},
		"at the bound": {ending(least), 1, 0, time.Hour},
		"young enough": {ending(least + 1), 0, 1, 1},
		"of each":      {ending(3*least, 0, 2*least, least-1), 2, 2, least},
		"very young":   {ending(3 * time.Hour), 0, 1, time.Hour},
	} {
		p := &Pool{params: PoolParams{MinLifetime: least}, warm: tt.warm}
		if worn, next := p.worn(now); len(worn) != tt.worn || len(p.warm) != tt.kept || next != tt.next {
			t.Errorf("%s: %d are old and %d stay for %v, want %d, %d and %v", name, len(worn), len(p.warm), next, tt.worn, tt.kept, tt.next)
		}
	}
}

// TestBackoffOfAPool checks how long a pool waits after failures, and who learns of them.
func TestBackoffOfAPool(t *testing.T) {
	t.Parallel()
	now := time.Now()
	other := errors.New("other")
	for _, tt := range []struct {
		failures    int
		err         error
		least, most time.Duration
		told        bool
	}{
		{0, other, 100 * time.Millisecond, 200 * time.Millisecond, true}, {3, other, 800 * time.Millisecond, 1600 * time.Millisecond, true},
		{7, other, 12800 * time.Millisecond, 25600 * time.Millisecond, true}, {8, other, 15 * time.Second, 30 * time.Second, true}, {1000, other, 15 * time.Second, 30 * time.Second, true},
		{0, &api.Error{StatusCode: 429, RetryAfter: time.Minute}, time.Minute, time.Minute + 1, false},
		{8, &api.Error{StatusCode: 400, RetryAfter: time.Second}, 15 * time.Second, 30 * time.Second, true},
		{0, fmt.Errorf("%w: x", api.ErrTimeout), 100 * time.Millisecond, 200 * time.Millisecond, false}, {0, fmt.Errorf("%w: x", api.ErrRetryable), 100 * time.Millisecond, 200 * time.Millisecond, false},
	} {
		w := &poolWaiter{make(chan poolAnswer, 1)}
		p := &Pool{failures: tt.failures, waiting: []*poolWaiter{w}}
		p.failed(tt.err, now)
		if p.resume.Before(now.Add(tt.least)) || !p.resume.Before(now.Add(tt.most)) || p.failures != tt.failures+1 || !errors.Is(p.failure, tt.err) {
			t.Errorf("%v after %d: waits %v, then %d failures, want %v to %v", tt.err, tt.failures, p.resume.Sub(now), p.failures, tt.least, tt.most)
		}
		if told := len(w.answer) > 0; told != tt.told || told != (len(p.waiting) == 0) || told && !errors.Is((<-w.answer).err, tt.err) {
			t.Errorf("%v: a waiting call is told %v, want %v", tt.err, told, tt.told)
		}
	}
}

// TestRulesOfAHost checks how the rules of hosts are read back.
func TestRulesOfAHost(t *testing.T) {
	t.Parallel()
	with := func(name string) api.NetworkRule {
		return api.NetworkRule{Transform: &api.NetworkTransform{Headers: map[string]string{name: "1"}}}
	}
	to := func(path string) api.NetworkRule {
		return api.NetworkRule{Requests: []api.NetworkRequest{{Methods: []string{"GET"}, Path: path}}}
	}
	n := networkOf(&api.Egress{AllowOut: []string{"a"}, DenyOut: []string{"b"}, DNSServers: []string{"c"}, EgressProxy: &api.EgressProxyConfig{Address: "p"}, Rules: map[string][]api.NetworkRule{
		"headers": {with("A"), with("B")}, "requests": {to("/1"), to("/2")}, "both": {with("A"), to("/1")}, "none": {{}},
	}})
	request := func(path string) RequestRule { return RequestRule{[]string{"GET"}, path} }
	want := &Network{
		AllowOut: []string{"a"}, DenyOut: []string{"b"}, DNSServers: []string{"c"}, EgressProxy: &EgressProxy{Address: "p"},
		Headers:  map[string]map[string]string{"headers": {"A": "1", "B": "1"}, "both": {"A": "1"}, "none": {}},
		Requests: map[string][]RequestRule{"requests": {request("/1"), request("/2")}, "both": {request("/1")}},
	}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if networkOf(nil) != nil {
		t.Error("a sandbox without rules has some")
	}
	for _, tt := range []struct {
		w    *api.SandboxInfo
		want bool
	}{
		{&api.SandboxInfo{}, false}, {&api.SandboxInfo{AllowInternetAccess: new(true)}, false}, {&api.SandboxInfo{AllowInternetAccess: new(false)}, true},
		{&api.SandboxInfo{Egress: &api.Egress{DenyOut: []string{"10.0.0.0/8"}}}, false}, {&api.SandboxInfo{Egress: &api.Egress{DenyOut: []string{AllTraffic}}}, true},
	} {
		s := newService(t)
		sb := s.sandbox()
		s.control = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = json.NewEncoder(w).Encode(tt.w)
		}
		if got := sb.offline(t.Context()); got != tt.want {
			t.Errorf("%+v: is offline: %v, want %v", tt.w, got, tt.want)
		}
		s.control = nil
	}
}

// TestImportFailures checks what is read from the output of the imports, and of one that ended the process.
func TestImportFailures(t *testing.T) {
	t.Parallel()
	const begins, works, fails = `{"package":"p","module":"m"}`, `{"error":""}`, `{"error":"no"}`
	for text, want := range map[string]struct {
		failures []ImportFailure
		open     ImportFailure
	}{
		"": {}, begins: {nil, ImportFailure{Package: "p", Module: "m"}}, begins + "\n" + works: {}, begins + "\nnoise\n" + fails: {[]ImportFailure{{"p", "m", "no"}}, ImportFailure{}},
		begins + "\n" + fails + "\n" + `{"package":"q","module":"n"}`: {[]ImportFailure{{"p", "m", "no"}}, ImportFailure{Package: "q", Module: "n"}},
	} {
		if failures, open := importFailures(text); !cmp.Equal(failures, want.failures) || open != want.open {
			t.Errorf("%q: got %+v and %+v, want %+v", text, failures, open, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context //nolint:containedctx // in a table
		err  error
		want string
	}{
		{t.Context(), &ExitError{&CommandResult{ExitCode: 3}}, "Python ended with status 3"}, {t.Context(), fmt.Errorf("x: %w", ErrKernelDied), "Python ended"},
		{t.Context(), context.DeadlineExceeded, "it took longer than 1m0s"}, {ended, context.DeadlineExceeded, ""}, {t.Context(), errors.New("x"), ""}, {t.Context(), nil, ""},
	} {
		if got := stopped(tt.ctx, tt.err, time.Minute); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
	for err, want := range map[error]bool{&api.Error{StatusCode: 501}: true, &api.Error{StatusCode: 500}: false, errors.New("x"): false} {
		if withoutProcesses(err) != want {
			t.Errorf("%v: there are no processes: %v, want %v", err, !want, want)
		}
	}
}

// TestPartsOfLogs checks which parts of the output an entry has, and when a new one begins.
func TestPartsOfLogs(t *testing.T) {
	t.Parallel()
	k := keptText{"0123", "89é", 11}
	for _, tt := range []struct {
		start, end int64
		text       string
		cut        bool
	}{
		{0, 4, "0123", false}, {1, 3, "12", false}, {0, 5, "0123", true}, {4, 7, "", true}, {4, 8, "8", true}, {7, 11, "89é", false}, {8, 9, "9", false}, {2, 9, "238" + "9", true}, {6, 9, "89", true},
	} {
		if text, cut := k.slice(tt.start, tt.end); text != tt.text || cut != tt.cut {
			t.Errorf("[%d:%d]: got %q, cut %v; want %q and %v", tt.start, tt.end, text, cut, tt.text, tt.cut)
		}
	}
	begun := time.Now()
	l := newLogs(0)
	for _, piece := range []struct {
		stream OutputStream
		after  time.Duration
		text   string
	}{
		{StreamStdout, 0, "a"}, {StreamStdout, logWindow, "b"}, {StreamStdout, logWindow + 1, "c"}, {StreamStderr, logWindow + 1, "d"}, {StreamStderr, logWindow + 1, ""}, {StreamStdout, logWindow + 1, "e"},
	} {
		l.note(piece.stream, len(piece.text), begun.Add(piece.after))
		_, _ = l.stream(piece.stream).Write([]byte(piece.text))
	}
	list, dropped := l.list()
	want := []Output{{StreamStdout, "ab", begun}, {StreamStdout, "c", begun.Add(logWindow + 1)}, {StreamStderr, "d", begun.Add(logWindow + 1)}, {StreamStdout, "e", begun.Add(logWindow + 1)}}
	if diff := cmp.Diff(want, list); diff != "" || dropped != 0 {
		t.Errorf("%d dropped (-want +got):\n%s", dropped, diff)
	}
}

// TestEncodedArguments checks that the pieces of an argument are short, and decode to it.
func TestEncodedArguments(t *testing.T) {
	t.Parallel()
	for _, word := range []string{
		"", "a", "\xff", `\`, " ~\x1f\x7f", "é", strings.Repeat("x", encodedPiece), strings.Repeat("x", encodedPiece+1), strings.Repeat("\xff", 2*encodedPiece),
	} {
		pieces := encodeArgument(word)
		if want := max(1, (len(word)+encodedPiece-1)/encodedPiece); len(pieces) != want {
			t.Errorf("%.9q of %d bytes has %d pieces, want %d", word, len(word), len(pieces), want)
		}
		var decoded []byte
		for i, piece := range pieces {
			if last := i == len(pieces)-1; (piece[0] == '.') != last || (piece[0] == '+') == last || len(piece) > 1+5*encodedPiece {
				t.Errorf("piece %d of %d has %d bytes and begins with %q", i, len(pieces), len(piece), piece[0])
			}
			for rest := piece[1:]; rest != ""; {
				if rest[0] != '\\' {
					if rest[0] < ' ' || rest[0] > '~' {
						t.Errorf("the byte %q is not encoded", rest[0])
					}
					decoded, rest = append(decoded, rest[0]), rest[1:]
					continue
				}
				n, err := strconv.ParseUint(rest[1:5], 8, 8)
				must.Do(t, err)
				decoded, rest = append(decoded, byte(n)), rest[5:]
			}
		}
		if string(decoded) != word {
			t.Errorf("%.9q of %d bytes comes as %.9q of %d", word, len(word), decoded, len(decoded))
		}
	}
	for word, want := range map[string]string{"": "is empty", "a": "", "a\x00": "argument 0 has a NUL byte"} {
		if err := checkArgv([]string{word}); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", word, err, want)
		}
	}
	if err := checkArgv([]string{"a", "", "b\x00"}); err == nil || !strings.Contains(err.Error(), "argument 2") {
		t.Errorf("got error %v, want one of argument 2", err)
	}
}

// TestReasonsOfTheEnd checks the state of a sandbox for each reason of the service.
func TestReasonsOfTheEnd(t *testing.T) {
	t.Parallel()
	now, ended := time.Now(), time.Now().Add(-time.Hour)
	for reason, want := range map[api.EndReason]GoneState{
		api.EndExpired: GoneExpired, api.EndIdle: GoneIdle, api.EndKilled: GoneKilled, api.EndOutOfMemory: GoneOutOfMemory, api.EndDied: GoneDied, api.EndServerGone: GoneServerGone, "new": "", "": "",
	} {
		for _, at := range []time.Time{{}, ended} {
			e := &GoneError{At: now}
			known := e.fill(&api.Error{Reason: reason, Message: "its words", EndedAt: at})
			text, when := "its words", at
			switch want {
			case "":
				text, when = "", now
			case GoneExpired:
				text = lifetimeEnded
			}
			if when.IsZero() {
				when = now
			}
			if known != (want != "") || e.State != want || e.Reason != text || !e.At.Equal(when) {
				t.Errorf("%q at %v: got %+v, known %v; want %q, %q at %v", reason, at, e, known, want, text, when)
			}
		}
	}
	err := fmt.Errorf("x: %w", &api.Error{StatusCode: 404, Message: "its words", Reason: api.EndIdle})
	gone, ok := errors.AsType[*GoneError](missing("i1", err))
	if !ok || gone.ID != "i1" || !errors.Is(gone, err) || gone.At.Before(now) {
		t.Fatalf("got %+v, want the idle sandbox", gone)
	}
	if gone.State != GoneIdle || gone.Reason != "its words" {
		t.Errorf("got %+v, want the state and the reason of the service", gone)
	}
	if other := error(&api.Error{StatusCode: 403}); missing("i1", other) != other { //nolint:errorlint // the error itself
		t.Error("a refusal is taken for a missing sandbox")
	}
}

// TestNoticedEnds checks every field of the error for an end that a call notices, whichever part of the service reports it.
func TestNoticedEnds(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	const edge = "the service does not have it any more"
	for name, tt := range map[string]struct {
		do     func() error
		reason string
		cause  error
	}{
		"a port":               {func() error { return second(sb.Files.Read(t.Context(), "a", nil)) }, edge, nil},
		"the API":              {func() error { return sb.SetLifetime(t.Context(), time.Hour) }, "Sandbox doesn't exist", api.ErrNotFound},
		"a transfer":           {func() error { return sb.ended(t.Context()) }, endedDuringCall, nil},
		"a command":            {func() error { return sb.explained(t.Context(), ErrCommandLost) }, endedDuringCall, ErrCommandLost},
		"a broken connection":  {func() error { return sb.explained(t.Context(), api.NewError("GET", "/x", io.ErrUnexpectedEOF)) }, endedDuringCall, io.ErrUnexpectedEOF},
		"a kernel's websocket": {func() error { return sb.explained(t.Context(), ErrKernelLost) }, endedDuringCall, ErrKernelLost},
	} {
		begun := time.Now()
		err := tt.do()
		gone, ok := errors.AsType[*GoneError](err)
		if !ok {
			t.Errorf("%s: got error %v, want a *GoneError", name, err)
			continue
		}
		if want := (GoneError{ID: testID, State: GoneKilled, Reason: tt.reason, At: gone.At, cause: gone.cause}); *gone != want {
			t.Errorf("%s: got %+v, want %+v", name, gone, want)
		}
		if gone.At.Before(begun) {
			t.Errorf("%s: got the time %v, want now", name, gone.At)
		}
		if tt.cause != nil && !errors.Is(gone, tt.cause) {
			t.Errorf("%s: got %v, whose cause is not %v", name, err, tt.cause)
		}
	}
}

// TestOutputOfARelay checks that the first byte of a relay opens a connection, and how much of its errors is kept.
func TestOutputOfARelay(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	tun := &tunnel{conn: &portConn{Conn: near}, far: far, connected: make(chan error, 1)}
	tun.life, tun.close = context.WithCancel(t.Context())
	said := func(text string) *process.ProcessEvent_DataEvent {
		return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte(text)}}
	}
	for i, size := range []int{1, 1, maxRelayError + 1, 1} {
		must.Do(t, tun.receive(said(strings.Repeat("x", size))))
		if want := []int{1, 2, maxRelayError + 2, maxRelayError + 2}[i]; len(tun.stderr) != want || tun.opened {
			t.Errorf("%d bytes of errors are kept, want %d; open: %v", len(tun.stderr), want, tun.opened)
		}
	}
	sent := func(text string) *process.ProcessEvent_DataEvent {
		return &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte(text)}}
	}
	must.Do(t, tun.receive(sent("+")))
	if err := <-tun.connected; err != nil || !tun.opened {
		t.Errorf("got error %v, open: %v, want that it is open", err, tun.opened)
	}
	go func() { _ = tun.receive(sent("+data")) }()
	got := make([]byte, 5)
	if _, err := io.ReadFull(near, got); err != nil || string(got) != "+data" {
		t.Errorf("got %q and error %v, want all that came after the first byte", got, err)
	}
	must.Do(t, far.Close())
	tun.writing.Wait()
	if tun.life.Err() == nil {
		t.Error("the end of the connection is not the end of the tunnel")
	}
	if err := tun.receive(sent("x")); err == nil {
		t.Error("output for a closed connection has no error")
	}
}
