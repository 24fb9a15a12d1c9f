//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFirstLineOfAFork checks that the first line of a forked process is bounded, and that nothing behind it is read.
func TestFirstLineOfAFork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{`{"pid":7}` + "\nrest": nil, strings.Repeat(" ", 54) + `{"pid":7}` + "\nrest": nil, strings.Repeat("x", 1000): errLine} {
		ours, theirs, err := child.SocketPair()
		must.Do(t, err)
		c, err := net.FileConn(theirs)
		must.Do(t, errors.Join(err, theirs.Close()))
		_, err = io.WriteString(ours, text)
		must.Do(t, errors.Join(err, ours.CloseWrite()))
		var forked struct{ PID int }
		if err := readShortLine(c.(*net.UnixConn), &forked); !errors.Is(err, want) || want == nil && forked.PID != 7 {
			t.Errorf("%.20q: got the id %d and error %v, want %v", text, forked.PID, err, want)
		}
		must.Do(t, ours.Close())
		if rest, err := io.ReadAll(c); want == nil && (err != nil || string(rest) != "rest") {
			t.Errorf("%.20q: got the rest %q and error %v, want all of it", text, rest, err)
		}
		must.Do(t, c.Close())
	}
}

// TestForkIsCheckedOnce checks that only the first code of a forked process can replace the process: later there is
// state in it.
func TestForkIsCheckedOnce(t *testing.T) {
	t.Parallel()
	k, _, _ := idle(t)
	k.spec.Logger = slog.New(slog.DiscardHandler)
	var sent []string
	p := &process{kernel: k, link: sentTo{sent: &sent}, ctx: t.Context(), untouched: true, checked: make(chan []string, 2)}
	k.proc = p
	p.checked <- nil
	p.checked <- []string{"numpy"}
	for range 3 {
		_, err := k.fresh()
		must.Do(t, err)
	}
	if len(sent) != 1 {
		t.Errorf("the process was asked %d times, want once", len(sent))
	}
}

// TestTailIsBounded checks that a process that prints endlessly before it is ready costs little memory.
func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	k, _, events := idle(t)
	p := &process{kernel: k}
	for i := range 3000 {
		p.output(&pipe{name: "stdout"}, fmt.Sprintf("%5d\n", i))
	}
	if len(p.tail) != 4096 || !strings.HasSuffix(string(p.tail), " 2998\n 2999\n") || len(*events) > 0 {
		t.Errorf("got %d bytes that end with %q, and %d events, want 4096 bytes of the last lines", len(p.tail), p.tail[max(0, len(p.tail)-20):], len(*events))
	}
}

// TestInterruptsAreAnnounced checks that a driver that does not read is told of a few interrupts only.
func TestInterruptsAreAnnounced(t *testing.T) {
	t.Parallel()
	k, _, _ := idle(t)
	var sent []string
	p := &process{kernel: k, link: sentTo{sent: &sent}, process: &os.Process{Pid: 1 << 30}} // no process has this id
	for n := range uint64(3 * announced) {
		p.interrupt(n + 1)
	}
	if len(sent) != announced {
		t.Errorf("%d of %d interrupts were announced, want %d", len(sent), 3*announced, announced)
	}
}

// TestOutputAtTheEnd checks that a process that ends in the middle of a character loses nothing, on both pipes.
func TestOutputAtTheEnd(t *testing.T) {
	t.Parallel()
	k, _, events := idle(t)
	p := &process{kernel: k, ctx: t.Context(), running: true}
	stdio, err := p.openPipes()
	must.Do(t, err)
	for i, f := range stdio {
		if i > 0 {
			_, err := io.WriteString(f, "a\xe2\x82")
			must.Do(t, err)
		}
		must.Do(t, f.Close())
	}
	p.drainAndClose()
	got := map[string]string{}
	for _, e := range *events {
		var c struct{ Name, Text string }
		must.Do(t, json.Unmarshal(e.Content, &c))
		got[c.Name] += c.Text
	}
	if diff := cmp.Diff(map[string]string{"stdout": "a\uFFFD", "stderr": "a\uFFFD"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMessagesOfTheDriver checks which messages of a process are taken: those of the request that runs, once.
func TestMessagesOfTheDriver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		m    link.Message
		want error
	}{
		"an earlier process": {link.Message{Type: "reply", ID: 5, Content: json.RawMessage(`{"status":"ok"}`)}, errLine},
		"ready":              {link.Message{Type: "ready", Content: json.RawMessage(`{}`)}, errLine}, // it has been
		"reply":              {link.Message{Type: "reply", ID: 5, Content: json.RawMessage(`{"status":"ok"}`)}, nil},
		"another's reply":    {link.Message{Type: "reply", ID: 6, Content: json.RawMessage(`{"status":"ok"}`)}, errLine},
		"reply to nothing":   {link.Message{Type: "reply", Content: json.RawMessage(`{"status":"ok"}`)}, errLine},
		"malformed reply":    {link.Message{Type: "reply", ID: 5, Content: json.RawMessage(`{"status":1}`)}, errLine},
		"malformed checked":  {link.Message{Type: "checked", Content: json.RawMessage(`{"changed":1}`)}, errLine},
		"malformed ending":   {link.Message{Type: "ending", Content: json.RawMessage(`{"reason":1}`)}, errLine},
		"unknown":            {link.Message{Type: "other", Content: json.RawMessage(`{}`)}, errLine},
		"output":             {link.Message{Type: "stream", Content: json.RawMessage(`{}`)}, nil},
	} {
		k, c, _ := idle(t)
		p := &process{kernel: k, ctx: t.Context(), running: true, ready: make(chan link.Info, 1)}
		r := &Request{client: c, proc: p, number: 5, done: make(chan struct{})}
		k.proc, k.current = p, r
		if name == "an earlier process" {
			r.proc = &process{kernel: k}
		}
		stdio, err := p.openPipes()
		must.Do(t, err)
		if err := k.handle(p, &test.m); !errors.Is(err, test.want) || r.finished() != (name == "reply") {
			t.Errorf("%s: got error %v, the request has ended: %v, want %v", name, err, r.finished(), test.want)
		}
		for _, f := range stdio {
			must.Do(t, f.Close())
		}
		must.Do(t, p.closePipes())
	}
}

// TestReasonOfAnEndIsBounded checks the longest reason of a process for its end.
func TestReasonOfAnEndIsBounded(t *testing.T) {
	t.Parallel()
	for n, whole := range map[int]bool{0: true, maxEnding: true, maxEnding + 1: false, 1 << 20: false} {
		p := &process{}
		must.Do(t, p.handleEnding(&link.Message{Content: json.RawMessage(`{"reason":"` + strings.Repeat("x", n) + `"}`)}))
		if (len(p.ending) == n) != whole || len(p.ending) > maxEnding+len("…") {
			t.Errorf("a reason of %d bytes: got %d", n, len(p.ending))
		}
	}
}

// TestRequestsLeaveTheQueue checks that the bytes of the queue are those of its requests, however they leave it.
func TestRequestsLeaveTheQueue(t *testing.T) {
	t.Parallel()
	k, c, _ := idle(t)
	other := k.Attach(func(_ context.Context, _ Event) {})
	var all []*Request
	for i := range 6 {
		client := c
		if i%2 == 1 {
			client = other
		}
		all = append(all, &Request{Content: json.RawMessage(`{"a":"` + strings.Repeat("x", i) + `"}`), Header: jupyter.Header{MsgType: "execute_request"}})
		must.Do(t, client.Submit(all[i]))
	}
	check := func(what string, want ...*Request) {
		t.Helper()
		bytes := 0
		for _, r := range want {
			bytes += len(r.Content)
		}
		if !slices.Equal(k.queue, want) || k.queueBytes != bytes {
			t.Errorf("%s: %d requests of %d bytes are left, want %d of %d", what, len(k.queue), k.queueBytes, len(want), bytes)
		}
	}
	check("all", all...)
	p := &process{kernel: k, ctx: t.Context()}
	p.pipes = [2]*pipe{{}, {}}
	r := k.next()
	r.proc, r.number = p, 3
	check("one is served", all[1:]...)
	c.Cancel(all[4])
	check("one is cancelled", all[1], all[2], all[3], all[5])
	must.Do(t, k.handleReply(p, &link.Message{ID: 3, Content: json.RawMessage(`{"status":"error"}`)}))
	check("one has failed: those of its client are aborted", all[1], all[3], all[5])
	if !all[2].finished() || all[4].finished() {
		t.Error("the aborted request is not answered, or the cancelled one is")
	}
}

// TestEndOfAProcess checks what the end of a process leaves: no request, no parent of later output, and a successor
// only if the process has served something.
func TestEndOfAProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		served, runs, asked bool
		revived             bool
	}{"at its start": {}, "idle": {served: true, revived: true}, "in a request": {runs: true, revived: true}, "on request": {served: true, runs: true, asked: true}} {
		k, c, _ := idle(t)
		k.spec.Logger = slog.New(slog.DiscardHandler)
		p := &process{kernel: k, ctx: t.Context()}
		r := &Request{client: c, proc: p, done: make(chan struct{})}
		k.proc, k.served, k.parent = p, test.served, r
		if test.runs {
			k.current = r
		}
		if test.asked {
			p.reason = Ended
		}
		k.ended(p)
		if k.proc != nil || k.current != nil || k.parent != nil {
			t.Errorf("%s: got the process %p, the request %p and the parent %p, want none", name, k.proc, k.current, k.parent)
		}
		if r.finished() != test.runs || k.revive != test.revived {
			t.Errorf("%s: the request has ended: %v, a new process starts: %v, want %v and %v", name, r.finished(), k.revive, test.runs, test.revived)
		}
		k.revive = false
		if k.ended(p); k.revive {
			t.Errorf("%s: an end that was handled is handled again", name)
		}
	}
}

// TestStateAtTheEnd checks which state clients learn at the end of a process.
func TestStateAtTheEnd(t *testing.T) {
	t.Parallel()
	for closed, want := range map[bool]string{false: jupyter.StateRestarting, true: jupyter.StateDead} {
		k, _, events := idle(t)
		k.spec.Logger = slog.New(slog.DiscardHandler)
		p := &process{kernel: k, ctx: t.Context()}
		k.proc, k.closed = p, closed
		k.ended(p)
		if len(*events) != 1 || !strings.Contains(string((*events)[0].Content), `"`+want+`"`) {
			t.Errorf("closed %v: got the events %+v, want the state %s", closed, *events, want)
		}
	}
}

// TestEndOfAnEarlierProcess checks that the end of a process leaves alone a request that another one serves, or that
// none serves yet, and the process that has taken its place.
func TestEndOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(k *Kernel, p *process, r *Request){
		"a request of another process":     func(_ *Kernel, _ *process, r *Request) { r.proc = &process{} },
		"a request that is yet to be sent": func(*Kernel, *process, *Request) {},
		"a successor":                      func(k *Kernel, _ *process, _ *Request) { k.proc = &process{} },
	} {
		k, c, _ := idle(t)
		k.spec.Logger = slog.New(slog.DiscardHandler)
		p, r := &process{kernel: k, ctx: t.Context()}, &Request{client: c, done: make(chan struct{})}
		k.proc, k.current = p, r
		place(k, p, r)
		next := k.proc
		k.ended(p)
		if left := next == p || k.proc == next; k.current != r || r.finished() || !p.over || !left {
			t.Errorf("%s: the request has ended: %v, and the process is %p, want %p", name, r.finished(), k.proc, next)
		}
	}
}

// TestQuestionOfAnEndedRequest checks that a question that is open at the end of its request is answered, and no other.
func TestQuestionOfAnEndedRequest(t *testing.T) {
	t.Parallel()
	for asking, want := range map[uint64][]string{0: nil, 9: {`9 "" true`}} {
		k, c, _ := idle(t)
		var sent []string
		p := &process{kernel: k, link: sentTo{sent: &sent}, ctx: t.Context()}
		r := &Request{client: c, proc: p, done: make(chan struct{})}
		k.current, k.asking, k.state = r, asking, jupyter.StateBusy
		k.finish(r, func() {})
		if diff := cmp.Diff(want, sent); diff != "" {
			t.Errorf("question %d (-want +got):\n%s", asking, diff)
		}
		if k.current != nil || k.asking != 0 || k.state != jupyter.StateIdle || !r.finished() {
			t.Errorf("question %d: the request %p, the question %d and the state %s are left, want none and idle", asking, k.current, k.asking, k.state)
		}
	}
}

// TestLinesOfTheDriver checks which lines are messages: those with a type and an object.
func TestLinesOfTheDriver(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		`{"type":"reply","content":{}}`: true, `{"type":"stream","content":{"name":"stdout","text":"x"}}`: true, `{"type":"other","content":{"a":1},"id":3}`: true,
		`{"type":"reply","content":[]}`: false, `{"type":"reply","content":"{}"}`: false, `{"type":"reply","content":1}`: false, `{"type":"reply","content":null}`: false,
		`{"type":"reply"}`: false, `{"type":"","content":{}}`: false, `{"content":{}}`: false, `{"type":1,"content":{}}`: false, `[]`: false, `{`: false, ``: false,
		`{"type":"stream","content":["name"]}`: false, `{"type":"stream","content":{}`: false,
	} {
		if m, err := parseLine([]byte(line + "\n")); (err == nil) != want || err != nil && !errors.Is(err, errLine) {
			t.Errorf("%s: got %+v and error %v, want a message: %v", line, m, err, want)
		}
	}
}

// TestCommandThatIsNoJSON checks that a command with malformed content is an error, and that the driver
// gets no part of it.
func TestCommandThatIsNoJSON(t *testing.T) {
	t.Parallel()
	ours, theirs, err := child.SocketPair()
	must.Do(t, err)
	defer theirs.Close()
	l := lines{ours}
	if err := l.Send(&link.Command{Type: "request", Content: json.RawMessage("{")}); err == nil {
		t.Error("the command was sent")
	}
	l.Close()
	if got, err := io.ReadAll(theirs); err != nil || len(got) > 0 {
		t.Errorf("the driver got %q and error %v, want nothing", got, err)
	}
}
