//go:build linux

package interpreter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// printed returns the event of a text that code prints.
func printed(t *testing.T, text string) kernel.Event {
	t.Helper()
	content, err := json.Marshal(jupyter.StreamContent{Name: "stdout", Text: text})
	must.Do(t, err)
	return kernel.Event{Type: "stream", Content: content}
}

// The output that waits for a slow reader is bounded: above the bound the kernel waits until
// there is space, the reader is gone or the kernel ends. Nothing is lost and the order stays.
func TestOutputWaitsForItsReader(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"1 byte": 1, "4 KiB": outboxFrame, "1 MiB": 1 << 20, "the bound": outboxBytes, "more than the bound": 2 * outboxBytes} {
		for _, ending := range []string{"read", "reader gone", "kernel gone"} {
			t.Run(name+" "+ending, func(t *testing.T) {
				t.Parallel()
				texts := []string{strings.Repeat("a", size), strings.Repeat("b", size)}
				synctest.Test(t, func(t *testing.T) { slowReader(t, ending, []kernel.Event{printed(t, texts[0]), printed(t, texts[1])}) })
			})
		}
	}
}

func slowReader(t *testing.T, ending string, events []kernel.Event) {
	kernelCtx, kernelEnds := context.WithCancel(t.Context())
	defer kernelEnds()
	readerCtx, readerLeaves := context.WithCancel(t.Context())
	defer readerLeaves()
	e := &execution{outbox: newOutbox()}
	data, err := asciiLine(e.lines(events[0])[0])
	must.Do(t, err)
	// The number that fits: a frame of less than outboxFrame counts as one of that size, and
	// one that is larger than the whole bound is alone.
	fit := max(1, outboxBytes/max(len(data), outboxFrame))
	number := fit + 3
	delivered := 0
	go func() {
		for range number {
			e.deliver(kernelCtx, readerCtx, events[delivered%2])
			delivered++
		}
	}()
	synctest.Wait()
	if frames := len(e.outbox.frames); frames != fit || delivered != fit {
		t.Errorf("%d frames of %d bytes were delivered, and %d wait, want %d", delivered, len(data), frames, fit)
	}
	switch ending {
	case "reader gone":
		readerLeaves()
	case "kernel gone":
		kernelEnds()
	default:
		for i := range number {
			synctest.Wait()
			f := <-e.outbox.frames
			e.outbox.taken(f)
			if !bytes.Contains(f.data, []byte("ab"[i%2:i%2+1])) {
				t.Fatalf("frame %d is %.40s, which is another's", i, f.data)
			}
		}
	}
	synctest.Wait()
	if delivered != number {
		t.Errorf("%d frames were delivered when it was over, want all %d", delivered, number)
	}
}

// gatedWriter is a reader of an answer that begins to read when its gate is opened.
type gatedWriter struct {
	*httptest.ResponseRecorder
	gate chan struct{}
}

func (w gatedWriter) Write(data []byte) (int, error) {
	<-w.gate
	return w.ResponseRecorder.Write(data)
}

// A reader who begins to read when the code is over gets everything.
func TestOutputThatIsReadAtTheEnd(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	k, err := p.defaultContext(normalLanguage(""))
	must.Do(t, err)
	w := gatedWriter{httptest.NewRecorder(), make(chan struct{})}
	stream := func(code string) <-chan struct{} {
		over := make(chan struct{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/execute", nil)
		go func() {
			defer close(over)
			p.stream(w, r, k, code, nil)
		}()
		return over
	}
	const lines = 200
	over := stream("for i in range(200): print(i, 'x' * 10000, flush=True)\n'the result'")
	for text := ""; text != "200"; text = merged(p.run(t, map[string]any{"code": "globals().get('i', -1) + 1"}), "result") {
	}
	close(w.gate)
	patience.Receive(t, "what waited", over)
	body := w.Body.String()
	if n := strings.Count(body, strings.Repeat("x", 10000)); n != lines {
		t.Errorf("%d of %d lines came", n, lines)
	}
	if !strings.Contains(body, "the result") || !strings.HasSuffix(body, "{\"type\": \"end_of_execution\"}\n") {
		t.Errorf("the answer ends with %.200q, want the result and the end", body[max(0, len(body)-200):])
	}
	// A reader that reads all the time gets more than fits at once.
	w.Body.Reset()
	patience.Receive(t, "much output", stream("for i in range(800): print(i, 'x' * 10000, flush=True)"))
	if n := strings.Count(w.Body.String(), strings.Repeat("x", 10000)); n != 4*lines {
		t.Errorf("%d of %d lines came", n, 4*lines)
	}
}

// TestAbandonedCode checks for how long code is interrupted whose client has gone away: until it ends
// or the server is closed, and otherwise a bounded number of times.
func TestAbandonedCode(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]time.Duration{"ended": 0, "server closed": 0, "deaf": interrupts * interruptPause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, closed := context.WithCancel(t.Context())
				defer closed()
				release := make(chan struct{})
				k := kernel.New(kernel.Spec{Logger: slog.New(slog.DiscardHandler), Environ: func() ([]string, error) {
					<-release // the request lasts until then
					return nil, errors.New("no environment")
				}})
				client := k.Attach(func(context.Context, kernel.Event) {})
				request := &kernel.Request{Header: jupyter.NewHeader("execute_request", "c", "u"), Content: json.RawMessage(`{}`)}
				must.Do(t, client.Submit(request))
				switch name {
				case "ended":
					close(release)
					<-request.Done()
				case "server closed":
					closed()
				}
				began := time.Now()
				(&Server{ctx: ctx}).abandon(client, request)
				if took := time.Since(began); took != want {
					t.Errorf("it was interrupted for %v, want %v", took, want)
				}
				if name != "ended" {
					close(release)
				}
				must.Do(t, k.Close())
			})
		})
	}
}
