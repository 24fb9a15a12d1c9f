//go:build linux

package envd

import (
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDisplaces checks for which client, and from which byte on, a process waits before it writes n more
// bytes, and until when.
func TestDisplaces(t *testing.T) {
	t.Parallel()
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	const n, wire, scarce, costly = 7, maxOnTheWay - 7, scarceOnTheWay - 7, maxReplays - maxAddCost
	for name, tt := range map[string]struct {
		next, cost, used int64
		stream           uint64 // of the first subscriber, which has byte 0 alone
		pieces           int
		away             *absence
		wait             bool
		until            time.Time
	}{
		"nobody who returns":           {next: wire + 1, cost: costly + 1, pieces: maxPieces},
		"as much as may be on the way": {next: 1 + wire, stream: 1},
		"more":                         {next: 1 + wire + 1, stream: 1, wait: true},
		"as much, and scarce memory":   {next: 1 + scarce, used: maxAllKept/2 + 1, stream: 1},
		"more, and scarce memory":      {next: 1 + scarce + 1, used: maxAllKept/2 + 1, stream: 1, wait: true},
		"memory that is not scarce":    {next: 1 + scarce + 1, used: maxAllKept / 2, stream: 1},
		"costly pieces":                {next: 2, cost: costly + 1, stream: 1, wait: true},
		"costly pieces, all received":  {next: 1, cost: costly + 1, stream: 1},
		"pieces that cost less":        {next: 2, cost: costly, stream: 1},
		"many pieces":                  {next: maxPieces, pieces: maxPieces, stream: 1},
		"away":                         {next: 1 + wire, away: &absence{1, soon}},
		"away, and more":               {next: 1 + wire + 1, away: &absence{1, soon}, wait: true, until: soon},
		"away, and costly":             {next: 2, cost: costly + 1, away: &absence{1, soon}, wait: true, until: soon},
		"away, and many pieces":        {next: maxPieces, pieces: maxPieces - 1, away: &absence{1, soon}, wait: true, until: soon},
		"away, and fewer pieces":       {next: maxPieces, pieces: maxPieces - 2, away: &absence{1, soon}},
		"away with all pieces":         {next: maxPieces, pieces: maxPieces - 1, away: &absence{maxPieces, soon}},
		"away for too long":            {next: 1 + wire + 1, away: &absence{1, past}},
		"both":                         {next: 1 + wire + 1, stream: 1, away: &absence{2, soon}, wait: true},
	} {
		b := newBudget()
		o, first := newOutput(b)
		first.stream, first.received = tt.stream, 1
		o.away, o.kept.next = tt.away, tt.next
		o.kept.cost.Store(tt.cost)
		b.used.Store(tt.used)
		for range tt.pieces {
			o.kept.pieces = append(o.kept.pieces, piece{data: []byte("x")})
		}
		until, slow, wait := o.displaces(n)
		if wait != tt.wait || !until.Equal(tt.until) {
			t.Errorf("%s: it waits: %v until %v, want %v until %v", name, wait, until, tt.wait, tt.until)
		}
		if asks := slow == first; asks != (tt.wait && tt.until.IsZero()) {
			t.Errorf("%s: the client is asked for a report: %v", name, asks)
		}
		if gone := o.away == nil; gone != (tt.away == nil || tt.away.until.Equal(past)) {
			t.Errorf("%s: afterwards, nobody is away: %v", name, gone)
		}
	}
}

// TestReceivedOutputIsDropped checks that old output is dropped once a report says that its client has received it.
func TestReceivedOutputIsDropped(t *testing.T) {
	t.Parallel()
	o, first := newOutput(newBudget())
	o.willReturn(first)
	const whole, more = maxKeptOutput / maxChunk, 4
	for range whole + more {
		c := newChunk(stdout)
		c.data = c.buf[:]
		o.keep(c)
		c.release()
	}
	for _, tt := range []struct {
		received int64
		want     int
	}{{0, whole + more}, {maxChunk - 1, whole + more}, {maxChunk, whole + more - 1}, {more*maxChunk - 1, whole + 1}, {more * maxChunk, whole}, {(whole + more) * maxChunk, whole}} {
		must.Do(t, o.receive(first.stream, tt.received))
		if o.displaces(1); len(o.kept.pieces) != tt.want {
			t.Errorf("%d bytes are received: got %d pieces, want %d", tt.received, len(o.kept.pieces), tt.want)
		}
	}
}

// TestNeeded checks how many bytes are kept for clients that may not have received them.
func TestNeeded(t *testing.T) {
	t.Parallel()
	const next = 20 << 20
	for _, tt := range []struct {
		stream         uint64
		received, away int64 // away: -1 means nobody
		want           int64
	}{
		{0, 0, -1, maxKeptOutput}, {1, next, -1, maxKeptOutput}, {1, next - maxKeptOutput - 1, -1, maxKeptOutput + 1},
		{1, 0, -1, maxOnTheWay}, {0, 0, next - maxKeptOutput - 2, maxKeptOutput + 2}, {0, 0, next, maxKeptOutput},
		{1, next - maxKeptOutput - 1, next - maxKeptOutput - 2, maxKeptOutput + 2}, {1, next - maxKeptOutput - 3, next - maxKeptOutput - 2, maxKeptOutput + 3},
	} {
		o, first := newOutput(newBudget())
		first.stream, first.received = tt.stream, tt.received
		if tt.away >= 0 {
			o.away = &absence{received: tt.away}
		}
		if got := o.needed(next); got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
		o.unsubscribe(first)
		o.away = nil
		if got := o.needed(next); got != maxKeptOutput {
			t.Errorf("%+v, without a subscriber: got %d, want %d", tt, got, maxKeptOutput)
		}
	}
}

// TestReplacedStream checks which streams end when a client connects again, and from which byte on it receives output.
func TestReplacedStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		replaced    uint64
		from, begin int64
		left        []uint64 // streams
	}{
		{0, 0, 0, []uint64{0, 1, 2, 3}}, {1, 9, 9, []uint64{0, 2, 3}}, {2, 10, 10, []uint64{0, 1, 3}}, {7, fromNow, 10, []uint64{0, 1, 2, 3}},
	} {
		o, first := newOutput(newBudget())
		all := []*subscriber{first}
		for range 2 {
			s, _, err := o.subscribeFrom(0, 0)
			must.Do(t, err)
			all = append(all, s)
		}
		o.put(stdout, "0123456789")
		s, begin, err := o.subscribeFrom(tt.from, tt.replaced)
		must.Do(t, err)
		var left []uint64
		for _, s := range o.current() {
			left = append(left, s.stream)
		}
		if !slices.Equal(left, tt.left) || o.away != nil {
			t.Errorf("in place of %d, from %d: got %v, and the absence %v, want %v and none", tt.replaced, tt.from, left, o.away, tt.left)
		}
		if begin != tt.begin || s.received != tt.begin || s.stream != 3 {
			t.Errorf("in place of %d, from %d: got output from %d on, with %+v, want it from %d on", tt.replaced, tt.from, begin, s, tt.begin)
		}
		for _, old := range all {
			select {
			case <-old.gone:
				if old.stream != tt.replaced || old.stream == 0 {
					t.Errorf("in place of %d: the stream %d has ended", tt.replaced, old.stream)
				}
			default:
				if old.stream == tt.replaced && old.stream != 0 {
					t.Errorf("in place of %d: it goes on", tt.replaced)
				}
			}
		}
	}
}

// TestAbsence checks which clients are expected to connect again, and from which byte on.
func TestAbsence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, first := newOutput(newBudget())
		want := func(what string, received int64) {
			t.Helper()
			if received < 0 {
				if o.away != nil {
					t.Errorf("%s: %+v is expected, want nobody", what, o.away)
				}
			} else if o.away == nil || o.away.received != received || time.Until(o.away.until) != returnLimit {
				t.Errorf("%s: %+v is expected, want one with %d bytes in %v", what, o.away, received, returnLimit)
			}
		}
		o.put(stdout, "0123456789")
		o.unsubscribe(first)
		want("a client that does not return", -1)
		s, _, err := o.subscribeFrom(3, 0)
		must.Do(t, err)
		must.Do(t, o.receive(s.stream, 5))
		must.Do(t, o.receive(s.stream, 4)) // late
		must.Do(t, o.receive(s.stream+1, 9))
		must.Is(t, o.receive(s.stream, 10), nil)
		if err := o.receive(s.stream, 11); err == nil {
			t.Error("got no error for bytes that are yet to come")
		}
		s.received = 5
		o.unsubscribe(s)
		want("a client that was cut off", 5)
		o.unsubscribe(s)
		want("the same once more", 5)
		o.expect(7)
		want("another with more bytes", 5)
		o.expect(2)
		want("another with fewer bytes", 2)
		time.Sleep(returnLimit) //nolint:forbidigo // its time is fake
		o.expect(8)
		want("one that is cut off later", 8)
		back, _, err := o.subscribeFrom(8, 0)
		must.Do(t, err)
		want("a client that has returned", -1)
		for range maxSubscribers - 1 {
			_, err := o.subscribe()
			must.Do(t, err)
		}
		for from, received := range map[int64]int64{4: 4, fromNow: 0, 11: 10} {
			o.away = nil
			if _, _, err := o.subscribeFrom(from, 99); !errors.Is(err, errTooManySubscribers) {
				t.Fatalf("got error %v, want %v", err, errTooManySubscribers)
			}
			want("one that is refused", received)
		}
		o.away = nil
		again, begin, err := o.subscribeFrom(6, back.stream)
		if err != nil || begin != 6 || again.received != 6 {
			t.Errorf("in the place of an earlier stream: got %+v from %d on and error %v", again, begin, err)
		}
		select {
		case <-back.gone:
		default:
			t.Error("the earlier stream goes on")
		}
		o.unsubscribe(back)
		want("an earlier stream that ends later", -1)
	})
}

// TestReplayIsReleased checks that output to be sent again holds its buffers until it is sent or dropped, and that its
// memory is counted as long.
func TestReplayIsReleased(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*output, *subscriber){
		"unread":    func(o *output, s *subscriber) { o.unsubscribe(s) },
		"dropped":   func(o *output, s *subscriber) { s.dropReplay(o.kept.budget); o.unsubscribe(s) },
		"half read": func(o *output, s *subscriber) { s.replayed(); s.replayed(); o.unsubscribe(s) },
		"read": func(o *output, s *subscriber) {
			for _, data := s.replayed(); data != nil; _, data = s.replayed() {
			}
			s.dropReplay(o.kept.budget)
		},
	} {
		b := newBudget()
		o, first := newOutput(b)
		o.unsubscribe(first)
		for range 3 {
			o.put(stdout, strings.Repeat("x", maxChunk))
		}
		want := func(when string, held int32, replays int64) {
			t.Helper()
			for i, p := range o.kept.pieces {
				if got := p.in.refs.Load(); got != held {
					t.Errorf("%s, %s: the piece %d is held %d times, want %d", name, when, i, got, held)
				}
			}
			if got, used := b.replays.Load(), b.used.Load()-o.kept.cost.Load(); got != replays || used != replays {
				t.Errorf("%s, %s: %d bytes wait to be sent again, and are counted as %d, want %d", name, when, got, used, replays)
			}
		}
		s, _, err := o.subscribeFrom(0, 0)
		must.Do(t, err)
		want("before", 2, 3*(chunkCost+pieceCost))
		end(o, s)
		want("afterwards", 1, 0)
		b.replays.Add(maxReplays)
		_, _, err = o.subscribeFrom(0, 0)
		must.Is(t, err, errTooManyReplays)
		b.replays.Add(-maxReplays)
		want("refused", 1, 0)
	}
}

// TestAwait checks what ends the wait for a client: its report, the end of its time, and that nobody
// needs the output any longer.
func TestAwait(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		away bool
		end  func(*output, *subscriber)
		want time.Duration
	}{
		"a report":       {false, func(o *output, s *subscriber) { _ = o.receive(s.stream, o.kept.next) }, time.Hour},
		"a cut":          {false, func(o *output, s *subscriber) { o.unsubscribe(s) }, time.Hour + returnLimit},
		"a signal":       {false, func(o *output, _ *subscriber) { close(o.impatient) }, time.Hour},
		"an abandonment": {false, func(o *output, _ *subscriber) { close(o.abandoned) }, time.Hour},
		"its time":       {true, func(*output, *subscriber) {}, returnLimit},
		"a return":       {true, func(o *output, _ *subscriber) { _, _, _ = o.subscribeFrom(o.kept.next, 0) }, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, s := newOutput(newBudget())
			o.willReturn(s)
			o.kept.next = maxOnTheWay
			if tt.away {
				o.unsubscribe(s)
			}
			after := time.Hour
			if tt.away {
				after = time.Second
			}
			time.AfterFunc(after, func() { tt.end(o, s) })
			began := time.Now()
			o.await(1)
			if took := time.Since(began); took != tt.want {
				t.Errorf("%s ended the wait after %v, want %v", name, took, tt.want)
			}
			if asked := len(s.asked) == 1; asked == tt.away {
				t.Errorf("%s: the client was asked for a report: %v", name, asked)
			}
		})
	}
}

// TestReclaim checks the exact bounds of the memory for output, and which output is dropped first.
func TestReclaim(t *testing.T) {
	t.Parallel()
	b := newBudget()
	outputs := make([]*output, 5) // two that have ended, the largest of those that run, and two others
	for i, chunks := range []int{1, 1, 2, 3, 1} {
		o, first := newOutput(b)
		o.unsubscribe(first)
		for range chunks {
			o.put(stdout, string(make([]byte, maxChunk)))
		}
		outputs[i] = o
	}
	outputs[0].end()
	outputs[1].end()
	if len(b.live) != 3 || !slices.Equal(b.ended, outputs[:2]) {
		t.Errorf("%d outputs are live, and %d have ended, want 3 and the oldest 2", len(b.live), len(b.ended))
	}
	const each = chunkCost + pieceCost
	pieces := func() (n [5]int) {
		for i, o := range outputs {
			n[i] = len(o.kept.pieces)
		}
		return n
	}
	for _, tt := range []struct {
		beyond int64
		want   [5]int
	}{
		{0, [5]int{1, 1, 2, 3, 1}},
		{each, [5]int{0, 1, 2, 3, 1}}, // exactly as many as the oldest has
		{1, [5]int{0, 0, 2, 3, 1}},
		{each, [5]int{0, 0, 2, 2, 1}},
		{each + 1, [5]int{0, 0, 1, 1, 1}},
	} {
		b.used.Add(maxAllKept + tt.beyond - b.used.Load())
		b.reclaim()
		if got := pieces(); got != tt.want {
			t.Errorf("%d bytes beyond the bound: got %v pieces, want %v", tt.beyond, got, tt.want)
		}
	}
	b.used.Store(2 * maxAllKept)
	if b.reclaim(); pieces() != [5]int{} {
		t.Errorf("got %v pieces, want none", pieces())
	}
	for _, o := range outputs {
		b.leave(o)
	}
	b.used.Store(2 * maxAllKept)
	if b.reclaim(); b.used.Load() != 2*maxAllKept || len(b.live)+len(b.ended) > 0 {
		t.Errorf("without outputs: %d bytes are used by %d, want as before", b.used.Load(), len(b.live)+len(b.ended))
	}
}

// TestBudgetOfReplays checks the exact bounds of the memory that waits to be sent again, and of scarce memory.
func TestBudgetOfReplays(t *testing.T) {
	t.Parallel()
	b := newBudget()
	want := func(replays int64) {
		t.Helper()
		if got, used := b.replays.Load(), b.used.Load(); got != replays || used != replays {
			t.Errorf("got %d bytes to be sent again, and %d in use, want %d", got, used, replays)
		}
	}
	must.Do(t, b.replay(maxReplays))
	want(maxReplays)
	must.Is(t, b.replay(1), errTooManyReplays)
	want(maxReplays)
	must.Do(t, b.replay(-1))
	must.Do(t, b.replay(1))
	b.replays.Add(5)
	must.Do(t, b.replay(0))
	must.Do(t, b.replay(-1))
	b.replays.Add(-5)
	want(maxReplays - 1)
	for used, scarce := range map[int64]bool{maxAllKept / 2: false, maxAllKept/2 + 1: true} {
		b.left.Store(10)
		b.used.Store(used + 10)
		if got := b.scarce(); got != scarce {
			t.Errorf("%d bytes of running processes: memory is scarce: %v, want %v", used, got, scarce)
		}
	}
}

// TestOutputAfterTheEnd checks for how long the output of an ended process takes memory.
func TestOutputAfterTheEnd(t *testing.T) {
	t.Parallel()
	for abandoned, want := range map[bool]time.Duration{false: keptFor, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			b := newBudget()
			o, first := newOutput(b)
			o.put(stdout, "x")
			o.unsubscribe(first)
			if abandoned {
				close(o.abandoned)
			}
			(&running{output: o}).finish()
			if !o.ended || (b.used.Load() == 0) != abandoned {
				t.Errorf("abandoned %v: at the end: ended %v, %d bytes are used", abandoned, o.ended, b.used.Load())
			}
			time.Sleep(want) //nolint:forbidigo // its time is fake
			synctest.Wait()
			if b.used.Load() != 0 || b.left.Load() != 0 || len(b.ended)+len(b.live) > 0 {
				t.Errorf("abandoned %v: after %v: %d and %d bytes are used, by %d outputs", abandoned, want, b.used.Load(), b.left.Load(), len(b.ended)+len(b.live))
			}
		})
	}
}

// TestRetiredIsDropped checks that the records of ended processes, and their output, go when they are too
// old, and not before.
func TestRetiredIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := newProcesses(nil, slog.New(slog.DiscardHandler))
		retire := func(pid uint32) *output {
			o, first := newOutput(ps.kept)
			o.put(stdout, "x")
			o.unsubscribe(first)
			r := &running{pid: pid, output: o, end: &process.ProcessEvent_EndEvent{}}
			ps.live[pid] = r
			ps.retire(r, pid == 1)
			ps.retire(r, pid != 1) // has no effect
			if last := ps.retired[len(ps.retired)-1]; last.was != r || last.held != (pid == 1) || ps.live[pid] != nil {
				t.Errorf("got the record %+v, want that of %d", last, pid)
			}
			return o
		}
		old, second := retire(1), retire(2)
		time.Sleep(keptFor) //nolint:forbidigo // its time is fake
		retire(3)
		if len(ps.retired) != 3 || len(old.kept.pieces) != 1 {
			t.Errorf("after %v: got %d records, and %d pieces of the oldest", keptFor, len(ps.retired), len(old.kept.pieces))
		}
		time.Sleep(time.Nanosecond) //nolint:forbidigo // its time is fake
		retire(4)
		if len(ps.retired) != 2 || len(old.kept.pieces)+len(second.kept.pieces) != 0 {
			t.Errorf("later: got %d records, and %d pieces of the oldest two", len(ps.retired), len(old.kept.pieces)+len(second.kept.pieces))
		}
	})
}

// TestEndOfAnUnknownProcess checks the end of a process whose state cannot be told.
func TestEndOfAnUnknownProcess(t *testing.T) {
	t.Parallel()
	if got := endOf(nil, io.ErrUnexpectedEOF); got.GetExitCode() != -1 || got.GetExited() || got.GetStatus() != "unknown" || got.GetError() != io.ErrUnexpectedEOF.Error() {
		t.Errorf("got %v", got)
	}
}
