package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestOffsetsOfADaemon checks what the client makes of the offsets that a daemon reports, also of a
// daemon that lies.
func TestOffsetsOfADaemon(t *testing.T) {
	t.Parallel()
	at := outputFrom{offset: 100, of: "mine"}
	for name, tt := range map[string]struct {
		from             outputFrom
		offset, of       string
		want             string // part of the error; "": none
		resumable        bool
		missing, reached int64
	}{
		"none":              {at, "", "", "", false, 0, 0},
		"the requested one": {at, "100", "mine", "", true, 0, 100},
		"from now on":       {outputFrom{now: true}, "77", "theirs", "", true, 0, 77},
		"the start":         {outputFrom{}, "0", "new", "", true, 0, 0},
		"earlier":           {at, "99", "mine", "before the requested byte 100", false, 0, 0},
		"later":             {at, "130", "mine", "30 bytes of output from byte 100 on", false, 30, 0},
		"negative":          {at, "-1", "mine", "not a number of bytes", false, 0, 0},
		"too large":         {at, "9223372036854775807", "mine", "not a number of bytes", false, 0, 0},
		"no number":         {outputFrom{now: true}, "now", "mine", "not a number of bytes", false, 0, 0},
		"of another":        {at, "100", "theirs", `the output of "theirs"`, false, 0, 0},
		"of nobody":         {outputFrom{now: true}, "0", "", `the output of ""`, false, 0, 0},
		"very long":         {at, strings.Repeat("9", 1<<20), "mine", "not a number of bytes", false, 0, 0},
	} {
		a := &attachment{}
		header := http.Header{}
		header.Set(protocol.HeaderOutputFrom, tt.offset)
		header.Set(protocol.HeaderOutputOf, tt.of)
		err := a.begin(tt.from, header)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || len(err.Error()) > 500) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if a.resumable != tt.resumable || a.offset.Load() != tt.reached {
			t.Errorf("%s: it can go on: %v at %d, want %v at %d", name, a.resumable, a.offset.Load(), tt.resumable, tt.reached)
		}
		if lost, ok := errors.AsType[*OutputLostError](err); ok != (tt.missing > 0) || ok && (lost.Missing != tt.missing || lost.From != 100) {
			t.Errorf("%s: got %+v, want that %d bytes are missing", name, lost, tt.missing)
		}
	}
}

// reports records reports, and fails or holds them on request.
type reports struct {
	mu                     sync.Mutex
	opened, steps, answers []int64
	closed                 int
	reached                int64         // the offset that the open request has reported
	failure                error         // of the next report
	held                   chan struct{} // holds steps; nil: nothing does
}

func (r *reports) record(list *[]int64, offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, offset)
	err := r.failure
	r.failure = nil
	return err
}

func (r *reports) report(_ context.Context, offset int64) error { return r.record(&r.answers, offset) }

func (r *reports) reportSteps(ctx context.Context, offset int64) (steps, error) {
	r.reached = offset
	return openReports{r, ctx}, r.record(&r.opened, offset)
}

type openReports struct {
	*reports
	ctx context.Context //nolint:containedctx // of the request
}

func (r openReports) step() error {
	r.reached += protocol.OutputStep
	err := r.record(&r.steps, r.reached)
	if r.held != nil {
		select {
		case <-r.held:
		case <-r.ctx.Done():
		}
	}
	return err
}

func (r openReports) close() { r.closed++ }

// expect checks which reports were sent, in units of [protocol.OutputStep].
func (r *reports) expect(t *testing.T, opened, steps, answers []int64) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, list := range map[string][2][]int64{"opened": {r.opened, opened}, "steps": {r.steps, steps}, "answers": {r.answers, answers}} {
		got := []int64{}
		for _, offset := range list[0] {
			got = append(got, offset/protocol.OutputStep)
		}
		if !slices.Equal(got, list[1]) {
			t.Errorf("%s: got reports of %v, want %v", name, got, list[1])
		}
	}
	r.opened, r.steps, r.answers = nil, nil, nil
}

// TestReceipts checks which reports of received output are sent, and when.
func TestReceipts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const step = protocol.OutputStep
		sent := &reports{}
		r := newReceipts(t.Context(), 100, sent)
		r.report(99 + step)
		r.answer(100) // nothing is new
		sent.expect(t, nil, nil, nil)
		r.report(100 + step)
		sent.expect(t, []int64{1}, nil, nil)
		r.report(100 + 3*step)
		sent.expect(t, nil, []int64{2, 3}, nil)
		sent.failure = errors.New("cut off") // then the next report is sent in another request
		r.report(100 + 4*step)
		sent.expect(t, nil, []int64{4}, nil)
		if sent.closed != 1 {
			t.Errorf("%d requests that failed were closed, want 1", sent.closed)
		}
		r.report(100 + 6*step)
		sent.expect(t, []int64{6}, nil, nil)
		sent.held = make(chan struct{})
		r.report(100 + 7*step)
		sent.expect(t, nil, []int64{7}, nil)
		r.answer(100 + 8*step) // while the other request is held up
		r.answer(100 + 8*step)
		sent.expect(t, nil, nil, []int64{8})
		sent.failure = errors.New("cut off")
		r.answer(100 + 9*step)
		sleep(t.Context(), rejoinPause)
		sent.expect(t, nil, nil, []int64{9, 9})
		r.end() // in the middle of a report
		if sent.closed != 2 {
			t.Errorf("%d requests were closed, want 2", sent.closed)
		}
	})
}

// TestReceiptsOfMuchOutput bounds the number of requests for 256 MiB of output, because a request takes
// as much processor time as a megabyte of output.
func TestReceiptsOfMuchOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, event = 256 << 20, 64 << 10
		sent := &reports{}
		r := newReceipts(t.Context(), 0, sent)
		for offset := int64(event); offset <= size; offset += event {
			r.report(offset)
			synctest.Wait()
		}
		r.finish()
		r.end()
		if len(sent.opened) != 1 || len(sent.steps) != size/protocol.OutputStep-1 || len(sent.answers) != 0 || sent.closed != 1 {
			t.Errorf("%d requests with %d reports and %d requests with one were sent, and %d ended in order", len(sent.opened), len(sent.steps), len(sent.answers), sent.closed)
		}
	})
}

// TestOffsetWithoutKeptOutput checks that a daemon that keeps no output is reported by name.
func TestOffsetWithoutKeptOutput(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.connect = func(ctx context.Context, r *process.ConnectRequest, stream *connect.ServerStream[process.ConnectResponse]) error {
		pid := r.GetProcess().GetPid()
		start := &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}
		if err := stream.Send(&process.ConnectResponse{Event: start}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := s.sandbox().Commands.Connect(t.Context(), ByPID(7), &CommandConnectParams{From: new(int64)})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "CommandConnectParams.From") {
		t.Errorf("got %v, want %v with the name of the parameter", err, errors.ErrUnsupported)
	}
}

// TestNegativeOffset checks that a negative offset is refused before any request.
func TestNegativeOffset(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	for name, connect := range map[string]func(from *int64) error{
		"Commands": func(from *int64) error {
			_, err := sb.Commands.Connect(t.Context(), ByPID(1), &CommandConnectParams{From: from})
			return err
		},
		"PTY": func(from *int64) error {
			_, err := sb.PTY.Connect(t.Context(), ByPID(1), &PTYConnectParams{From: from})
			return err
		},
	} {
		if err := connect(new(int64(-1))); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%s: a negative offset: got %v, want %v", name, err, api.ErrInvalidArgument)
		}
	}
}

// TestStreamsThatEndAtOnce checks how often a process is connected to again whose streams end without output, how long the
// pauses between them are, and that output begins the count anew.
func TestStreamsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		output int // the stream, counted from 1, that has one byte; 0: none
		ends   int // the stream with the end of the process; 0: none
		want   int // how many streams there are
		took   time.Duration
	}{
		"never":          {want: maxFruitless, took: 200*time.Millisecond + 400*time.Millisecond + 800*time.Millisecond + 1600*time.Millisecond + (maxFruitless-6)*maxRejoinPause},
		"the second":     {ends: 2, want: 2},
		"the third":      {ends: 3, want: 3, took: 200 * time.Millisecond},
		"now and then":   {output: 30, ends: 100, want: 100},
		"output at once": {output: 1, ends: 50, want: 50},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newPipedService(t)
			var mu sync.Mutex // requests that were given up may still be served
			streams, sent, id := 0, 0, ""
			s.raw = func(_ http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				id = cmp.Or(r.Header.Get(protocol.HeaderOutputOf), id)
				return false
			}
			serve := func(header http.Header, send func(*process.ProcessEvent) error) error {
				mu.Lock()
				streams++
				header.Set(protocol.HeaderOutputFrom, fmt.Sprint(sent))
				header.Set(protocol.HeaderOutputOf, id)
				events := []*process.ProcessEvent{{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}}
				if tt.output > 0 && streams%tt.output == 0 {
					events = append(events, outEvent("x"))
					sent++
				}
				if streams == tt.ends {
					events = append(events, endEvent(0))
				}
				mu.Unlock()
				for _, e := range events {
					if err := send(e); err != nil {
						return err
					}
				}
				return nil
			}
			s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
				return serve(stream.ResponseHeader(), func(e *process.ProcessEvent) error { return stream.Send(&process.StartResponse{Event: e}) })
			}
			s.connect = func(_ context.Context, _ *process.ConnectRequest, stream *connectStream) error {
				return serve(stream.ResponseHeader(), func(e *process.ProcessEvent) error { return stream.Send(&process.ConnectResponse{Event: e}) })
			}
			begun := time.Now()
			result, err := s.sandbox().Commands.Run(t.Context(), "work", nil)
			mu.Lock()
			defer mu.Unlock()
			if streams != tt.want || (err == nil) != (tt.ends > 0) || err != nil && !errors.Is(err, ErrCommandLost) {
				t.Errorf("%s: got error %v after %d streams, want %d", name, err, streams, tt.want)
			}
			if took := time.Since(begun); tt.output == 0 && took != tt.took {
				t.Errorf("%s: it took %v, want %v", name, took, tt.took)
			}
			if err == nil && len(result.Stdout) != sent {
				t.Errorf("%s: got %d bytes of output, want %d", name, len(result.Stdout), sent)
			}
		})
	}
}

// TestPausesBetweenStreams checks the pauses that follow streams without output, and that the end of the context ends them.
func TestPausesBetweenStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended, end := context.WithCancel(t.Context())
		end()
		for fruitless, want := range map[int]time.Duration{0: 0, 1: 0, 2: 200 * time.Millisecond, 5: 1600 * time.Millisecond, 6: maxRejoinPause, maxFruitless: maxRejoinPause} {
			begun := time.Now()
			if goesOn := pauseFor(t.Context(), fruitless); !goesOn || time.Since(begun) != want {
				t.Errorf("%d streams: it goes on: %v after %v, want %v", fruitless, goesOn, time.Since(begun), want)
			}
			begun = time.Now()
			if pauseFor(ended, fruitless) || time.Since(begun) != 0 {
				t.Errorf("%d streams: the end of the context does not end the pause", fruitless)
			}
		}
	})
}
