package sandbox

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

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

// TestReceipts checks that bytes which arrive during a report are reported after it. The process
// waits for this report if it writes no more than the daemon keeps.
func TestReceipts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const from, step = 100, protocol.OutputStep
		answers := make(chan error)
		var mu sync.Mutex
		var sent []int64 // guarded by mu
		r := newReceipts(t.Context(), from, func(ctx context.Context, offset int64) error {
			mu.Lock()
			sent = append(sent, offset)
			mu.Unlock()
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		var want []int64
		expect := func(offsets ...int64) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if want = append(want, offsets...); !slices.Equal(sent, want) {
				t.Fatalf("got reports of %v, want %v", sent, want)
			}
		}
		pause := func() { sleep(t.Context(), receiptPause) }
		r.report(from + step - 1)
		pause()
		expect()
		r.report(from + step)
		expect()
		pause()
		expect(from + step)
		for n := range int64(2) {
			r.report(from + (2+n)*step)
		}
		answers <- errors.New("cut off")
		answers <- nil        // the same report once more, with the newest offset
		expect(from + 3*step) // no further one
		pause()
		expect()
		for n := range int64(4) { // at once, without a pause
			expect()
			r.report(from + (4+n)*step)
		}
		expect(from + 7*step)
		r.report(from + 8*step) // during the report
		answers <- nil
		expect()
		pause()
		expect(from + 8*step)
		r.end() // in the middle of a report
		expect()
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
