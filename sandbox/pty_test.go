package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func showed(stream *startStream, data []byte) error {
	return stream.Send(&process.StartResponse{Event: ptyEvent(data)})
}

func openTerminal(t *testing.T, sb *Sandbox, p *PTYParams) *Terminal {
	t.Helper()
	terminal, err := sb.PTY.Open(t.Context(), p)
	must.Do(t, err)
	return terminal
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var got []*process.StartRequest
	s.start = func(_ context.Context, r *process.StartRequest, stream *startStream) error {
		got = append(got, r)
		_ = started(stream, 42)
		_ = showed(stream, []byte("\x1b[1mhé"))
		_ = stream.Send(&process.StartResponse{Event: keepaliveEvent()})
		_ = showed(stream, []byte("llo\xff\r\n"))
		return ended(stream, 3, "exit status 3")
	}
	sb := s.sandbox()
	for _, p := range []*PTYParams{nil, {Command: "top", Cols: 100, Rows: 30, Cwd: "/w", Tag: "t", Envs: map[string]string{"TERM": "dumb", "A": "b"}}} {
		terminal := openTerminal(t, sb, p)
		data, err := io.ReadAll(iotest.OneByteReader(terminal))
		if err != nil || string(data) != "\x1b[1mhéllo\xff\r\n" || terminal.PID() != 42 {
			t.Errorf("%q, %v", data, err)
		}
		for range 2 {
			if failed, ok := errors.AsType[*ExitError](terminal.Wait(t.Context())); !ok || failed.Result.ExitCode != 3 {
				t.Errorf("Wait: %v", failed)
			}
		}
		if n, err := terminal.Write([]byte("x")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Write after the end: %d, %v", n, err)
		}
		if err := terminal.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, want := range []*process.StartRequest{
		{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-i", "-l"}, Envs: terminalEnvs}, Pty: &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}},
		{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", "top"}, Cwd: optional("/w"), Envs: map[string]string{"TERM": "dumb", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "A": "b"}},
			Pty: &process.PTY{Size: &process.PTY_Size{Cols: 100, Rows: 30}}, Tag: optional("t")},
	} {
		if diff := cmp.Diff(want.String(), got[i].String()); diff != "" {
			t.Error(diff)
		}
	}
	if killed := s.killed(); len(killed) != 0 {
		t.Errorf("a process that ended was signalled: %v", killed)
	}
	for _, p := range []*PTYParams{{Cols: -1}, {Rows: 1 << 16}, {Timeout: -1}} {
		if _, err := sb.PTY.Open(t.Context(), p); err == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
	if len(got) != 2 {
		t.Error("a request was made")
	}
}

func TestTerminalInput(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start = silent
	var mu sync.Mutex
	var typed bytes.Buffer
	s.input = func(r *process.SendInputRequest) {
		mu.Lock()
		defer mu.Unlock()
		typed.Write(r.GetInput().GetPty())
	}
	var size string
	s.update = func(r *process.UpdateRequest) { size = r.GetPty().GetSize().String() }
	terminal := openTerminal(t, s.sandbox(), nil)
	input := bytes.Repeat([]byte("0123456789"), inputChunk/5)
	if n, err := terminal.Write(input); n != len(input) || err != nil || !bytes.Equal(typed.Bytes(), input) {
		t.Errorf("%d of %d, %v", n, len(input), err)
	}
	if err := terminal.Resize(t.Context(), 132, 50); err != nil || size != (&process.PTY_Size{Cols: 132, Rows: 50}).String() {
		t.Errorf("%s, %v", size, err)
	}
	if err := terminal.Resize(t.Context(), 0, 50); err == nil {
		t.Error("no columns")
	}
}

// Close ends a terminal that was opened here, leaves one that was connected to or
// disconnected from, and unblocks reads and writes.
func TestTerminalClose(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		open   func(*testing.T, *Sandbox) *Terminal
		leave  bool
		killed []uint32
	}{
		"opened":       {open: func(t *testing.T, sb *Sandbox) *Terminal { return openTerminal(t, sb, nil) }, killed: []uint32{42}},
		"disconnected": {open: func(t *testing.T, sb *Sandbox) *Terminal { return openTerminal(t, sb, nil) }, leave: true},
		"connected": {open: func(t *testing.T, sb *Sandbox) *Terminal {
			terminal, err := sb.PTY.Connect(t.Context(), ByPID(42), nil)
			must.Do(t, err)
			return terminal
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.start = silent
			s.connected(func(ctx context.Context, pid uint32, send func(*process.ProcessEvent) error) error {
				_ = send(startEvent(pid))
				<-ctx.Done()
				return ctx.Err()
			})
			typing, taken := make(chan struct{}), make(chan struct{})
			s.input = func(*process.SendInputRequest) {
				close(typing)
				<-taken
			}
			sb := s.sandbox()
			terminal := tt.open(t, sb)
			failed := make(chan error)
			go func() { _, err := terminal.Read(make([]byte, 1)); failed <- err }()
			go func() { _, err := terminal.Write([]byte("x")); failed <- err }()
			<-typing
			if tt.leave {
				terminal.Disconnect()
			}
			for range 2 {
				if err := terminal.Close(); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				if err := <-failed; !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
			close(taken)
			if err := terminal.Wait(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("Wait: %v", err)
			}
			if killed := s.killed(); !slices.Equal(killed, tt.killed) {
				t.Errorf("killed %v", killed)
			}
		})
	}
}

// Output that is not read stays in the sandbox.
func TestTerminalNobodyReads(t *testing.T) {
	t.Parallel()
	const size, parts = 16 << 10, 16 << 10 // 256 MiB, more than all buffers in between
	s := newService(t)
	var sent atomic.Int64
	s.start = func(ctx context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		for range parts {
			if err := showed(stream, make([]byte, size)); err != nil {
				return err
			}
			sent.Add(size)
		}
		return ended(stream, 0, "")
	}
	terminal := openTerminal(t, s.sandbox(), nil)
	full := func() bool {
		terminal.backlog.mu.Lock()
		defer terminal.backlog.mu.Unlock()
		return terminal.backlog.size+size+entryCost > maxBacklog
	}
	patience.Until(t, "the buffer is full", full)
	if n, err := io.CopyN(io.Discard, terminal, 32<<20); n != 32<<20 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	patience.Until(t, "the buffer is full again", full)
	if terminal.backlog.size > maxBacklog {
		t.Errorf("%d bytes are buffered", terminal.backlog.size)
	}
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	if n := sent.Load(); n == parts*size {
		t.Errorf("all %d bytes were sent to one who does not read", n)
	}
}

func TestTerminalWithoutOne(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.connected(func(_ context.Context, pid uint32, send func(*process.ProcessEvent) error) error {
		_ = send(startEvent(pid))
		return send(stdoutEvent("x"))
	})
	terminal, err := s.sandbox().PTY.Connect(t.Context(), ByPID(7), nil)
	must.Do(t, err)
	if _, err := io.ReadAll(terminal); err == nil || !strings.Contains(err.Error(), "Commands.Connect") {
		t.Error(err)
	}
	if killed := s.killed(); len(killed) != 0 {
		t.Error("it was killed")
	}
}

// TestTerminalWriteAtTheEnd checks that input that the program took before it ended
// counts as written, whichever of the two is reported first.
func TestTerminalWriteAtTheEnd(t *testing.T) {
	t.Parallel()
	s := newService(t)
	taken, seen := make(chan struct{}), make(chan struct{})
	s.start = func(_ context.Context, _ *process.StartRequest, stream *startStream) error {
		_ = started(stream, 42)
		<-taken
		return ended(stream, 0, "exit status 0")
	}
	s.input = func(*process.SendInputRequest) {
		close(taken)
		<-seen
	}
	terminal := openTerminal(t, s.sandbox(), nil)
	go func() {
		<-terminal.done
		close(seen)
	}()
	if n, err := terminal.Write([]byte("exit\n")); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
