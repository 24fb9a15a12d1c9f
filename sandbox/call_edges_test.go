package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/runhost"
)

// TestHooksEnd checks that the trace of each call ends once, with the result and the error of the call.
func TestHooksEnd(t *testing.T) {
	t.Parallel()
	s := newService(t)
	code := int32(0)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		if code < 0 {
			return errors.New("broken")
		}
		return errors.Join(started(stream, 1), ended(stream, code, fmt.Sprintf("exit status %d", code)))
	}
	var mu sync.Mutex
	var got []string
	end := func(what, about string, result bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(what, " ", about, ": ", result, ", ", err != nil))
	}
	c := s.client(WithTrace(Trace{
		Create: func(ctx context.Context, about string) (context.Context, func(*Sandbox, error)) {
			return ctx, func(sb *Sandbox, err error) { end("create", about, sb != nil, err) }
		},
		Connect: func(ctx context.Context, about string) (context.Context, func(*Sandbox, error)) {
			return ctx, func(sb *Sandbox, err error) { end("connect", about, sb != nil, err) }
		},
		Command: func(ctx context.Context, _ *Sandbox, about string) (context.Context, func(*CommandResult, error)) {
			return ctx, func(r *CommandResult, err error) { end("command", about, r != nil, err) }
		},
	}))
	sb, err := c.Create(t.Context(), WithTemplate("t"))
	must.Do(t, err)
	other, err := c.Connect(t.Context(), testID)
	must.Do(t, errors.Join(err, other.Detach()))
	for _, code = range []int32{0, 3, -1} {
		_, _ = sb.Commands.Run(t.Context(), fmt.Sprint("run", code), nil)
		if command, err := sb.Commands.Start(t.Context(), fmt.Sprint("start", code), nil); err == nil {
			_, _ = command.Wait(t.Context())
		}
	}
	must.Do(t, sb.Close())
	_, _ = c.Connect(t.Context(), testID) // it no longer exists
	s.control = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	_, _ = c.Create(t.Context(), WithImage("i"))
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		"create t: true, false", "connect " + testID + ": true, false", "command run0: true, false", "command start0: true, false", "command run3: true, true",
		"command start3: true, true", "command run-1: false, true", "command start-1: false, true", "connect " + testID + ": false, true", "create i: false, true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMissingTemplates checks that only a missing template, and no missing image, is an unknown template.
func TestMissingTemplates(t *testing.T) {
	t.Parallel()
	s := newService(t)
	status := http.StatusNotFound
	s.control = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	c := s.client()
	for _, tt := range []struct {
		status int
		opt    CreateOption
		want   bool
	}{{404, WithTemplate("t"), true}, {404, WithImage("i"), false}, {400, WithTemplate("t"), false}} {
		status = tt.status
		if _, err := c.Create(t.Context(), tt.opt); err == nil || errors.Is(err, ErrUnknownTemplate) != tt.want {
			t.Errorf("%d: got error %v, want %v: %v", tt.status, err, ErrUnknownTemplate, tt.want)
		}
	}
}

// TestHTTPCodeSaysWhy checks the errors of code over HTTP that asks for input or is given up.
func TestHTTPCodeSaysWhy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	name := ""
	s.execute = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"type":"number_of_executions","execution_count":1}`+"\n")
		if name == "" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, `{"type":"error","name":%q,"value":"v","traceback":"Traceback"}`+"\n"+`{"type":"end_of_execution"}`+"\n", name)
	}
	sb := s.sandbox(WithCodeTransport(CodeTransportHTTP))
	stdin := func(context.Context, string, bool) (string, error) { return "", nil }
	for _, tt := range []struct {
		name string
		p    RunCodeParams
		want bool
	}{
		{"StdinNotImplementedError", RunCodeParams{Stdin: stdin}, true}, {"StdinNotImplementedError", RunCodeParams{}, false}, {"ValueError", RunCodeParams{Stdin: stdin}, false},
	} {
		name = tt.name
		e, err := sb.RunCode(t.Context(), "x", &tt.p)
		if _, failed := errors.AsType[*ExecutionError](err); !failed || errors.Is(err, ErrNeedsWebsocket) != tt.want || e == nil || e.Error == nil {
			t.Errorf("%s: got %+v and error %v, want %v: %v", tt.name, e, err, ErrNeedsWebsocket, tt.want)
		}
	}
	name = ""
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for event, err := range sb.StreamCode(ctx, "x", nil) {
		if status, ok := event.(StatusEvent); ok && status.State == CodeBusy {
			cancel()
		}
		if _, ended := event.(EndEvent); !ended {
			continue
		}
		if given, ok := errors.AsType[*InterruptedError](err); !ok || given.Ran <= 0 || given.Starting {
			t.Errorf("code that is given up: got error %v, want that it ran", err)
		}
	}
}

// TestRepliesWithoutMessages checks the error of code whose exception is only in the reply.
func TestRepliesWithoutMessages(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var content map[string]any
	s.kernel = jupytertest.Answering(func(k *jupytertest.Kernel, m *jupyter.Message) {
		k.Begin(m)
		k.Stream(m, "stdout", "ran")
		k.Say(m, jupyter.Shell, "execute_reply", content)
		k.Status(m, "idle")
	})
	sb := s.sandbox()
	for _, tt := range []struct{ name, value, want string }{
		{"", "", "ExecutionAborted: the code was interrupted"}, {"E", "", "E"}, {"", "v", ": v"}, {"E", "v", "E: v"},
	} {
		content = map[string]any{"status": "aborted", "ename": tt.name, "evalue": tt.value}
		_, err := sb.RunCode(t.Context(), "x", nil)
		if failed, ok := errors.AsType[*ExecutionError](err); !ok || failed.Error() != tt.want {
			t.Errorf("%+v: got error %v", tt, err)
		}
	}
}

// TestTextsOfValues checks texts of values that are no values, and the edges of those that are.
func TestTextsOfValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`'a'`: `"a"`, `"a"`: `"a"`, `''`: `""`, `'\xff'`: `"ÿ"`, "1": "1", "-1.5e3": "-1500.0", "np.float64(2.5)": "2.5", "True": "True", "None": "None",
		`'a"`: "", `"a'`: "", `'`: "", `'\q'`: "", "": "", "+": "", "abc": "", "1-2": "",
	} {
		if got, err := literal(text); (err != nil) != (want == "") || err == nil && got.String() != want && got.String() != strings.ReplaceAll(want, `"`, "'") {
			t.Errorf("%s: got %v and error %v, want %s", text, got, err, want)
		}
	}
	for _, tt := range []struct {
		data map[string]string
		want string
		ok   bool
	}{
		{map[string]string{"text/plain": `"'a'"`}, "a", true}, {map[string]string{"text/plain": `"'a'"`, "application/json": `"b"`}, "b", true}, {map[string]string{"text/html": `"c"`}, "", false},
	} {
		r := Result{Data: map[string]json.RawMessage{}}
		for mime, value := range tt.data {
			r.Data[mime] = []byte(value)
		}
		var got string
		if err := r.Decode(&got); (err == nil) != tt.ok || got != tt.want {
			t.Errorf("%v: got %q and error %v, want %q", tt.data, got, err, tt.want)
		}
	}
	if got := (Result{Data: map[string]json.RawMessage{"image/png": []byte(`""`)}}).PNG(); got != nil {
		t.Errorf("an empty image is %v, want none", got)
	}
}

// TestContextErrorsOfOthers checks which errors match the error of a context, although that of the caller has not ended.
func TestContextErrorsOfOthers(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		for _, tt := range []struct {
			err  error
			kept bool
		}{
			{api.NewError(http.MethodGet, "/", cause), false}, {fmt.Errorf("%w: %w", ErrGone, cause), false}, {fmt.Errorf("%w: %w", ErrCommandLost, cause), false}, {fmt.Errorf("%w: %w", ErrKernelLost, cause), false},
			{fmt.Errorf("%w: %w", &api.Error{StatusCode: 500}, cause), true}, {fmt.Errorf("x: %w", cause), true},
		} {
			if got := uncancelled(tt.err); errors.Is(got, cause) != tt.kept || got.Error() != tt.err.Error() {
				t.Errorf("%v: got %v, want it to match %v: %v", tt.err, got, cause, tt.kept)
			}
		}
	}
}

// TestAddressesForCredentials checks which addresses and credentials git gets.
func TestAddressesForCredentials(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://h/x": "https://h", "http://h:1/x?y": "http://h:1", "ssh://h/x": "", "ftp://h": "", "https:///x": "", "h/x": "", "://": "", "": "",
	} {
		if got, err := credentialHost(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q and error %v, want %q", address, got, err, want)
		}
	}
	g := newService(t).sandbox().Git
	for _, c := range []GitCredentials{{"", "p"}, {"u", ""}, {"", ""}, {"u\n", "p"}, {"u", "p\r"}, {"u", "p\x00"}} {
		if err := g.DangerouslyAuthenticate(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "credentials") { // no command is served
			t.Errorf("%q: got error %v, want one about credentials", string(c.Username), err)
		}
	}
	for text, want := range map[string]bool{
		"? a\x00": true, "! a\x00": true, "1 M. N... 1 2 3 4 5 a\x00": true, "2 R. N... 1 2 3 4 5 R1 b\x00c\x00": true,
		"? a": false, "! a": false, "1 M. N... 1 2 3 4 5 a": false, "1 M. N... 1 2 3 4 5\x00": false, "1 M N... 1 2 3 4 5 a\x00": false, "2 R. N... 1 2 3 4 5 R1 b\x00c": false, "x a\x00": false,
	} {
		if s, err := parseStatus([]byte(text)); (err == nil) != want || want && !strings.HasPrefix(text, "!") && len(s.Files) != 1 {
			t.Errorf("%q: got %+v and error %v, want it: %v", text, s, err, want)
		}
	}
}

// TestPathsOfShells checks the paths that a shell receives, and the letters of the names of labels.
func TestPathsOfShells(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"~": "./.", "~/a": "././a", "~a": "./~a", "a": "./a", "-a": "./-a", "": "./", "/a": "/a", "/": "/", "a/~": "./a/~"} {
		if got := shellPath(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
	const valid = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'*+-.^_`|~"
	for c := range rune(0x100) {
		if notToken(c) == strings.ContainsRune(valid, c) {
			t.Errorf("%q: is refused: %v", c, notToken(c))
		}
	}
	entries := make([]fs.DirEntry, 3)
	for n, want := range map[int][]int{-1: {3, 0}, 0: {3, 0}, 1: {1, 1, 1}, 2: {2, 1}, 3: {3}, 4: {3}} {
		d := &openDir{listed: true, rest: entries}
		for _, count := range want {
			if got, err := d.ReadDir(n); err != nil || len(got) != count {
				t.Errorf("%d at once: got %d and error %v, want %d", n, len(got), err, count)
			}
		}
		if got, err := d.ReadDir(n); len(got) > 0 || (n > 0) != errors.Is(err, io.EOF) {
			t.Errorf("%d at once, at the end: got %d and error %v", n, len(got), err)
		}
	}
}

// TestLeasesThatAreWanted checks when a lease is renewed whose sandbox may pause at its end.
func TestLeasesThatAreWanted(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	status, text := 0, ""
	s.control = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	defer func() { s.control = nil }()
	for _, tt := range []struct {
		status         int
		text           string
		wanted, unsure bool
	}{
		{403, `{}`, true, true}, {200, `{}`, true, false}, {200, `{"lifecycle":{"onTimeout":"kill"}}`, true, false}, {200, `{"lifecycle":{"onTimeout":"pause"}}`, false, false},
	} {
		status, text = tt.status, tt.text
		l := &lease{sb: sb, length: time.Hour, unsure: true}
		for range 2 {
			if wanted := l.wanted(t.Context()); wanted != tt.wanted || l.unsure != tt.unsure {
				t.Errorf("%d %s: wanted %v, unsure %v; want %v and %v", tt.status, tt.text, wanted, l.unsure, tt.wanted, tt.unsure)
			}
		}
	}
	status = 403
	if was, is := sb.pauseSince(t.Context(), time.Time{}); was || is {
		t.Errorf("a sandbox that cannot be asked about was paused: %v, and is: %v", was, is)
	}
	for state, want := range map[string]GoneState{"running": GoneKilled, "paused": GonePaused} {
		status, text = 200, fmt.Sprintf(`{"state":%q,"endAt":"2026-01-02T03:04:05Z"}`, state)
		err := sb.client.asleepOrMissing(t.Context(), "i1", &api.Error{StatusCode: 404})
		if gone, ok := errors.AsType[*GoneError](err); !ok || gone.State != want || (want == GonePaused) != gone.At.Equal(testTime) {
			t.Errorf("%s: got %+v, want %s", state, gone, want)
		}
	}
	refused := error(&api.Error{StatusCode: 403})
	if err := sb.client.asleepOrMissing(t.Context(), "i1", refused); err != refused { //nolint:errorlint // the error itself
		t.Errorf("got error %v, want the refusal", err)
	}
}

// TestLeaseIsRenewedOnce checks that a lease that is started twice is renewed by one goroutine, which its end stops.
func TestLeaseIsRenewedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		sb := s.sandbox(WithExpiry(Expiry{After: time.Minute}))
		l := &lease{sb: sb, length: time.Minute}
		l.start(30 * time.Second)
		l.start(30 * time.Second)
		<-time.After(45 * time.Second)
		if n := s.seen("POST /sandboxes/" + testID + "/refreshes"); n != 1 {
			t.Errorf("renewed %d times, want once", n)
		}
		l.end()
		l.start(time.Second)
		<-time.After(time.Hour)
		if n := s.seen("POST /sandboxes/" + testID + "/refreshes"); n != 1 {
			t.Errorf("renewed %d times after its end, want none", n-1)
		}
	})
}

// TestAskingEnds checks that a handle asks for no questions after its sandbox has ended, or once it is closed.
func TestAskingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		sb := s.sandbox()
		asked := 0
		s.control = func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked < 3 {
				w.WriteHeader(http.StatusInternalServerError)
			} else {
				w.WriteHeader(http.StatusNotFound)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		a, begun := &asker{sb, func(context.Context, string, int) bool { return true }}, time.Now()
		a.serve(ctx)
		if took := time.Since(begun); took != 2*askAgain || asked != 3 {
			t.Errorf("asked %d times in %v, want 3 in %v", asked, took, 2*askAgain)
		}
		must.Do(t, sb.Detach())
		a.start()
		synctest.Wait()
		if asked != 3 {
			t.Error("a closed handle asked")
		}
	})
}

// TestQuestionsToAServer checks the errors of a websocket that is refused, and that a pause of the handle is known.
func TestQuestionsToAServer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	status, text := 0, ""
	s.socket = func(w http.ResponseWriter, _ *http.Request) {
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	sb := s.sandbox()
	server := codeServer{sb.code}
	for _, tt := range []struct {
		status int
		text   string
		want   error
	}{
		{502, `{"sandboxId":"` + testID + `","port":8888}`, ErrPortClosed}, {502, `{"sandboxId":"` + testID + `"}`, ErrGone}, {502, "x", new(jupyter.DialError)}, {500, "x", new(jupyter.DialError)}, {0, "", new(api.Error)},
	} {
		status, text = tt.status, tt.text
		_, err := server.Dial(t.Context(), "/api/kernels/k/channels?session_id=secret")
		_, refused := errors.AsType[*jupyter.DialError](err)
		e, broken := errors.AsType[*api.Error](err)
		switch tt.want.(type) { //nolint:errorlint // it is the kind in a table
		case *jupyter.DialError:
			if !refused {
				t.Errorf("%d %s: got error %v, want a refusal", tt.status, tt.text, err)
			}
		case *api.Error:
			if !broken || e.Path != "/api/kernels/k/channels" {
				t.Errorf("%d %s: got error %v, want one with the path", tt.status, tt.text, err)
			}
		default:
			if !errors.Is(err, tt.want) || refused {
				t.Errorf("%d %s: got error %v, want %v", tt.status, tt.text, err, tt.want)
			}
		}
		if server.Gone(err) != errors.Is(tt.want, ErrGone) {
			t.Errorf("%v: is gone: %v", err, server.Gone(err))
		}
	}
	settle := sb.asleep.begin()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if !server.Settle(ended, time.Now()) {
		t.Error("a pause of this handle is not known")
	}
	settle(false)
	if server.Settle(t.Context(), time.Now()) {
		t.Error("a sandbox that runs is taken for one that was paused")
	}
}

// TestCollectorsOfRuns checks that the output of a run goes to its writers, and how much of it is kept.
func TestCollectorsOfRuns(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	c := runhost.NewCollector(&out, &errOut, -1)
	for name, text := range map[string]string{"stdout": "one", "stderr": "two"} {
		content, err := json.Marshal(jupyter.StreamContent{Name: name, Text: text})
		must.Do(t, err)
		must.Do(t, c.Message(&jupyter.Message{Channel: jupyter.IOPub, Header: jupyter.Header{MsgType: "stream"}, Content: content}))
	}
	e := c.Finished().(*Execution)
	if out.String() != "one" || errOut.String() != "two" || strings.Contains(e.Stdout, "one") || e.StdoutDropped != 3 {
		t.Errorf("got %q and %q, kept %q, dropped %d", out.String(), errOut.String(), e.Stdout, e.StdoutDropped)
	}
	for _, name := range []string{"First", "Second"} {
		c.Failed(name, "v", "")
	}
	if e := c.Finished().(*Execution); e.Error == nil || e.Error.Name != "First" {
		t.Errorf("got the exception %v, want the first", e.Error)
	}
}

// TestTakesOfPools checks when a call gets the failure of a pool at once, and which parameters are refused.
func TestTakesOfPools(t *testing.T) {
	t.Parallel()
	hour, other := time.Now().Add(time.Hour), errors.New("other")
	for name, tt := range map[string]struct {
		p     *Pool
		fails bool
	}{
		"no failure":      {&Pool{resume: hour}, false},
		"a failure":       {&Pool{resume: hour, failure: other}, true},
		"one that passes": {&Pool{resume: hour, failure: api.ErrRateLimited}, false},
		"one before":      {&Pool{resume: time.Now().Add(-time.Second), failure: other}, false},
	} {
		tt.p.kick = make(chan struct{}, 1)
		sb, w, err := tt.p.take()
		if (err != nil) != tt.fails || sb != nil || (w != nil) == tt.fails || len(tt.p.waiting) > 0 == tt.fails {
			t.Errorf("%s: got %v and error %v, %d calls wait; want the failure: %v", name, w, err, len(tt.p.waiting), tt.fails)
		}
	}
	for _, p := range []PoolParams{{Warm: -1}, {MaxSandboxes: -1}, {MinLifetime: -1}} {
		if _, err := p.complete(&sandboxConfig{}); err == nil || !strings.Contains(err.Error(), "want none below 0") {
			t.Errorf("%+v: got error %v, want one", p, err)
		}
	}
	p := &Pool{warm: []*Sandbox{{}, {}}}
	if first := p.warm[0]; !p.withdraw(first) || p.withdraw(first) || p.lent != 1 || len(p.warm) != 1 {
		t.Errorf("%d of 2 sandboxes are left, %d are withdrawn, want one each", len(p.warm), p.lent)
	}
	for _, transport := range []CodeTransport{CodeTransportAuto, CodeTransportWebsocket, CodeTransportHTTP, "other"} {
		var c config
		if err := WithCodeTransport(transport).apply(&c); (err != nil) != (transport == "other") || err == nil && c.code != transport {
			t.Errorf("%q: got error %v and %q", transport, err, c.code)
		}
	}
	if asks := []bool{infoOf(api.SandboxInfo{}).Asks, infoOf(api.SandboxInfo{Egress: &api.Egress{}}).Asks, infoOf(api.SandboxInfo{Egress: &api.Egress{Ask: true}}).Asks}; !slices.Equal(asks, []bool{false, false, true}) {
		t.Errorf("sandboxes ask: %v, want the last one only", asks)
	}
}

// TestCausesOfErrors checks which error a call returns if its context, its code or neither has ended.
func TestCausesOfErrors(t *testing.T) {
	t.Parallel()
	sb := newService(t).sandbox()
	mine, other := errors.New("mine"), errors.New("other")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	given := &kernelconn.InterruptedError{Context: "c", Ran: time.Second, Cause: mine, Starting: true, Ended: true}
	waited := fmt.Errorf("%w, for other code runs: %w", kernelconn.ErrNotSent, mine)
	for name, tt := range map[string]struct {
		ctx       context.Context //nolint:containedctx // in a table
		err, want error
		code      bool // an InterruptedError
	}{
		"code that was given up":    {ended, given, mine, true},
		"code that was not sent":    {ended, fmt.Errorf("%w: %w", kernelconn.ErrNotSent, given), mine, false},
		"another error":             {t.Context(), other, other, false},
		"another error, given up":   {ended, other, mine, false},
		"a wait for other code":     {ended, waited, kernelconn.ErrNotSent, false},
		"not sent for other reason": {ended, fmt.Errorf("%w: %w", kernelconn.ErrNotSent, other), mine, false},
	} {
		err := sb.cause(tt.ctx, tt.err)
		got, code := errors.AsType[*InterruptedError](err)
		if !errors.Is(err, tt.want) || code != tt.code {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
		if want := (InterruptedError{Context: "c", Ran: time.Second, Cause: mine, Ended: true, Starting: true}); code && *got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
		if wrapped := errors.Is(err, kernelconn.ErrNotSent); wrapped != (name == "a wait for other code") {
			t.Errorf("%s: got %v, which says what it waited for: %v", name, err, wrapped)
		}
	}
	if joined := (&Sandbox{}).interrupted(given); joined.Starting {
		t.Error("the kernels of a sandbox that others made are said to be starting")
	}
}
