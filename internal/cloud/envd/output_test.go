//go:build linux

package envd

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func (o *output) put(of stream, text string) {
	c := newChunk(of)
	c.data = append(c.buf[:0], text...)
	o.publish(c)
}

// drain reads until the end.
func (s *subscriber) drain() string {
	var b strings.Builder
	for {
		c := s.held
		if s.held = nil; c == nil {
			var more bool
			if c, more = <-s.chunks; !more {
				return b.String()
			}
		}
		c = s.gather(c)
		b.Write(c.data)
		b.WriteByte('|')
		c.release()
	}
}

func TestGather(t *testing.T) {
	t.Parallel()
	o, s := newOutput(newBudget())
	o.put(stdout, "a")
	o.put(stdout, "b")
	o.put(stderr, "c")
	o.put(terminal, strings.Repeat("d", maxPTY))
	o.put(terminal, "e")
	o.put(terminal, "f")
	o.end()
	want := "ab|c|" + strings.Repeat("d", maxPTY) + "|ef|"
	if got := s.drain(); got != want {
		t.Errorf("%d bytes: %.80q..., want %d: %.80q...", len(got), got, len(want), want)
	}
	o.unsubscribe(s)
}

// TestGatherToTheLimit checks that output is joined up to the limit of an event, and not beyond it.
func TestGatherToTheLimit(t *testing.T) {
	t.Parallel()
	for _, of := range []stream{stdout, stderr, terminal} {
		for beyond, want := range map[int]int{-1: 1, 0: 1, 1: 2} {
			o, s := newOutput(newBudget())
			o.put(of, strings.Repeat("x", of.limit()-5))
			o.put(of, strings.Repeat("y", 5+beyond))
			o.end()
			if got := s.drain(); strings.Count(got, "|") != want || len(got) != of.limit()+beyond+want {
				t.Errorf("%d bytes beyond the limit of %d: got %d events and %d bytes in all, want %d events", beyond, of.limit(), strings.Count(got, "|"), len(got), want)
			}
			o.unsubscribe(s)
		}
	}
}

// TestGatherChangesNoOthers checks that joined output is a copy, and that each chunk is released by the one that joins it.
func TestGatherChangesNoOthers(t *testing.T) {
	t.Parallel()
	o, first := newOutput(newBudget())
	second, err := o.subscribe()
	must.Do(t, err)
	var all []*chunk
	for _, text := range []string{"a", "bc", "d"} {
		c := newChunk(stderr)
		c.data = append(c.buf[:0], text...)
		o.publish(c)
		all = append(all, c)
	}
	joined := first.gather(<-first.chunks)
	if string(joined.data) != "abcd" || joined.of != stderr || joined.refs.Load() != 1 || joined == all[0] {
		t.Errorf("got %q of %v, held %d times, want all in a chunk of its own", joined.data, joined.of, joined.refs.Load())
	}
	joined.release()
	for n, want := range []string{"a", "bc", "d"} {
		c := patience.Receive(t, "a chunk of the other subscriber", second.chunks)
		if c != all[n] || string(c.data) != want || c.refs.Load() != 1 {
			t.Errorf("the chunk %d of the other subscriber: got %q, held %d times, want %q and once", n, c.data, c.refs.Load(), want)
		}
		c.release()
	}
}

// TestChunksAreReleased checks that a chunk is used again once every subscriber has released it, and
// those that do not take it do not hold it.
func TestChunksAreReleased(t *testing.T) {
	t.Parallel()
	o, first := newOutput(newBudget())
	second, err := o.subscribe()
	must.Do(t, err)
	gone, err := o.subscribe()
	must.Do(t, err)
	for range queuedChunks { // it takes nothing
		gone.chunks <- newChunk(stdout)
	}
	gone.leave()
	c := newChunk(stdout)
	c.data = append(c.buf[:0], 'x')
	o.publish(c)
	for n, s := range []*subscriber{first, second} {
		if got := patience.Receive(t, "the chunk", s.chunks); got != c || c.refs.Load() != int32(2-n) {
			t.Errorf("got %p held %d times, want %p held %d times", got, c.refs.Load(), c, 2-n)
		}
		c.release()
	}
}

// TestStalledReader: a subscriber that takes nothing holds the others up for
// stallLimit and is then cut off; the others get everything.
func TestStalledReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, first := newOutput(newBudget())
		stalled, err := o.subscribe()
		must.Do(t, err)
		done := make(chan string)
		go func() { done <- first.drain() }()
		began := time.Now()
		for range queuedChunks + 5 {
			o.put(stdout, "x")
		}
		if held := time.Since(began); held != stallLimit {
			t.Errorf("held up for %v, want %v", held, stallLimit)
		}
		o.end()
		if got := strings.ReplaceAll(<-done, "|", ""); len(got) != queuedChunks+5 {
			t.Errorf("the reader got %d of %d", len(got), queuedChunks+5)
		}
		if got := strings.ReplaceAll(stalled.drain(), "|", ""); len(got) != queuedChunks || !stalled.cut {
			t.Errorf("the stalled one got %d, cut %v, want %d, cut", len(got), stalled.cut, queuedChunks)
		}
		o.unsubscribe(first)
		o.unsubscribe(stalled)
	})
}

// TestOldestMayTakeItsTime: the oldest subscriber may hold the process up until
// it is signalled.
func TestOldestMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, oldest := newOutput(newBudget())
		published := make(chan struct{})
		go func() {
			defer close(published)
			for range queuedChunks + 1 {
				o.put(stdout, "x")
			}
		}()
		time.AfterFunc(time.Hour, func() { close(o.impatient) })
		began := time.Now()
		<-published
		if held := time.Since(began); held != time.Hour+stallLimit {
			t.Errorf("held up for %v, want an hour and %v", held, stallLimit)
		}
		if !oldest.cut {
			t.Error("not cut off")
		}
		o.end()
	})
}

// TestSuccessor: the next subscriber takes the place of the oldest when that one
// has gone.
func TestSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, first := newOutput(newBudget())
		second, err := o.subscribe()
		must.Do(t, err)
		o.unsubscribe(first)
		published := make(chan struct{})
		go func() {
			defer close(published)
			for range queuedChunks + 1 {
				o.put(stdout, "x")
			}
		}()
		<-time.After(time.Hour)
		(<-second.chunks).release()
		<-published
		if second.cut {
			t.Error("cut off")
		}
		o.end()
	})
}

func TestSubscribersAreBounded(t *testing.T) {
	t.Parallel()
	o, _ := newOutput(newBudget())
	for range maxSubscribers - 1 {
		_, err := o.subscribe()
		must.Do(t, err)
	}
	if _, err := o.subscribe(); err == nil || !strings.Contains(err.Error(), "64") {
		t.Errorf("subscribe: %v, want the bound named", err)
	}
	o.end()
	if s, err := o.subscribe(); s != nil || err != nil || len(o.current()) != 0 {
		t.Errorf("subscribe after the end: %v, %v, and %d subscribers are left, want none and no error", s, err, len(o.current()))
	}
}

// TestReadChunk checks what is read of an output, and which error means its end.
func TestReadChunk(t *testing.T) {
	t.Parallel()
	for _, of := range []stream{stdout, stderr, terminal} {
		r, w, err := os.Pipe()
		must.Do(t, err)
		conn, err := r.SyscallConn()
		must.Do(t, err)
		var got *chunk
		wait := false
		read := func() (err error) { got, err = readChunk(conn, of, wait); return err }
		must.Is(t, read(), unix.EAGAIN)
		_, err = w.WriteString("text")
		must.Do(t, err)
		for _, wait = range []bool{true, false} {
			_, err = calltest.FailNth(t, unix.SYS_READ, 1, unix.EIO, read)
			must.Is(t, err, unix.EIO)
			if got != nil {
				t.Errorf("%v: after an error: got a chunk of %q", of, got.data)
			}
		}
		_, err = calltest.FailNth(t, unix.SYS_READ, 1, unix.EINTR, read)
		must.Do(t, err)
		if string(got.data) != "text" || got.of != of || got.refs.Load() != 1 {
			t.Errorf("after an interruption: got %q of %v, held %d times", got.data, got.of, got.refs.Load())
		}
		_, err = w.WriteString(strings.Repeat("x", maxChunk))
		must.Do(t, err)
		if err := read(); err != nil || len(got.data) != of.limit() {
			t.Errorf("%v: got %d bytes and error %v, want %d", of, len(got.data), err, of.limit())
		}
		must.Do(t, w.Close())
		for err == nil {
			err = read()
		}
		must.Is(t, err, io.EOF)
		must.Do(t, r.Close())
		if o, _ := newOutput(newBudget()); o.copyFrom(r, of) {
			t.Errorf("%v: a closed output is said to be held", of)
		}
	}
}

// TestOutputEvent checks that the data of an event is of its stream alone.
func TestOutputEvent(t *testing.T) {
	t.Parallel()
	for of, want := range map[stream]*process.ProcessEvent_DataEvent{
		stdout:   {Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("x")}},
		stderr:   {Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: []byte("x")}},
		terminal: {Output: &process.ProcessEvent_DataEvent_Pty{Pty: []byte("x")}},
	} {
		if got := outputEvent(of, []byte("x")).GetData(); !proto.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", of, got, want)
		}
	}
}
