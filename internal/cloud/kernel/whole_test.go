//go:build linux

package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEventsAreWhole checks each part of the events of a request and of messages of a process.
func TestEventsAreWhole(t *testing.T) {
	t.Parallel()
	const content = `{"a":1}`
	type seen struct {
		Channel, Type, Content string
		Buffers                [][]byte
		Ours, More             bool
	}
	failed := func(name, value, traceback string) []seen {
		event := `{"ename":"` + name + `","evalue":"` + value + `","traceback":` + traceback + `}`
		reply := `{"ename":"` + name + `","evalue":"` + value + `","execution_count":0,"status":"error","traceback":` + traceback + `}`
		return []seen{
			{jupyter.IOPub, "error", event, nil, true, false},
			{jupyter.Shell, "execute_reply", reply, nil, true, true},
			{jupyter.IOPub, "status", `{"execution_state":"idle"}`, nil, true, false},
		}
	}
	message := func(m link.Message) func(*Kernel, *process, *Request) {
		m.Content = json.RawMessage(content)
		return func(k *Kernel, p *process, _ *Request) { must.Do(t, k.handle(p, &m)) }
	}
	for name, test := range map[string]struct {
		do   func(*Kernel, *process, *Request)
		want []seen
	}{
		"a message":        {message(link.Message{Type: "comm_msg", Buffers: [][]byte{[]byte("b")}}), []seen{{jupyter.IOPub, "comm_msg", content, [][]byte{[]byte("b")}, true, false}}},
		"before the reply": {message(link.Message{Type: "execute_result", Replied: true}), []seen{{jupyter.IOPub, "execute_result", content, nil, true, true}}},
		"the code":         {message(link.Message{Type: "execute_input"}), []seen{{jupyter.IOPub, "execute_input", content, nil, true, false}}},
		"a question":       {message(link.Message{Type: "input_request", Seq: 1}), []seen{{jupyter.Stdin, "input_request", content, nil, true, false}}},
		"output":           {func(_ *Kernel, p *process, _ *Request) { p.output(&pipe{name: "stderr"}, "x") }, []seen{{jupyter.IOPub, "stream", `{"name":"stderr","text":"x"}`, nil, true, false}}},
		"busy":             {func(k *Kernel, p *process, r *Request) { k.status(p.ctx, r, "busy") }, []seen{{jupyter.IOPub, "status", `{"execution_state":"busy"}`, nil, true, false}}},
		"queued": {func(k *Kernel, _ *process, r *Request) {
			k.queue = []*Request{r}
			k.tellPositions()
		}, []seen{{jupyter.IOPub, Queued, `{"position":1}`, nil, true, false}}},
		"died":        {func(k *Kernel, _ *process, r *Request) { k.fail(r, Died) }, failed(Died.Name, Died.Value, "[]")},
		"ended":       {func(k *Kernel, _ *process, r *Request) { k.fail(r, Ended) }, failed(Ended.Name, Ended.Value, "[]")},
		"interrupted": {func(k *Kernel, _ *process, r *Request) { k.fail(r, interrupted) }, failed("KeyboardInterrupt", "", `["KeyboardInterrupt"]`)},
	} {
		k, c, events := idle(t)
		p := &process{kernel: k, ctx: t.Context(), running: true}
		r := &Request{client: c, done: make(chan struct{}), Header: jupyter.Header{MsgType: "execute_request"}}
		k.proc, k.parent, k.current = p, r, r
		before := time.Now()
		test.do(k, p, r)
		var got []seen
		for _, e := range *events {
			if e.Time.Before(before) {
				t.Errorf("%s: the time of %s is %v", name, e.Type, e.Time)
			}
			got = append(got, seen{e.Channel, e.Type, string(e.Content), e.Buffers, e.Request == r, e.More})
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCommandsAreWhole checks each part of a request that is sent to a process, the context of its first event, and that
// the operator learns of processes that memory ended meanwhile.
func TestCommandsAreWhole(t *testing.T) {
	t.Parallel()
	for kills, line := range map[int]string{0: "", 2: `msg="memory ran out while code ran, and processes of the sandbox were killed" killed=2`} {
		k, _, _, p := mortal(t, func(*process) {})
		var log bytes.Buffer
		k.spec.Logger = slog.New(slog.NewTextHandler(&log, nil))
		count := 5
		k.spec.Memory = &child.Memory{Kills: func() int { return count }}
		var contexts []context.Context
		c := k.Attach(func(ctx context.Context, _ Event) { contexts = append(contexts, ctx) })
		own, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.ctx = own
		r := &Request{
			Header: jupyter.Header{MsgType: "execute_request"}, Content: json.RawMessage(`{"code":"1"}`), Env: map[string]string{"A": "1"}, Buffers: [][]byte{[]byte("b")},
		}
		var got []link.Command
		p.link = &onSend{send: func(sent *link.Command) error {
			got = append(got, *sent)
			count += kills
			if k.state != jupyter.StateBusy || r.number == 0 || k.parent != r {
				t.Errorf("the state is %s, and the number %d", k.state, r.number)
			}
			close(p.done)
			return nil
		}}
		must.Do(t, c.Submit(r))
		k.serve(k.next())
		if diff := cmp.Diff([]link.Command{{Type: "execute_request", Content: r.Content, ID: r.number, Env: r.Env, Buffers: r.Buffers}}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(contexts) == 0 || contexts[0] != own {
			t.Error("the first event has not the context of the process")
		}
		if !strings.Contains(log.String(), line) || strings.Contains(log.String(), "memory") != (kills > 0) || strings.Count(log.String(), `msg="code ended" took=`) != 1 {
			t.Errorf("%d kills: logged %s, want %s", kills, &log, line)
		}
	}
}

// TestAnswersToAProcess checks each part of the answers to a process.
func TestAnswersToAProcess(t *testing.T) {
	t.Parallel()
	k, c, _, p := mortal(t, func(*process) {})
	var got []link.Command
	p.link = &onSend{send: func(sent *link.Command) error {
		got = append(got, *sent)
		return nil
	}}
	must.Do(t, k.handle(p, &link.Message{Type: "sync", Seq: 7, Content: json.RawMessage("{}")}))
	r := &Request{client: c, proc: p, done: make(chan struct{})}
	k.parent, k.current = r, r
	must.Do(t, k.handleInput(p, &link.Message{Seq: 8}))
	must.Do(t, c.Answer("x"))
	must.Do(t, k.handleInput(p, &link.Message{Seq: 9}))
	k.finish(r, func() {})
	must.Do(t, k.handleInput(p, &link.Message{Seq: 10}))
	k.asking = 11 // of a request that no process serves
	k.finish(&Request{done: make(chan struct{})}, func() {})
	want := []link.Command{
		{Type: "ack", Seq: 7}, {Type: "input_reply", Seq: 8, Value: "x"},
		{Type: "input_reply", Seq: 9, EOF: true}, {Type: "input_reply", Seq: 10, EOF: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestInterruptsOfEachKind checks the interrupt that each kind of process gets as a message.
func TestInterruptsOfEachKind(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec   Spec
		number uint64
		want   []link.Command
	}{
		"the first":        {Spec{}, 1, []link.Command{{Type: "interrupt_request", Seq: 1}}},
		"the last":         {Spec{}, announced, []link.Command{{Type: "interrupt_request", Seq: announced}}},
		"one too many":     {Spec{}, announced + 1, nil},
		"in WebAssembly":   {Spec{Wasm: &Wasm{}}, announced + 1, []link.Command{{Type: "interrupt_request"}}},
		"Jupyter's":        {Spec{Jupyter: &zmq.Spec{InterruptMode: zmq.InterruptByMessage}}, announced + 1, []link.Command{{Type: "interrupt_request"}}},
		"Jupyter's signal": {Spec{Jupyter: &zmq.Spec{InterruptMode: "signal"}}, 1, nil},
	} {
		k, _, _, p := mortal(t, func(*process) {})
		k.spec = test.spec
		var got []link.Command
		p.link = &onSend{send: func(sent *link.Command) error {
			got = append(got, *sent)
			return nil
		}}
		p.interrupt(test.number)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestInterruptsOfNothing checks that an interrupt has no effect where no request or no process is left, and that a request
// that is interrupted before it is armed is interrupted once, when it is.
func TestInterruptsOfNothing(t *testing.T) {
	t.Parallel()
	k, _, _, p := mortal(t, func(*process) {})
	sent := 0
	p.link = &onSend{send: func(*link.Command) error {
		sent++
		return nil
	}}
	k.arm(p) // no request
	k.Interrupt()
	r := &Request{}
	k.current = r
	k.arm(p) // the request of no process
	k.Interrupt()
	k.proc, r.armed = nil, true
	k.Interrupt()
	if sent > 0 || r.signals > 0 || !r.interrupted {
		t.Errorf("the process got %d messages for %d signals, and the request was interrupted: %v, want none and true", sent, r.signals, r.interrupted)
	}
	k.proc, r.proc, r.armed = p, p, false
	for range 2 {
		k.arm(p)
	}
	if sent != 1 || r.signals != 1 || !r.armed {
		t.Errorf("the process got %d messages for %d signals, want one", sent, r.signals)
	}
	locksAreFree(t, "armed", k)
}

// TestOutputThatIsNoEvent checks that output before the process is ready, and all output of a Jupyter kernel, is kept for errors.
func TestOutputThatIsNoEvent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		jupyter *zmq.Spec
		running bool
		events  int
		tail    string
	}{
		"starting": {nil, false, 0, "x"}, "running": {nil, true, 1, ""},
		"Jupyter's, starting": {&zmq.Spec{}, false, 0, "x"}, "Jupyter's": {&zmq.Spec{}, true, 0, "x"},
	} {
		k, _, events, p := mortal(t, func(*process) {})
		k.spec.Jupyter, p.running = test.jupyter, test.running
		p.output(&pipe{name: "stdout"}, "x")
		p.output(&pipe{name: "stdout"}, "")
		if len(*events) != test.events || string(p.tail) != test.tail {
			t.Errorf("%s: got %d events and %q, want %d and %q", name, len(*events), p.tail, test.events, test.tail)
		}
	}
}

// TestPositionsMayChange checks after which changes of the queue clients learn their positions: where another request waits.
func TestPositionsMayChange(t *testing.T) {
	t.Parallel()
	k, c, _ := idle(t)
	check := func(what string, want int) {
		t.Helper()
		if got := len(k.moved); got != want {
			t.Errorf("%s: got %d wake-ups, want %d", what, got, want)
		}
		for range len(k.moved) {
			<-k.moved
		}
	}
	first := &Request{}
	must.Do(t, c.Submit(first))
	check("a request that is alone", 0)
	must.Do(t, c.Submit(&Request{}))
	check("a second one", 1)
	k.next()
	check("the first is served", 1)
	k.next()
	check("the last is served", 0)
	must.Do(t, c.Submit(&Request{}))
	check("one behind that which is served", 1)
	if err := c.Submit(&Request{Content: json.RawMessage("[")}); err == nil || len(k.queue) != 1 {
		t.Errorf("malformed content: got error %v, and %d requests wait, want one", err, len(k.queue))
	}
	c.Cancel(first) // it is served no more
	if running := k.current; running.interrupted {
		t.Error("the end of another request interrupts the one that is served")
	}
	c.Cancel(k.current)
	if !k.current.interrupted || len(k.queue) != 1 {
		t.Errorf("the request that is served was interrupted: %v, and %d requests wait, want true and one", k.current.interrupted, len(k.queue))
	}
	k.asking, k.asker = 1, c
	must.Do(t, c.Answer("x")) // no process is left that could read it
}

// TestPortsInUse checks which ends of a process at its start are those of a port that another program has taken.
func TestPortsInUse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		jupyter *zmq.Spec
		tail    string
		want    bool
	}{
		"taken":        {&zmq.Spec{}, " OSError: Address already in use\n", true},
		"another end":  {&zmq.Spec{}, "no memory", false},
		"no ports":     {nil, "address already in use", false},
		"said nothing": {&zmq.Spec{}, "", false},
	} {
		k, _, _, p := mortal(t, func(*process) {})
		k.spec.Jupyter, p.tail, p.err = test.jupyter, []byte(test.tail), errors.New("exit status 1")
		close(p.done)
		_, err := p.waitReady(t.Context())
		if !errors.Is(err, p.err) || errors.Is(err, syscall.EADDRINUSE) != test.want || !strings.HasSuffix(err.Error(), "\n"+strings.TrimSpace(test.tail)) {
			t.Errorf("%s: got error %v, want that of a port: %v", name, err, test.want)
		}
		locksAreFree(t, name, k)
	}
}

// TestNewKernels checks that a new kernel is idle since now, and when a kernel is busy.
func TestNewKernels(t *testing.T) {
	t.Parallel()
	before := time.Now()
	k := New(Spec{Logger: slog.New(slog.DiscardHandler)})
	state, activity := k.State()
	if state != jupyter.StateIdle || activity.Before(before) || k.Busy() {
		t.Errorf("got the state %s since %v, busy: %v, want idle since now", state, activity, k.Busy())
	}
	must.Do(t, k.Close())
	for name, busy := range map[string]*Kernel{"serves": {current: &Request{}}, "waits": {queue: []*Request{{}}}} {
		if !busy.Busy() {
			t.Errorf("a kernel whose request %s is not busy", name)
		}
	}
}
