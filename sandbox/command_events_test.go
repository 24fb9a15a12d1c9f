package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestCommandEvents(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		_ = stdout(stream, []byte("h\xc3")) // a character in two parts
		_ = stderr(stream, []byte("err"))
		_ = stream.Send(&process.StartResponse{Event: keepaliveEvent()})
		_ = stdout(stream, []byte("\xa9\n"))
		_ = stdout(stream, nil)
		return ended(stream, 3, "exit status 3")
	}
	command := startCommand(t, s.sandbox(), nil)
	end := CommandEvent{Exit: &CommandResult{ExitCode: 3, Status: "exit status 3", Stdout: "hé\n", Stderr: "err"}}
	want := []CommandEvent{{Stdout: []byte("h\xc3")}, {Stderr: []byte("err")}, {Stdout: []byte("\xa9\n")}, end}
	var got []CommandEvent
	// One loop leaves early, and another continues where it stopped.
	for event, err := range command.Events(t.Context()) {
		must.Do(t, err)
		got = append(got, event)
		for _, err := range command.Events(t.Context()) {
			if err == nil || !strings.Contains(err.Error(), "another loop") {
				t.Errorf("two loops: %v", err)
			}
		}
		break
	}
	for event, err := range command.Events(t.Context()) {
		must.Do(t, err)
		got = append(got, event)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for event := range command.Events(t.Context()) {
		if diff := cmp.Diff(end, event); diff != "" {
			t.Errorf("after the end: %s", diff)
		}
	}
}

func TestCommandEventsCancelled(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = silent
	command := startCommand(t, s.sandbox(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	for _, err := range command.Events(ctx) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n != 1 || len(s.killed()) != 0 {
		t.Errorf("%d events, killed: %v", n, s.killed())
	}
}

// Output that no loop takes neither stops the command nor is kept forever; the
// next loop is told what it missed. Wait works at the same time.
func TestCommandEventsNobodyTakes(t *testing.T) {
	t.Parallel()
	const parts, size = 300, 10_000
	s := newService(t)
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		for i := range parts {
			_ = stdout(stream, []byte(strings.Repeat(string(rune('a'+i%26)), size)))
		}
		return ended(stream, 0, "exit status 0")
	}
	command := startCommand(t, s.sandbox(), &CommandParams{MaxOutputBytes: -1})
	result, err := command.Wait(t.Context())
	if err != nil || !result.Truncated() || result.StdoutDropped != parts*size {
		t.Fatalf("%+v, %v", result, err)
	}
	var got, dropped, last int64
	for event, err := range command.Events(t.Context()) {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.Dropped > 0 && got == 0 && dropped == 0:
			dropped = event.Dropped
		case event.Stdout != nil:
			got += int64(len(event.Stdout))
			last = int64(event.Stdout[0])
		case event.Exit == nil:
			t.Errorf("%+v", event)
		}
	}
	if got+dropped != parts*size || got > maxBacklog || got < maxBacklog-2*size || last != 'a'+(parts-1)%26 {
		t.Errorf("got %d bytes, %d dropped, the last of %q", got, dropped, rune(last))
	}
}

// A slow loop loses nothing: the command waits for it.
func TestCommandEventsWaitForTheLoop(t *testing.T) {
	t.Parallel()
	const size = 32 << 10
	s := newService(t)
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		_ = stdout(stream, []byte("ready"))
		for i := range 64 << 20 / size {
			if err := stdout(stream, fmt.Appendf(nil, "%0*d", size, i)); err != nil {
				return err
			}
		}
		return ended(stream, 0, "exit status 0")
	}
	command := startCommand(t, s.sandbox(), &CommandParams{MaxOutputBytes: -1})
	next := 0
	for event, err := range command.Events(t.Context()) {
		must.Do(t, err)
		if event.Stdout == nil || string(event.Stdout) == "ready" {
			continue
		}
		if i, err := strconv.Atoi(string(event.Stdout)); err != nil || i != next {
			t.Fatalf("got part %d, want %d: %v", i, next, err)
		}
		next++
	}
	if want := 64 << 20 / size; next != want {
		t.Errorf("%d parts of %d", next, want)
	}
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	b := newBacklog[int]()
	if !b.take() || b.take() {
		t.Fatal("two can take")
	}
	// While there is a consumer, a full queue waits.
	full := 0
	for b.add(entry[int]{full, 1000}) {
		full++
	}
	if b.size > maxBacklog || b.size+1000+entryCost <= maxBacklog {
		t.Errorf("full at %d", b.size)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.push(ctx, -1, 1000)
	pushed := make(chan struct{})
	go func() {
		b.push(t.Context(), full, 1000)
		close(pushed)
	}()
	if v, ok, dropped := b.pop(); v != 0 || !ok || dropped != 0 {
		t.Errorf("popped %d", v)
	}
	<-pushed
	// Without a consumer the oldest entries are dropped, even for one that is too
	// big for the whole queue.
	b.give()
	b.push(t.Context(), full+1, maxBacklog*2)
	if v, ok, dropped := b.pop(); ok || dropped != int64(full*1000) {
		t.Errorf("popped %d, dropped %d", v, dropped)
	}
	if v, ok, dropped := b.pop(); v != full+1 || !ok || dropped != 0 || b.size != 0 {
		t.Errorf("popped %d, dropped %d", v, dropped)
	}
	if _, ok, _ := b.pop(); ok {
		t.Error("there is something in nothing")
	}
}

// TestPushWhenTheConsumerLeaves checks that a push that waits for room continues when the consumer
// leaves.
func TestPushWhenTheConsumerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog[int]()
		b.take()
		b.push(t.Context(), 1, maxBacklog)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pushed := false
		go func() {
			b.push(ctx, 2, 1)
			pushed = true
		}()
		synctest.Wait()
		if pushed {
			t.Error("the push did not wait")
		}
		b.give()
		synctest.Wait()
		if !pushed {
			t.Error("the push still waits")
		}
	})
}
