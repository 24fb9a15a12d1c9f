//go:build linux

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// idle returns a kernel that serves no requests, and a client that appends its events to a list.
func idle(t *testing.T) (*Kernel, *Client, *[]Event) {
	k := &Kernel{wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), ctx: t.Context()}
	events := new([]Event)
	return k, k.Attach(func(_ context.Context, e Event) { *events = append(*events, e) }), events
}

// TestLocksAreFree checks that no call keeps a lock of its kernel.
func TestLocksAreFree(t *testing.T) {
	t.Parallel()
	k, c, _ := idle(t)
	k.spec.Logger = slog.New(slog.DiscardHandler)
	p := &process{kernel: k, ctx: t.Context(), link: sentTo{sent: new([]string)}}
	r := &Request{Header: jupyter.NewHeader("execute_request", "", "")}
	closed, _, _ := idle(t)
	closed.closed = true
	for _, call := range []struct {
		name string
		of   *Kernel
		do   func()
	}{
		{"Attach", k, func() { k.Attach(nil).Close() }},
		{"State", k, func() { k.State() }},
		{"Busy", k, func() { k.Busy() }},
		{"Connections", k, func() { k.Connections() }},
		{"Submit", k, func() { must.Do(t, c.Submit(r)) }},
		{"Submit to a closed kernel", closed, func() { must.Is(t, closed.Attach(nil).Submit(&Request{}), ErrClosed) }},
		{"tellPositions", k, k.tellPositions},
		{"attached", k, func() { k.attached(c) }},
		{"startsWarm", k, func() { k.startsWarm(nil) }},
		{"next", k, func() { k.next() }},
		{"next without a request", closed, func() { closed.next() }},
		{"Interrupt", k, k.Interrupt},
		{"Cancel", k, func() { c.Cancel(r) }},
		{"Answer without a question", k, func() { must.Do(t, c.Answer("x")) }},
		{"arm", k, func() { k.arm(p) }},
		{"Answer", k, func() { k.proc, k.asking, k.asker = p, 1, c; must.Do(t, c.Answer("x")) }},
		{"a reply to nothing", k, func() { must.Is(t, k.handleReply(p, &link.Message{Content: json.RawMessage("{}")}), errLine) }},
		{"finish", k, func() { k.finish(r, func() {}) }},
		{"the end of another process", k, func() { k.ended(&process{kernel: k}) }},
		{"the end", k, func() { k.ended(p) }},
		{"Start of a closed kernel", closed, func() {
			_, err := closed.Start(t.Context())
			must.Is(t, err, ErrClosed)
		}},
		{"Restart of a closed kernel", closed, func() { must.Is(t, closed.Restart(t.Context()), ErrClosed) }},
		{"Close of a client", k, c.Close},
	} {
		soon(t, call.name, call.do)
		for name, lock := range map[string]*sync.Mutex{"starting": &call.of.starting, "emitting": &call.of.emitting, "mu": &call.of.mu} {
			if !lock.TryLock() {
				t.Fatalf("%s keeps the lock %s", call.name, name)
			}
			lock.Unlock()
		}
	}
}

// A queue takes as many requests and bytes as it may, and one request of any size if it is empty.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	const content = `{"a":1}`
	k, c, _ := idle(t)
	submit := func(queueBytes int, want error) *Request {
		t.Helper()
		k.queueBytes = queueBytes
		r := &Request{Content: json.RawMessage(content)}
		if err := c.Submit(r); !errors.Is(err, want) {
			t.Errorf("with %d requests of %d bytes: got %v, want %v", len(k.queue), queueBytes, err, want)
		}
		return r
	}
	r := submit(maxQueueBytes, nil) // larger than the bound, but alone
	if k.queueBytes != maxQueueBytes+len(content) {
		t.Errorf("%d bytes are counted", k.queueBytes)
	}
	c.Cancel(r)
	if k.queueBytes != maxQueueBytes || len(k.queue) != 0 {
		t.Errorf("%d requests of %d bytes are left", len(k.queue), k.queueBytes)
	}
	submit(0, nil)
	submit(maxQueueBytes-len(content), nil)
	submit(maxQueueBytes-len(content)+1, ErrQueueFull)
	for len(k.queue) < maxQueue {
		submit(0, nil)
	}
	submit(0, ErrQueueFull)
	k.closed = true
	submit(0, ErrClosed)
}

// Requests are told their first position, and later ones only when they are close to their turn.
func TestPositionsAreTold(t *testing.T) {
	t.Parallel()
	k, _, _ := idle(t)
	told := func(what string, want ...int) {
		t.Helper()
		var got []int
		for _, r := range k.displaced() {
			got = append(got, slices.Index(k.queue, r))
			if at := slices.Index(k.queue, r); r.position != at && k.current == nil || r.position != at+1 && k.current != nil {
				t.Errorf("%s: request %d has the position %d", what, at, r.position)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	for range closePositions + 3 {
		k.queue = append(k.queue, new(Request))
	}
	told("at first", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	told("nothing moved")
	k.current = new(Request)
	told("one more runs", 0, 1, 2, 3, 4, 5, 6, 7)
	k.queue = append(k.queue, new(Request))
	told("a new one", 11)
}

// A request that failed is answered with every field that clients rely on.
func TestAnswerOfAFailedRequest(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][]string{
		"execute_request": {
			`iopub error {"ename":"N","evalue":"v","traceback":["N: v"]}`,
			`shell execute_reply {"ename":"N","evalue":"v","execution_count":0,"status":"error","traceback":["N: v"]}`,
			`iopub status {"execution_state":"idle"}`,
		},
		"inspect_request": {
			`shell inspect_reply {"ename":"N","evalue":"v","execution_count":0,"status":"error","traceback":["N: v"]}`,
			`iopub status {"execution_state":"idle"}`,
		},
	} {
		k, c, events := idle(t)
		k.fail(&Request{Header: jupyter.Header{MsgType: kind}, client: c}, jupyter.ErrorContent{Name: "N", Value: "v"})
		var got []string
		for _, e := range *events {
			got = append(got, fmt.Sprintf("%s %s %s", e.Channel, e.Type, e.Content))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// sentTo is a link that records what is sent to the process.
type sentTo struct {
	link.Link
	sent *[]string
}

func (l sentTo) Send(c *link.Command) error {
	*l.sent = append(*l.sent, fmt.Sprintf("%d %q %v", c.Seq, c.Value, c.EOF))
	return nil
}

// A question has one answer: of the client that was asked, or the end of input if there is none.
func TestQuestionsHaveOneAnswer(t *testing.T) {
	t.Parallel()
	k, c, events := idle(t)
	_, other, _ := idle(t)
	other.kernel = k
	var sent []string
	p := &process{kernel: k, link: sentTo{sent: &sent}, ctx: t.Context()}
	k.proc, k.parent = p, &Request{client: c, done: make(chan struct{})}
	ask := func(seq uint64) {
		t.Helper()
		must.Do(t, k.handleInput(p, &link.Message{Type: "input_request", Seq: seq}))
	}
	ask(7)
	must.Do(t, other.Answer("not asked"))
	must.Do(t, c.Answer("a"))
	must.Do(t, c.Answer("b"))
	ask(8)
	c.Close()
	ask(9)
	k.clients = append(k.clients, c)
	close(k.parent.done)
	ask(10)
	k.parent = nil
	ask(11)
	leaving := k.Attach(func(context.Context, Event) { k.clients = nil }) // closed before it learned of the question
	k.parent = &Request{client: leaving, done: make(chan struct{})}
	ask(12)
	if diff := cmp.Diff([]string{`7 "a" false`, `8 "" true`, `9 "" true`, `10 "" true`, `11 "" true`, `12 "" true`}, sent); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(*events) != 2 {
		t.Errorf("the client was asked %d times, want twice", len(*events))
	}
}

// TestDecoderOfCutText checks that text that is cut between any two bytes is whole again, and
// that bytes that are no text are replaced.
func TestDecoderOfCutText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"aé€😀z": "aé€😀z", "a\xffb": "a\uFFFDb", "\x80\x80": "\uFFFD", "a\xf0\x9f\x98": "a\uFFFD", "€\xe2\x82": "€\uFFFD",
	} {
		for size := 1; size <= len(text); size++ {
			var d decoder
			var got strings.Builder
			for part := range slices.Chunk([]byte(text), size) {
				got.WriteString(d.decode(part))
			}
			got.WriteString(d.end())
			if squeezed := strings.ReplaceAll(got.String(), "\uFFFD\uFFFD", "\uFFFD"); squeezed != want || len(d.rest) > 0 {
				t.Errorf("%q in parts of %d bytes: got %q, want %q", text, size, got.String(), want)
			}
		}
	}
}

// TestNothingReachesAClientThatIsClosed checks that a client gets no event after its Close, not even the
// reply to its own request, and that other clients still get the status.
func TestNothingReachesAClientThatIsClosed(t *testing.T) {
	t.Parallel()
	k, c, events := idle(t)
	var others []Event
	k.Attach(func(_ context.Context, e Event) { others = append(others, e) })
	r := &Request{client: c, done: make(chan struct{})}
	c.Close()
	k.reply(t.Context(), r, json.RawMessage(`{}`))
	if len(*events) != 0 || len(others) != 1 || others[0].Type != "status" {
		t.Errorf("the closed client got %v, the other one %v, want nothing and a status", *events, others)
	}
}
