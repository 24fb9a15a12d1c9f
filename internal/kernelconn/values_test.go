package kernelconn

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/jupyter/jupytertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestBoundsOfASequence checks the largest gap, the sum of gaps and the number of numberings that are followed, and those
// beyond.
func TestBoundsOfASequence(t *testing.T) {
	t.Parallel()
	ids := func(numbers ...int) (ids []string) {
		for _, n := range numbers {
			ids = append(ids, fmt.Sprintf("a_%d", n))
		}
		return ids
	}
	upTo := func(last int) (numbers []int) {
		for n := range last {
			numbers = append(numbers, n+1)
		}
		return numbers
	}
	numberings := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("p%d_0", i))
		}
		return ids
	}
	const most = maxMissing + 1 // the number after the largest gap
	for name, tt := range map[string]struct {
		ids      []string
		complete bool
	}{
		"the largest gap":      {ids(append([]int{0, most}, upTo(most-1)...)...), true},
		"a larger gap":         {ids(append([]int{0, most + 1}, upTo(most)...)...), false},
		"a second gap":         {ids(append([]int{0, most, most + 2, most + 1}, upTo(most-1)...)...), true},
		"a third gap":          {ids(append([]int{0, most, most + 2, most + 4, most + 1, most + 3}, upTo(most-1)...)...), false},
		"the most numberings":  {numberings(maxNumberings), true},
		"a numbering too many": {numberings(maxNumberings + 1), false},
		"no number":            {[]string{"x"}, false},
	} {
		var s sequence
		for _, id := range tt.ids {
			if !s.note(id, false) {
				t.Errorf("%s: %s is taken for a repetition", name, id)
			}
		}
		if s.complete() != tt.complete {
			t.Errorf("%s: complete is %v, want %v", name, s.complete(), tt.complete)
		}
	}
	var s sequence
	for i := range maxRecent + 2 {
		s.note("x"+strconv.Itoa(i), false)
	}
	s.resume()
	for _, tt := range []struct {
		id    int
		fresh bool
	}{{2, false}, {maxRecent, false}, {maxRecent + 1, false}, {0, true}, {3, true}} { // new messages follow the repeated ones
		if fresh := s.note("x"+strconv.Itoa(tt.id), true); fresh != tt.fresh {
			t.Errorf("message %d of %d after a cut: new is %v, want %v", tt.id, maxRecent+2, fresh, tt.fresh)
		}
	}
}

// content returns a message of the kernel.
func content(parent, channel, kind, text string) *jupyter.Message {
	return &jupyter.Message{Channel: channel, Header: jupyter.Header{MsgType: kind}, Parent: jupyter.Header{MsgID: parent}, Content: json.RawMessage(text)}
}

// TestFates checks which messages report the end of a kernel, and their reasons.
func TestFates(t *testing.T) {
	t.Parallel()
	const restarted, removed = "a client restarted its context", "a client removed its context, and only a default one comes back"
	for _, tt := range []struct {
		channel, kind, content string
		want                   fate
	}{
		{jupyter.IOPub, "status", `{"execution_state":"restarting","reason":"memory"}`, fate{restarted: true, reason: "memory"}},
		{jupyter.IOPub, "status", `{"execution_state":"dead"}`, fate{ended: true}},
		{jupyter.IOPub, "status", `{"execution_state":"busy"}`, fate{}},
		{jupyter.IOPub, "stream", `{"execution_state":"dead"}`, fate{}},
		{jupyter.IOPub, "shutdown_reply", `{"restart":true}`, fate{restarted: true, byClient: true, reason: restarted}},
		{jupyter.IOPub, "shutdown_reply", `{"restart":false}`, fate{ended: true, byClient: true, reason: removed}},
		{jupyter.IOPub, "shutdown_reply", `[`, fate{ended: true, byClient: true, reason: removed}},
		{jupyter.Control, "shutdown_reply", `{"restart":true}`, fate{}},
	} {
		got := fateOf(content("", tt.channel, tt.kind, tt.content))
		if got != tt.want || got.deadly() != (tt.want.restarted || tt.want.ended) {
			t.Errorf("%s %s: got %+v, want %+v", tt.kind, tt.content, got, tt.want)
		}
	}
	for why, want := range map[string]string{
		"": "", "Context was restarted": "", "Context was restarted: ": "", "Context was restarted: memory": ": memory", "memory": ": memory",
		strings.Repeat("x", 256): ": " + strings.Repeat("x", 256),
	} {
		if err := died(why); !errors.Is(err, ErrDied) || err.Error() != ErrDied.Error()+want {
			t.Errorf("%.20q: got %v, want the error with %.20q", why, err, want)
		}
	}
	if text := died(strings.Repeat("x", 1000)).Error(); len(text) > len(ErrDied.Error())+300 {
		t.Errorf("the reason is not bounded: %d bytes", len(text))
	}
}

// TestNotes checks the effect of each message of a kernel on an execution.
func TestNotes(t *testing.T) {
	t.Parallel()
	type state struct{ busy, ran, replied, idle, over, explained bool }
	for _, tt := range []struct {
		parent, kind, content string
		before, after         state
		want                  error
	}{
		{"mine", "status", `{"execution_state":"busy"}`, state{}, state{busy: true}, nil},
		{"mine", "status", `{"execution_state":"idle"}`, state{busy: true}, state{busy: true, idle: true}, nil},
		{"mine", "status", `{"execution_state":"starting"}`, state{busy: true, idle: true}, state{busy: true, idle: true}, nil},
		{"mine", "status", `{"execution_state":"idle"}`, state{replied: true}, state{replied: true, idle: true, over: true}, nil},
		{"mine", "execute_reply", `{"status":"ok"}`, state{}, state{replied: true}, nil},
		{"mine", "execute_reply", `{"status":"ok"}`, state{idle: true}, state{replied: true, idle: true, over: true}, nil},
		{"mine", "execute_reply", `{`, state{}, state{over: true}, ErrLost},
		{"mine", "complete_reply", `{}`, state{}, state{}, nil},
		{"mine", "execute_input", `{}`, state{}, state{ran: true}, nil},
		{"mine", "stream", `{}`, state{}, state{ran: true}, nil},
		{"mine", "execute_result", `{}`, state{}, state{ran: true}, nil},
		{"mine", "display_data", `{}`, state{}, state{ran: true}, nil},
		{"mine", "error", `{}`, state{}, state{ran: true}, nil},
		{"mine", "comm_msg", `{}`, state{}, state{}, nil},
		{"other", "stream", `{}`, state{}, state{}, nil},
		{"other", "status", `{"execution_state":"busy"}`, state{}, state{}, nil},
		{"other", "status", `{"execution_state":"dead"}`, state{}, state{over: true}, ErrDied},
		{"other", "shutdown_reply", `{}`, state{}, state{over: true, explained: true}, ErrDied},
	} {
		e := &execution{id: "mine", answer: "execute_reply", busy: tt.before.busy, ran: tt.before.ran, replied: tt.before.replied, idle: tt.before.idle}
		err := new(Kernel).note(e, content(tt.parent, jupyter.IOPub, tt.kind, tt.content))
		if got := (state{e.busy, e.ran, e.replied, e.idle, e.over, e.explained}); got != tt.after || !errors.Is(err, tt.want) {
			t.Errorf("%s %s of %s: got %+v and error %v, want %+v and %v", tt.kind, tt.content, tt.parent, got, err, tt.after, tt.want)
		}
		if e.replied && tt.kind == "execute_reply" && (string(e.content) != tt.content || e.reply.Status != "ok") {
			t.Errorf("got the reply %s with status %q", e.content, e.reply.Status)
		}
	}
}

// TestConcerns checks which messages an execution must handle.
func TestConcerns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		barrier, parent, kind, content string
		want                           bool
	}{
		{"", "mine", "stream", `{}`, true}, {"", "other", "stream", `{}`, false}, {"", "", "stream", `{}`, false},
		{"barrier", "barrier", "status", `{}`, true}, {"barrier", "other", "status", `{}`, false},
		{"", "other", "status", `{"execution_state":"dead"}`, true}, {"", "other", "input_request", `{}`, true},
	} {
		e := &execution{id: "mine", barrier: tt.barrier}
		if got := e.concerns(content(tt.parent, jupyter.IOPub, tt.kind, tt.content)); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

// TestBarrier checks what the answers to a barrier show about the request before it.
func TestBarrier(t *testing.T) {
	t.Parallel()
	shell, iopub := content("barrier", jupyter.Shell, "kernel_info_reply", `{}`), content("barrier", jupyter.IOPub, "status", `{"execution_state":"idle"}`)
	busy := content("barrier", jupyter.IOPub, "status", `{"execution_state":"busy"}`)
	for name, tt := range map[string]struct {
		e        *execution
		missed   bool
		messages []*jupyter.Message
		unsent   bool
		want     error
	}{
		"it works on the barrier":         {&execution{}, false, []*jupyter.Message{busy}, false, nil},
		"no reply":                        {&execution{idle: true}, false, []*jupyter.Message{shell}, false, ErrLost},
		"no idle status":                  {&execution{replied: true}, false, []*jupyter.Message{iopub}, false, ErrLost},
		"a reply, and iopub is late":      {&execution{replied: true}, false, []*jupyter.Message{shell}, false, nil},
		"an idle status, shell is late":   {&execution{idle: true}, false, []*jupyter.Message{iopub}, false, nil},
		"all of it":                       {&execution{replied: true, idle: true}, false, []*jupyter.Message{iopub, shell}, false, nil},
		"paused, one channel":             {&execution{paused: true}, false, []*jupyter.Message{shell}, false, nil},
		"paused, the other channel":       {&execution{paused: true}, false, []*jupyter.Message{iopub}, false, nil},
		"paused, both":                    {&execution{paused: true}, false, []*jupyter.Message{iopub, shell}, true, nil},
		"paused, and a message is missed": {&execution{paused: true}, true, []*jupyter.Message{iopub, shell}, false, ErrLost},
		"paused, busy":                    {&execution{paused: true, busy: true}, false, []*jupyter.Message{shell}, false, ErrLost},
		"paused, ran":                     {&execution{paused: true, ran: true}, false, []*jupyter.Message{shell}, false, ErrLost},
		"paused, replied":                 {&execution{paused: true, replied: true}, false, []*jupyter.Message{iopub}, false, ErrLost},
	} {
		k, e := new(Kernel), tt.e
		k.seen.unproven = tt.missed
		var err error
		for _, m := range tt.messages {
			err = k.note(e, m)
		}
		if !errors.Is(err, tt.want) || e.unsent != tt.unsent || e.over != (tt.unsent || tt.want != nil) {
			t.Errorf("%s: got error %v, not sent %v, over %v; want %v, not sent %v", name, err, e.unsent, e.over, tt.want, tt.unsent)
		}
	}
}

// TestComplete checks when an execution has all of its messages.
func TestComplete(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ resumed, busy, missed, want bool }{
		{false, false, true, true}, {true, true, false, true}, {true, false, false, false}, {true, true, true, false},
	} {
		k := new(Kernel)
		k.seen.unproven = tt.missed
		if got := k.complete(&execution{resumed: tt.resumed, busy: tt.busy}); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

// TestIDs checks which ids of contexts can be part of a path.
func TestIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "c0ffee-1_2.x": true, "...": true, strings.Repeat("a", 128): true,
		"": false, ".": false, "..": false, "a/b": false, "a?b": false, "a%41": false, "a b": false, strings.Repeat("a", 129): false,
	} {
		if got := ValidID(id); got != want {
			t.Errorf("%.20q: got %v, want %v", id, got, want)
		}
	}
}

// TestLinesOfTheInterpreter checks the lines of a call without a reader, and how they are cut.
func TestLinesOfTheInterpreter(t *testing.T) {
	t.Parallel()
	for line, tt := range map[string]struct {
		want   error
		text   string
		kernel bool
	}{
		endLine: {ErrEnd, "", true}, beginLine: {nil, "", true}, `{"type":"keepalive"}`: {nil, "", false},
		`{"type":"error","name":"ContextRestarting","value":"Context was restarted: memory"}`: {ErrDied, "memory", true},
		`{"type":"error","name":"WebSocketError","value":"closed"}`:                           {ErrLost, "closed", true},
		`{"type":"error","name":"WebSocketError","value":"closed","traceback":"Traceback"}`:   {nil, "", true},
		`{"type":"stdout","name":"ContextRestarting","value":"x"}`:                            {nil, "", true},
		`{`: {nil, "read the interpreter's answer: ", false}, `{"type":1}`: {nil, "read the interpreter's answer: ", false},
	} {
		err := skim([]byte(line))
		fails := tt.want != nil || tt.text != ""
		if (err != nil) != fails || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.text) {
			t.Errorf("%s: got error %v, want %v with %q", line, err, tt.want, tt.text)
		}
		if got := ofKernel([]byte(line)); got != tt.kernel {
			t.Errorf("%s: of the kernel: %v, want %v", line, got, tt.kernel)
		}
	}
	for text, want := range map[string][]string{
		"{}\n{\n[]": {"{}", "{", "[]"}, "{}\n{": {"{}"}, "{": nil, "1": {"1"}, "": nil, "\r\n{}": {"", "{}"},
	} {
		var got []string
		lines := bufio.NewScanner(strings.NewReader(text))
		lines.Split(wholeLines)
		for lines.Scan() {
			got = append(got, lines.Text())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// TestAnswersOfServers checks which answers to requests are accepted.
func TestAnswersOfServers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ks := s.kernels()
	var status int
	var text, sent string
	s.rest = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	for _, tt := range []struct {
		status int
		text   string
		out    bool // the content is wanted
		fails  string
	}{
		{200, `{"a":1}`, true, ""}, {201, `{"a":1}`, true, "201"}, {204, "", true, "204"}, {200, `[`, true, "not the JSON"}, {404, `{}`, true, "404"},
		{200, "x", false, ""}, {204, "", false, ""}, {299, "x", false, ""}, {300, "x", false, "300"}, {500, "x", false, "500"},
		{200, `{"a":1` + strings.Repeat(" ", 1<<20-7) + `}`, true, ""}, {200, `{"a":1` + strings.Repeat(" ", 1<<20-6) + `}`, true, "not the JSON"},
	} {
		status, text = tt.status, tt.text
		var got struct{ A int }
		var out any
		if tt.out {
			out = &got
		}
		err := ks.json(t.Context(), 0, http.MethodPost, "/x", map[string]int{"in": 2}, out)
		if (err != nil) != (tt.fails != "") || !strings.Contains(fmt.Sprint(err), tt.fails) {
			t.Errorf("%d %.20s: got error %v, want one with %q", tt.status, tt.text, err, tt.fails)
		} else if err == nil && tt.out && got.A != 1 {
			t.Errorf("%d %.20s: got %+v and error %v, want one with %q", tt.status, tt.text, got, err, tt.fails)
		}
		if sent != `{"in":2}` {
			t.Errorf("sent %s", sent)
		}
	}
	if err := ks.json(t.Context(), 0, http.MethodPost, "/x", func() {}, nil); err == nil {
		t.Error("what cannot be sent: got no error")
	}
	s.rest = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if e, ok := errors.AsType[*api.Error](ks.json(t.Context(), 0, http.MethodGet, "/x", nil, nil)); !ok || e.Path != "/x" || !errors.Is(e, io.ErrUnexpectedEOF) {
		t.Errorf("an answer that is cut: got %v", e)
	}
	if err := ks.kill(t.Context(), testContext, "why"); err == nil || ks.Loss(testContext) != nil {
		t.Errorf("a kernel that was not ended: got error %v, and its variables are lost", err)
	}
}

// TestUnknownLanguages checks which refusal of the interpreter is about the language.
func TestUnknownLanguages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&api.Error{Message: "the kernel is not available"}, true}, {&api.Error{Message: "no room"}, false}, {errors.New("the kernel is not available"), false},
	} {
		if got := unknownLanguage(tt.err); errors.Is(got, ErrUnknownLanguage) != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("%v: got %v, want %v: %v", tt.err, got, ErrUnknownLanguage, tt.want)
		}
	}
}

// TestBury checks which contexts are found dead, and how many are recorded.
func TestBury(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var contexts []Context
	s.contexts = func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(contexts) }
	answer := func(w http.ResponseWriter) { _, _ = io.WriteString(w, `[{"id":"alive"}]`) }
	s.rest = func(w http.ResponseWriter, _ *http.Request) { answer(w) }
	ks := s.kernels()
	contexts = []Context{{ID: "alive", Language: "python"}, {ID: "dead", Language: "bash", Cwd: "/d"}, {ID: "other", Language: "bash"}}
	ks.languages = map[string]string{"alive": "python", "dead": "bash", "gone": "r"}
	ks.defaults = map[string]string{"python": "alive", "bash": "dead", "r": "gone"}
	found, err := ks.bury(t.Context())
	if must.Do(t, err); !found {
		t.Error("no server was found")
	}
	want := map[string]deadContext{"dead": {Context: contexts[1], standard: true}, "other": {Context: contexts[2]}}
	for what, diff := range map[string]string{
		"dead":      cmp.Diff(want, ks.dead, cmp.AllowUnexported(deadContext{})),
		"languages": cmp.Diff(map[string]string{"alive": "python"}, ks.languages), "defaults": cmp.Diff(map[string]string{"python": "alive"}, ks.defaults),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	contexts = nil
	for i := range maxDead + 1 {
		contexts = append(contexts, Context{ID: strconv.Itoa(i)})
	}
	if _, err := ks.bury(t.Context()); err != nil || len(ks.dead) != maxDead {
		t.Errorf("got error %v and %d dead contexts, want %d", err, len(ks.dead), maxDead)
	}
	answer = func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }
	if found, err := ks.bury(t.Context()); err != nil || found {
		t.Errorf("no server of kernels: got %v and error %v", found, err)
	}
	answer = func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	if found, err := ks.bury(t.Context()); err == nil || found {
		t.Errorf("the server broke off: got %v and error %v", found, err)
	}
}

// TestContextsThatAreUsed checks which context a call uses, and which connections are recorded.
func TestContextsThatAreUsed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	made := 0
	s.contexts = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `[{"id":"mine","language":"python"},{"id":"first","language":"python"},{"id":"second","language":"python"},{"id":"a/b","language":"r"}]`)
			return
		}
		made++
		_, _ = io.WriteString(w, []string{`{"id":"new"}`, `{"id":"a/b"}`, `{"id":"dead"}`}[made-1])
	}
	ks := s.kernels()
	ks.beside["mine"], ks.dead["dead"] = struct{}{}, deadContext{}
	for _, tt := range []struct{ id, language, want string }{
		{"", "", "first"}, {DefaultContext, "", "first"}, {"", "python", "first"}, {"second", "", "second"}, {"mine", "", "mine"}, {"", "r", "new"}, {"", "r", "new"},
		{"", "bash", ""}, {"", "bash", ""}, {"unknown", "", ""},
	} {
		if got, err := ks.lookup(t.Context(), tt.id, tt.language); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q in %q: got %q and error %v, want %q", tt.id, tt.language, got, err, tt.want)
		}
	}
	if ks.languages["new"] != "r" || made != 3 {
		t.Errorf("the language of the new context is %q after %d requests, want that of the call after 3", ks.languages["new"], made)
	}
	open, err := ks.shut(t.Context(), "second")
	must.Do(t, err)
	defer open()
	for _, id := range []string{"unknown", "second"} {
		if k := ks.add(id, "session", nil); k != nil {
			t.Errorf("a connection to %s is recorded", id)
		}
	}
	for call, key := range map[*HTTPCall]string{
		{}: "first", {Context: DefaultContext}: "first", {Language: "r"}: "new", {Language: "bash"}: "bash", {Context: "second"}: "second", {Context: "second", Language: "r"}: "second",
	} {
		turn, err := ks.takeRequestTurn(t.Context(), *call)
		if must.Do(t, err); turn.key != key {
			t.Errorf("%+v: has the turn of %q, want %q", *call, turn.key, key)
		}
		ks.releaseRequestTurn(turn)
	}
}

// TestInterruptWithoutARequest checks that an interrupt becomes a message where the server refuses the request, and an error
// where that fails, too.
func TestInterruptWithoutARequest(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.rest = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotImplemented) }
	asked := make(chan string, 2)
	s.kernel = answeringAll(func(_ *jupytertest.Kernel, m *jupyter.Message) { asked <- m.Channel + " " + m.Header.MsgType })
	ks := s.kernels()
	k, err := ks.Open(t.Context(), "", "")
	must.Do(t, err)
	must.Do(t, k.Interrupt(t.Context()))
	if got := patience.Receive(t, "the message", asked); got != "control interrupt_request" {
		t.Errorf("got %s, want an interrupt", got)
	}
	k.close()
	if err := k.Interrupt(t.Context()); err == nil || !strings.Contains(err.Error(), "501") {
		t.Errorf("on a closed connection: got error %v, want that of the request", err)
	}
}

// TestAnswersToQuestions checks the answers of a handler, and that a malformed question gets the end of the input.
func TestAnswersToQuestions(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	var asked []string
	input := func(_ context.Context, prompt string, password bool) (string, error) {
		asked = append(asked, fmt.Sprint(prompt, password))
		return "value", mine
	}
	for text, want := range map[string]error{`{"prompt":"p","password":true}`: mine, `[]`: io.EOF} {
		q := newQuestions(input)
		m := content("", jupyter.Stdin, "input_request", text)
		m.Header.MsgID = "question"
		q.ask(t.Context(), m)
		if a := <-q.answers; !errors.Is(a.err, want) || a.to != m.Header {
			t.Errorf("%s: got %+v, want %v", text, a, want)
		}
		q.drop()
	}
	if !slices.Equal(asked, []string{"ptrue"}) {
		t.Errorf("the handler was asked %q, want once", asked)
	}
	if err := new(Kernel).answer(inputAnswer{err: mine}); !errors.Is(err, mine) {
		t.Errorf("got %v, want %v", err, mine)
	}
}
