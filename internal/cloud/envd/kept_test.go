//go:build linux

package envd

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// everything returns all output that a subscriber of an ended process receives.
func everything(t *testing.T, s *subscriber) string {
	t.Helper()
	var b strings.Builder
	for _, data := s.replayed(); data != nil; _, data = s.replayed() {
		b.Write(data)
	}
	select {
	case c, more := <-s.chunks:
		if more {
			t.Errorf("%d more bytes came after the end", len(c.data))
		}
	default:
		t.Fatal("the output has no end")
	}
	return b.String()
}

// TestKept checks that two subscribers receive the same output from any kept byte on, and that
// a byte which is yet to come or no longer kept is reported.
func TestKept(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBudget()
	o, first := newOutput(b)
	o.unsubscribe(first)
	var all strings.Builder
	for all.Len() < 3*maxKeptOutput {
		text := strings.Repeat(string(rune('a'+random.IntN(26))), 1+random.IntN(1<<random.IntN(16))%maxChunk)
		all.WriteString(text)
		o.put(stream(random.IntN(2)), text)
	}
	if kept := o.kept.next - o.kept.first; kept < maxKeptOutput || kept > maxKeptOutput+maxChunk {
		t.Errorf("%d bytes are kept, want %d", kept, maxKeptOutput)
	}
	if used := b.used.Load(); used != o.kept.cost.Load() || used > 3*maxKeptOutput {
		t.Errorf("%d bytes of memory are used, and %d by the output", used, o.kept.cost.Load())
	}
	o.end()
	size := int64(all.Len())
	for range 100 {
		offset := size - random.Int64N(maxKeptOutput)
		for range 2 {
			s, begin, err := o.subscribeFrom(offset, 0)
			must.Do(t, err)
			if got := everything(t, s); begin != offset || got != all.String()[offset:] {
				t.Errorf("from byte %d: got %d bytes from %d on, want the last %d", offset, len(got), begin, size-offset)
			}
			o.unsubscribe(s)
		}
	}
	if _, _, err := o.subscribeFrom(size+1, 0); err == nil {
		t.Error("got no error for a byte that is yet to come")
	}
	s, begin, err := o.subscribeFrom(0, 0)
	must.Do(t, err)
	if begin != o.kept.first || begin == 0 {
		t.Errorf("a byte that is no longer kept: got output from %d on, want %d", begin, o.kept.first)
	}
	o.unsubscribe(s)
	b.leave(o)
	if used, replays := b.used.Load(), b.replays.Load(); used != 0 || replays != 0 {
		t.Errorf("%d bytes of memory are used after the end, %d to be sent", used, replays)
	}
}

// TestKeptBuffers checks that each kept piece holds the buffer that contains it, so that the buffer is not
// used again before the last piece is dropped.
func TestKeptBuffers(t *testing.T) {
	t.Parallel()
	o, first := newOutput(newBudget())
	o.unsubscribe(first)
	for i := 0; o.kept.tail == nil; i++ {
		o.put(stream(i%2), strings.Repeat("x", sharedFrom-1))
	}
	tail := o.kept.tail
	held := int32(1) // by the output itself
	for _, p := range o.kept.pieces {
		if p.in == tail {
			held++
		}
	}
	if got := tail.refs.Load(); got != held || held == 1 {
		t.Errorf("the newest buffer is held %d times, and %d pieces are in it", got, held-1)
	}
	large := newChunk(stdout)
	large.data = large.buf[:]
	o.publish(large)
	if got := large.refs.Load(); got != 1 {
		t.Errorf("a chunk that is kept without a copy is held %d times, want once", got)
	}
	pieces := o.kept.pieces
	o.dropKept(true)
	for i, p := range pieces {
		if p.data != nil || p.in != nil {
			t.Errorf("piece %d of %d still refers to its memory", i, len(pieces))
		}
	}
	if got := tail.refs.Load() + large.refs.Load(); got != 0 || o.kept.room != nil || o.kept.cost.Load() != 0 {
		t.Errorf("afterwards, the buffers are held %d times, and the output has %d bytes of memory, want none", got, o.kept.cost.Load())
	}
}

// keptPiece describes a piece of kept output.
type keptPiece struct {
	Of     stream
	Size   int
	Cost   int64
	Shared bool // it is in a chunk
}

// TestKeptPieces checks into which pieces output is divided, and the memory of each.
func TestKeptPieces(t *testing.T) {
	t.Parallel()
	k := kept{budget: newBudget()}
	var want []keptPiece
	var all string
	for n, step := range []struct {
		of   stream
		size int
		grow int         // bytes by which the newest piece grows
		add  []keptPiece // the new ones
	}{
		{stdout, 100, 0, []keptPiece{{stdout, 100, pieceCost + firstRoom, false}}},
		{stdout, 12, 12, nil},
		{stderr, 100, 0, []keptPiece{{stderr, 100, pieceCost, false}}},
		{stdout, 400, 0, []keptPiece{{stdout, 300, pieceCost, false}, {stdout, 100, pieceCost + 1024, false}}},
		{stderr, sharedFrom, 0, []keptPiece{{stderr, sharedFrom, pieceCost + chunkCost, true}}},
		{stderr, 10, 0, []keptPiece{{stderr, 10, pieceCost, false}}},
		{stderr, 5, 5, nil},
		{stderr, sharedFrom - 1, 909, []keptPiece{{stderr, sharedFrom - 910, pieceCost + sharedFrom, false}}},
		{stderr, sharedFrom - 1, 910, []keptPiece{{stderr, sharedFrom - 911, pieceCost + chunkCost, true}}},
		{stderr, sharedFrom - 1, sharedFrom - 1, nil},
		{stdout, sharedFrom - 1, 0, []keptPiece{{stdout, 912, pieceCost, true}, {stdout, sharedFrom - 913, pieceCost + chunkCost, true}}},
	} {
		c, tail := newChunk(step.of), k.tail
		c.data = append(c.buf[:0], strings.Repeat(string(rune('a'+n)), step.size)...)
		all += string(c.data)
		k.add(c, maxKeptOutput)
		if wanted := 1 + step.size/sharedFrom; c.refs.Load() != int32(wanted) {
			t.Errorf("step %d: the chunk is held %d times, want %d", n, c.refs.Load(), wanted)
		}
		c.release()
		if step.grow > 0 {
			want[len(want)-1].Size += step.grow
		}
		want = append(want, step.add...)
		var got []keptPiece
		var text strings.Builder
		cost, held := int64(0), int32(0)
		for _, p := range k.pieces {
			got = append(got, keptPiece{p.of, len(p.data), p.cost, p.in != nil})
			text.Write(p.data)
			cost += p.cost
			if p.in != nil && p.in == tail {
				held++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d (-want +got):\n%s", n, diff)
		}
		if text.String() != all || k.cost.Load() != cost || k.budget.used.Load() != cost {
			t.Errorf("step %d: %d bytes are kept, equal: %v, and cost %d and %d, want %d", n, text.Len(), text.String() == all, k.cost.Load(), k.budget.used.Load(), cost)
		}
		if tail != nil && tail != k.tail && tail.refs.Load() != held {
			t.Errorf("step %d: the full buffer is held %d times, want %d", n, tail.refs.Load(), held)
		}
	}
	for len(k.pieces) > 0 {
		k.drop()
	}
	if k.pieces != nil || k.tail != nil || k.cost.Load() != 0 {
		t.Errorf("in the end %v and %v are kept, with %d bytes, want nothing", k.pieces, k.tail, k.cost.Load())
	}
	if k.first != int64(len(all)) || k.next != k.first {
		t.Errorf("in the end, bytes %d to %d are kept, want those from %d on", k.first, k.next, len(all))
	}
}

// TestKeptFrom checks which pieces are sent again from a byte on, and that all others are left alone.
func TestKeptFrom(t *testing.T) {
	t.Parallel()
	k := kept{budget: newBudget()}
	for n := range 3 {
		c := newChunk(stream(n % 2))
		c.data = append(c.buf[:0], strings.Repeat(string(rune('a'+n)), sharedFrom)...)
		k.add(c, maxKeptOutput)
		c.release()
	}
	for offset, want := range map[int64][]int{
		0: {sharedFrom, sharedFrom, sharedFrom}, 1: {sharedFrom - 1, sharedFrom, sharedFrom}, sharedFrom - 1: {1, sharedFrom, sharedFrom},
		sharedFrom: {sharedFrom, sharedFrom}, sharedFrom + 1: {sharedFrom - 1, sharedFrom}, 2 * sharedFrom: {sharedFrom},
		3*sharedFrom - 1: {1}, 3 * sharedFrom: nil,
	} {
		pieces, cost := k.from(offset)
		var sizes []int
		for n, p := range pieces {
			sizes = append(sizes, len(p.data))
			if of := k.pieces[3-len(pieces)+n].of; p.of != of {
				t.Errorf("from byte %d: the piece %d is of %v, want %v", offset, n, p.of, of)
			}
		}
		if diff := cmp.Diff(want, sizes); diff != "" || cost != int64(len(want))*(chunkCost+pieceCost) {
			t.Errorf("from byte %d: a cost of %d, and the pieces (-want +got):\n%s", offset, cost, diff)
		}
		for n, p := range k.pieces {
			wanted := int32(1)
			if n >= 3-len(want) {
				wanted = 2
			}
			if got := p.in.refs.Load(); got != wanted || len(p.data) != sharedFrom {
				t.Errorf("from byte %d: the piece %d has %d bytes and is held %d times, want %d", offset, n, len(p.data), got, wanted)
			}
		}
		for _, p := range pieces {
			p.release()
		}
	}
}

// TestPiecesAreBounded checks how many pieces are kept, however small they are, and which ones.
func TestPiecesAreBounded(t *testing.T) {
	t.Parallel()
	var k kept
	k.budget = newBudget()
	for i := range maxPieces + 3 {
		c := newChunk(stream(i % 2))
		c.data = append(c.buf[:0], 'x')
		k.add(c, maxKeptOutput)
		c.release()
		if want := min(i+1, maxPieces); len(k.pieces) != want || k.first != int64(i+1-want) || k.next != int64(i+1) {
			t.Fatalf("after %d bytes: got %d pieces from byte %d to %d, want %d", i+1, len(k.pieces), k.first, k.next, want)
		}
	}
	for _, limit := range []int64{7, 6, 1, 0} {
		k.trim(limit)
		if want := max(1, int(limit)); len(k.pieces) != want {
			t.Errorf("trimmed to %d bytes: got %d pieces, want %d", limit, len(k.pieces), want)
		}
	}
}

// TestGrow checks the sizes of buffers for copies, and that each takes the memory that is counted.
func TestGrow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ size, needed, want int }{
		{0, 1, firstRoom}, {0, firstRoom, firstRoom}, {0, firstRoom + 1, 2 * firstRoom}, {firstRoom, 1, 2 * firstRoom}, {0, maxChunk / 2, maxChunk / 2},
		{0, maxChunk/2 + 1, maxChunk}, {maxChunk / 2, 1, maxChunk}, {maxChunk, 1, maxChunk}, {0, 2 * maxChunk, maxChunk},
	} {
		k := kept{size: tt.size, joined: true, budget: newBudget()}
		cost := k.grow(tt.needed)
		want := int64(tt.want)
		if tt.want == maxChunk {
			want = chunkCost
		}
		if k.size != tt.want || len(k.room) != tt.want || cost != want {
			t.Errorf("from %d for %d bytes: got a buffer of %d bytes, a size of %d and a cost of %d, want %d and %d", tt.size, tt.needed, len(k.room), k.size, cost, tt.want, want)
		}
		if whole := tt.want == maxChunk; (k.tail != nil) != whole || k.joined {
			t.Errorf("from %d for %d bytes: it has a tail: %v, and shares its buffer: %v, want %v and not", tt.size, tt.needed, k.tail != nil, k.joined, whole)
		}
		k.leaveTail()
	}
}

// TestKeptBudget checks that the output of ended processes is dropped first, and that the output of
// all processes remains within the bound.
func TestKeptBudget(t *testing.T) {
	t.Parallel()
	b := newBudget()
	var outputs []*output
	for i := range 40 {
		o, first := newOutput(b)
		o.unsubscribe(first)
		outputs = append(outputs, o)
		for range maxKeptOutput / maxChunk {
			o.put(stdout, strings.Repeat("x", maxChunk))
		}
		if i < 4 {
			o.end()
		}
	}
	if used := b.used.Load(); used > maxAllKept {
		t.Errorf("%d bytes are used, want at most %d", used, maxAllKept)
	}
	for i, o := range outputs {
		if kept := o.kept.cost.Load(); (kept == 0) != (i < 4) {
			t.Errorf("%d: %d bytes are kept", i, kept)
		}
	}
	if !b.scarce() {
		t.Error("memory is not scarce, and running processes use all of it")
	}
	for _, o := range outputs[4:] {
		o.end()
	}
	if b.scarce() {
		t.Error("memory is scarce, and only ended processes use it")
	}
	for _, o := range outputs {
		b.leave(o)
	}
	if used, left := b.used.Load(), b.left.Load(); used != 0 || left != 0 {
		t.Errorf("%d bytes are used after the end, %d by ended processes", used, left)
	}
}

// TestReturns checks that a process waits for a client whose connection was cut until the client has all
// output again, even if the client's next request is refused because other output waits to be sent again.
// Chunks that fill half of their buffers take the most memory for their bytes.
func TestReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		o, first := newOutput(b)
		o.willReturn(first)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for range 64 << 20 / sharedFrom {
				o.put(stdout, strings.Repeat("x", sharedFrom))
			}
			o.end()
		}()
		var received int64
		for stream := first; ; {
			o.unsubscribe(stream)
			time.Sleep(returnLimit / 2) //nolint:forbidigo // its time is fake
			synctest.Wait()
			for range 3 { // longer than the process waits for a client that does not ask
				must.Do(t, b.replay(maxReplays))
				if _, _, err := o.subscribeFrom(received, stream.stream); err == nil {
					t.Fatal("more output is sent again than the bound allows")
				}
				_ = b.replay(-maxReplays)
				time.Sleep(returnLimit / 2) //nolint:forbidigo // its time is fake
			}
			next, begin, err := o.subscribeFrom(received, stream.stream)
			must.Do(t, err)
			if begin != received {
				t.Fatalf("output from byte %d on is kept, and the client has %d bytes", begin, received)
			}
			for _, data := next.replayed(); data != nil; _, data = next.replayed() {
				received += int64(len(data))
			}
			if stream = next; o.ended {
				break
			}
			must.Do(t, o.receive(stream.stream, received))
		}
		<-written
		if received != 64<<20 {
			t.Errorf("the client has %d bytes", received)
		}
	})
}

// reportedStream is the stream of a process whose client connects again after a cut.
type reportedStream struct {
	*connect.ServerStreamForClient[process.StartResponse]
	client processconnect.ProcessClient
}

func (d *daemon) startReported(t *testing.T, script string) reportedStream {
	t.Helper()
	request := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}})
	request.Header().Set(protocol.HeaderOutputFrom, "0")
	s, err := d.processes().Start(t.Context(), request)
	must.Do(t, err)
	return reportedStream{s, d.processes()}
}

// report adds the headers of a report.
func (s reportedStream) report(h http.Header, offset int64) {
	h.Set(protocol.HeaderOutputFrom, fmt.Sprint(offset))
	for _, name := range []string{protocol.HeaderOutputOf, protocol.HeaderOutputStream} {
		h.Set(name, s.ResponseHeader().Get(name))
	}
}

// follow reads the output, and returns its size. It calls received after each message.
func (s reportedStream) follow(t *testing.T, received func(offset int64, asked bool)) (offset int64) {
	t.Helper()
	for s.Receive() {
		data := s.Msg().GetEvent().GetData()
		offset += int64(len(data.GetStdout()))
		received(offset, data != nil && data.GetOutput() == nil)
	}
	must.Do(t, s.Err())
	return offset
}

// TestReports checks that a client receives all output of a process if it reports what it has received
// only when the daemon asks, because a proxy holds back the messages of its other request, and also if it
// sends only these messages.
func TestReports(t *testing.T) {
	t.Parallel()
	const size = 32 << 20
	script := fmt.Sprintf("exec head -c %d /dev/zero", size)
	t.Run("asked", func(t *testing.T) {
		t.Parallel()
		asks := int64(0)
		s := serve(t).startReported(t, script)
		got := s.follow(t, func(offset int64, asked bool) {
			if !asked {
				return
			}
			asks++
			request := connect.NewRequest(&process.UpdateRequest{})
			s.report(request.Header(), offset)
			_, err := s.client.Update(t.Context(), request)
			must.Do(t, err)
		})
		if got != size || asks == 0 || asks > size/maxOnTheWay {
			t.Errorf("got %d bytes, asked %d times, want %d and at most %d", got, asks, size, size/maxOnTheWay)
		}
	})
	t.Run("steps", func(t *testing.T) {
		t.Parallel()
		s := serve(t).startReported(t, script)
		in := s.client.StreamInput(t.Context())
		reported := int64(-protocol.OutputStep)
		got := s.follow(t, func(offset int64, _ bool) {
			for ; offset-reported >= protocol.OutputStep; reported += protocol.OutputStep {
				message := furtherStep
				if reported < 0 {
					s.report(in.RequestHeader(), 0)
					message = reportsOf(byPid(1))
				}
				must.Do(t, in.Send(message))
			}
		})
		if got != size {
			t.Errorf("got %d bytes, want %d", got, size)
		}
		_, err := in.CloseAndReceive()
		must.Do(t, err)
	})
}

func reportsOf(selector *process.ProcessSelector) *process.StreamInputRequest {
	return &process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: selector}}}
}

var furtherStep = &process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}}

// TestBadReports checks that reports of a hostile client are refused, and that the process goes on.
func TestBadReports(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s := d.startReported(t, "echo begun; read line; echo $line")
	if !s.Receive() {
		t.Fatal(s.Err())
	}
	pid, id := s.Msg().GetEvent().GetStart().GetPid(), s.ResponseHeader().Get(protocol.HeaderOutputOf)
	input := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}
	for name, tt := range map[string]struct {
		from, of string
		messages []*process.StreamInputRequest
		want     connect.Code
	}{
		"no process":      {"0", id, []*process.StreamInputRequest{furtherStep}, connect.CodeFailedPrecondition},
		"another process": {"0", "another", []*process.StreamInputRequest{reportsOf(byPid(pid))}, connect.CodeNotFound},
		"no number":       {"-7", id, []*process.StreamInputRequest{reportsOf(byPid(pid))}, connect.CodeInvalidArgument},
		"yet to come":     {"9223372036854775807", id, []*process.StreamInputRequest{reportsOf(byPid(pid))}, connect.CodeOutOfRange},
		"a step too many": {"0", id, []*process.StreamInputRequest{reportsOf(byPid(pid)), furtherStep}, connect.CodeOutOfRange},
		"input": {"0", id, []*process.StreamInputRequest{reportsOf(byPid(pid)), {Event: &process.StreamInputRequest_Data{
			Data: &process.StreamInputRequest_DataEvent{Input: input},
		}}}, connect.CodeInvalidArgument},
	} {
		in := d.processes().StreamInput(t.Context())
		s.report(in.RequestHeader(), 0)
		in.RequestHeader().Set(protocol.HeaderOutputFrom, tt.from)
		in.RequestHeader().Set(protocol.HeaderOutputOf, tt.of)
		for _, message := range tt.messages {
			_ = in.Send(message) // the answer has the error
		}
		if _, err := in.CloseAndReceive(); connect.CodeOf(err) != tt.want {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
	}
	_, err := d.processes().SendInput(t.Context(), connect.NewRequest(&process.SendInputRequest{
		Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("said\n")}},
	}))
	must.Do(t, err)
	if got, want := s.follow(t, func(int64, bool) {}), int64(len("begun\nsaid\n")); got != want {
		t.Errorf("got %d bytes, want %d", got, want)
	}
}
