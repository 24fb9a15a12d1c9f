//go:build linux

package kernel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/link"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStatesWithoutARequest checks what happens to a kernel that serves no request, or whose process has
// just ended: nothing.
func TestStatesWithoutARequest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		current, proc, queued bool
		busy                  bool
	}{"nothing": {}, "a process": {proc: true}, "a request": {current: true, busy: true}, "one that waits": {queued: true, busy: true}} {
		k, c, events := idle(t)
		p := &process{kernel: k, ctx: t.Context()}
		r := &Request{client: c, proc: p, armed: true, done: make(chan struct{})}
		if tt.proc {
			k.proc = p
		}
		if tt.current {
			k.current, r.proc = r, nil
		}
		if tt.queued {
			k.queue = []*Request{r}
		}
		if k.Busy() != tt.busy {
			t.Errorf("%s: busy %v, want %v", name, k.Busy(), tt.busy)
		}
		k.Interrupt()
		k.arm(p)
		if r.interrupted != tt.current || r.signals != 0 {
			t.Errorf("%s: interrupted %v with %d signals, want %v and none", name, r.interrupted, r.signals, tt.current)
		}
		if err := k.handleReply(p, &link.Message{ID: r.number, Content: json.RawMessage(`{"status":"ok"}`)}); !errors.Is(err, errLine) {
			t.Errorf("%s: a reply: got error %v", name, err)
		}
		if tt.current {
			k.asking = 7
			k.finish(r, func() {})
		}
		if len(*events) != 0 || r.finished() != tt.current {
			t.Errorf("%s: got the events %+v, and the request has ended: %v", name, *events, r.finished())
		}
	}
	k, c, _ := idle(t)
	if err := c.Submit(&Request{Content: json.RawMessage(`[`), Header: jupyter.Header{MsgType: "execute_request"}}); err == nil || len(k.queue) != 0 {
		t.Errorf("malformed content: got error %v, and %d requests wait", err, len(k.queue))
	}
	p := &process{kernel: k, ready: make(chan link.Info, 1)}
	if err := k.handle(p, &link.Message{Type: "ready", Content: json.RawMessage(`{"engine":1}`)}); !errors.Is(err, errLine) || p.running || len(p.ready) != 0 {
		t.Errorf("malformed ready: got error %v, and it runs: %v", err, p.running)
	}
}

// TestReasonAtTheEnd checks which reason clients and the request learn at the end of a process.
func TestReasonAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err              error
		reason, heedless bool // the end was requested; the code did not heed an interrupt
		replaced         bool
		want             string // in the event; "": no reason
	}{
		"it died":       {err: errors.New("exit status 1")},
		"out of memory": {err: fmt.Errorf("signal: killed (%w)", child.ErrOutOfMemory), want: child.ErrOutOfMemory.Error()},
		"requested":     {err: child.ErrOutOfMemory, reason: true},
		"heedless":      {err: errors.New("killed"), heedless: true, want: "did not heed an interrupt"},
		"replaced":      {err: errors.New("killed"), replaced: true},
	} {
		k, c, events := idle(t)
		k.spec.Logger = slog.New(slog.DiscardHandler)
		p := &process{kernel: k, ctx: t.Context(), err: tt.err, heedless: tt.heedless, replaced: tt.replaced}
		if tt.reason {
			p.reason = Ended
		}
		r := &Request{client: c, proc: p, done: make(chan struct{})}
		k.proc, k.current = p, r
		k.ended(p)
		if r.finished() == tt.replaced || (len(*events) == 0) != tt.replaced {
			t.Errorf("%s: the request has ended: %v, with the events %+v", name, r.finished(), *events)
		}
		for _, e := range *events {
			var content struct{ Reason, EValue string }
			must.Do(t, json.Unmarshal(e.Content, &content))
			missing := e.Type == "error" && !strings.Contains(content.EValue, tt.want)
			if e.Type == "status" && e.Request == nil && (tt.want == "") != (content.Reason == "") || missing {
				t.Errorf("%s: got the event %s %s, want the reason %q", name, e.Type, e.Content, tt.want)
			}
		}
	}
}

// TestFailureAbortsCodeOnly checks that a failure aborts what waits to run code, and no other request.
func TestFailureAbortsCodeOnly(t *testing.T) {
	t.Parallel()
	k, c, _ := idle(t)
	p := &process{kernel: k, ctx: t.Context(), pipes: [2]*pipe{{}, {}}}
	var all []*Request
	for _, kind := range []string{"execute_request", "complete_request", "execute_request"} {
		all = append(all, &Request{Header: jupyter.Header{MsgType: kind}})
		must.Do(t, c.Submit(all[len(all)-1]))
	}
	r := k.next()
	r.proc, r.number = p, 3
	must.Do(t, k.handleReply(p, &link.Message{ID: 3, Content: json.RawMessage(`{"status":"error"}`)}))
	if !slices.Equal(k.queue, all[1:2]) || all[1].finished() || !all[2].finished() {
		t.Errorf("%d requests wait, want the one that runs no code", len(k.queue))
	}
}

// TestLongLines checks the longest line of a driver, in each size of its buffer.
func TestLongLines(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{15: true, 99: true, 100: false, 5000: false} {
		line, err := readLine(bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", size)+"\n"), 16), 100)
		if errors.Is(err, errLine) == want || want && string(line) != strings.Repeat("x", size)+"\n" {
			t.Errorf("a line of %d bytes: got %d and error %v", size, len(line), err)
		}
	}
	if line, err := readLine(bufio.NewReader(strings.NewReader("cut")), 100); err == nil {
		t.Errorf("a line without its end: got %q", line)
	}
}
