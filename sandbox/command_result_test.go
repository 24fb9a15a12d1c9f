package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSignalOf reads every form of the daemon's words, and texts that are not the
// daemon's.
func TestSignalOf(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{
		"signal: hangup": 1,
		"signal: killed": 9,
		"signal: segmentation fault (core dumped)": 11,
		"signal: terminated":                       15,
		"signal: file size limit exceeded":         25,
		"signal: bad system call (core dumped)":    31,
		"signal: signal 34 (core dumped)":          34,
		"signal: signal 64":                        64,
		"signal: signal 65":                        0,
		"signal: signal -9":                        0,
		"signal: signal 99999999999999999999":      0,
		"signal: ":                                 0,
		"signal: bored":                            0,
		"exit status 137":                          0,
		"":                                         0,
	} {
		if got := signalOf(status); got != want {
			t.Errorf("signalOf(%q) = %d, want %d", status, got, want)
		}
	}
}

// TestSignalsOfGo compares the names with those of Go, where Go runs on Linux.
func TestSignalsOfGo(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("Go names the signals of this system here, the daemon those of Linux")
	}
	for number := 1; number <= maxSignal; number++ {
		switch number {
		case 17, 18, 19, 20, 21, 22, 23, 28: // these end no process
			continue
		}
		if status := "signal: " + syscall.Signal(number).String(); signalOf(status) != number {
			t.Errorf("signalOf(%q) = %d, want %d", status, signalOf(status), number)
		}
	}
}

// TestResultOfSignal: a result says which signal ended the command, and why as
// far as the daemon knows.
func TestResultOfSignal(t *testing.T) {
	t.Parallel()
	const reason = "signal: killed (out of memory: the sandbox's limit is 64 MiB)"
	for name, tt := range map[string]struct {
		end    *process.ProcessEvent_EndEvent
		code   int
		signal int
		status string
	}{
		"killed":          {&process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed", Error: proto.String("signal: killed")}, -1, 9, "signal: killed"},
		"out of memory":   {&process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed", Error: proto.String(reason)}, -1, 9, reason},
		"its shell says":  {&process.ProcessEvent_EndEvent{ExitCode: 137, Exited: true, Status: "exit status 137"}, 137, 0, "exit status 137"},
		"a contradiction": {&process.ProcessEvent_EndEvent{ExitCode: 1, Exited: true, Status: "signal: killed"}, 1, 0, "signal: killed"},
		"no text":         {&process.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed", Error: proto.String("a\nb\x1b[2J")}, -1, 9, "a b [2J"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
				_ = started(stream, 42)
				return stream.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: tt.end}}})
			}
			result, err := s.sandbox().Commands.Run(t.Context(), "x", nil)
			if failed, ok := errors.AsType[*ExitError](err); !ok || failed.Result != result {
				t.Fatalf("%+v, %v, want an ExitError", result, err)
			}
			if result.ExitCode != tt.code || result.Signal != tt.signal || result.Status != tt.status {
				t.Errorf("%+v, want %d, signal %d, %q", result, tt.code, tt.signal, tt.status)
			}
		})
	}
}

// TestOutputHeld checks that output that the daemon adds to the end of a stream is in
// the results of Run and of Connect.
func TestOutputHeld(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
				if held {
					stream.ResponseTrailer().Set("E2bctl-Output-Held", "true")
				}
				_ = started(stream, 42)
				return ended(stream, 0, "exit status 0")
			}
			s.connect = func(_ context.Context, _ *process.ConnectRequest, stream *connectStream) error {
				if held {
					stream.ResponseTrailer().Set("E2bctl-Output-Held", "true")
				}
				_ = stream.Send(&process.ConnectResponse{Event: startEvent(42)})
				return stream.Send(&process.ConnectResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}}})
			}
			sb := s.sandbox()
			if result, err := sb.Commands.Run(t.Context(), "x", nil); err != nil || result.OutputHeld != held {
				t.Errorf("Run: %+v, %v", result, err)
			}
			command, err := sb.Commands.Connect(t.Context(), ByPID(42), nil)
			must.Do(t, err)
			if result, err := command.Wait(t.Context()); err != nil || result.OutputHeld != held {
				t.Errorf("Connect: %+v, %v", result, err)
			}
		})
	}
}

// TestTruncated checks that each kind of lost output counts.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for r, want := range map[CommandResult]bool{{}: false, {StdoutDropped: 1}: true, {StderrDropped: 1}: true, {StdoutDropped: 2, StderrDropped: 3}: true} {
		if got := r.Truncated(); got != want {
			t.Errorf("%+v: got %v, want %v", r, got, want)
		}
	}
}
