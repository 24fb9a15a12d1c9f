//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// newServed returns a guest, and the connection of its server. At the end of the test, no request of
// the guest may wait, and no connection may be counted.
func newServed(t *testing.T) (*Guest, *wire.Conn) {
	t.Helper()
	server, control, err := bridgeEnds()
	must.Do(t, err)
	g := newGuest(control, 1)
	g.slots = newSlots(1<<10, 1)
	ended := make(chan error, 1)
	go func() { ended <- g.receive(t.Context()) }()
	t.Cleanup(func() {
		server.Close()
		if err := patience.Receive(t, "the guest to notice the end", ended); !errors.Is(err, io.EOF) {
			t.Errorf("the guest ended with %v, want that the connection ended", err)
		}
		control.Close()
		patience.Until(t, "no connection is counted", func() bool { return len(g.slots.local) == 0 })
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.pending)+len(g.listeners) > 0 {
			t.Errorf("%d requests wait and %d listeners are left after the end", len(g.pending), len(g.listeners))
		}
	})
	return g, server
}

// isClosed reports whether nobody has the other end of a connection open, and nothing was sent.
func isClosed(t *testing.T, conn net.Conn) bool {
	t.Helper()
	must.Do(t, conn.SetReadDeadline(patience.Deadline()))
	n, err := conn.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

// passed adds one end of a connection for each name to files, and returns the other ends.
func passed(t *testing.T, files *wire.Files, names []wire.FileName, outcome string) (others []net.Conn) {
	t.Helper()
	if outcome == "more files" && len(names) == 1 { // envd receives two at most
		names = append(names, wire.FileMemory)
	}
	for _, name := range names {
		ours, theirs, err := wire.StreamPair()
		must.Do(t, err)
		others = append(others, ours)
		if outcome == "other files" {
			name = wire.FileMemory
		}
		files.Add(name, theirs)
	}
	return others
}

// TestRequestsOfEnvd checks what each request asks for, and each answer of the server.
func TestRequestsOfEnvd(t *testing.T) {
	t.Parallel()
	g, server := newServed(t)
	g.ownLoopback, g.restricted = true, true
	for name, tt := range map[string]struct {
		ask    func(context.Context) ([]io.Closer, error)
		asked  wire.Message
		answer wire.Kind
		files  []wire.FileName
		text   string // of a refusal
	}{
		"a connection": {func(ctx context.Context) ([]io.Closer, error) {
			conn, err := g.DialEgress(ctx, "a.test", 80)
			return []io.Closer{conn}, err
		}, wire.Message{Kind: wire.KindEgress, Host: "a.test", Port: 80}, wire.KindEgressed, []wire.FileName{wire.FileStream}, "room: connect to a.test:80: no"},
		"a kernel": {func(ctx context.Context) ([]io.Closer, error) {
			file, err := g.Kernel(ctx)
			return []io.Closer{file}, err
		}, wire.Message{Kind: wire.KindKernel}, wire.KindKernel, []wire.FileName{wire.FileKernel}, "room: fork a kernel: no"},
		"a terminal": {func(ctx context.Context) ([]io.Closer, error) {
			controller, tty, err := g.Terminal(ctx)
			return []io.Closer{controller, tty}, err
		}, wire.Message{Kind: wire.KindTerminal}, wire.KindTerminal, []wire.FileName{wire.FileTerminal, wire.FileTTY}, "room: open a terminal: no"},
	} {
		for _, outcome := range []string{"files", "more files", "refused", "denied", "other files", "given up"} {
			ctx, giveUp := context.WithCancel(patience.Context(t))
			done := make(chan error, 1)
			go func() {
				got, err := tt.ask(ctx)
				for _, c := range got {
					if err == nil {
						err = c.Close()
					}
				}
				done <- err
			}()
			m, _, err := server.Receive(0)
			must.Do(t, err)
			if m.ID == 0 || m.Kind != tt.asked.Kind || m.Host != tt.asked.Host || m.Port != tt.asked.Port {
				t.Errorf("%s: the server was asked %+v, want %+v", name, m, tt.asked)
			}
			answer, sent := wire.Message{Kind: tt.answer, ID: m.ID}, wire.Files{}
			others := passed(t, &sent, tt.files, outcome)
			switch outcome {
			case "given up":
				giveUp()
				if err := patience.Receive(t, "the end of a request", done); !errors.Is(err, context.Canceled) {
					t.Errorf("%s, given up: got error %v", name, err)
				}
				must.Do(t, server.SendFiles(answer, &sent))
			case "refused", "denied": // files of a refusal are closed, too
				answer.Error, answer.Denied = "no", outcome == "denied"
				fallthrough
			default:
				must.Do(t, server.SendFiles(answer, &sent))
			}
			sent.Close()
			for _, conn := range others {
				if !isClosed(t, conn) {
					t.Errorf("%s, %s: a file stays open", name, outcome)
				}
				must.Do(t, conn.Close())
			}
			if outcome != "given up" {
				err = patience.Receive(t, "the end of a request", done)
			}
			refused, is := errors.AsType[*RefusedError](err)
			denied := outcome == "denied"
			switch {
			case (outcome == "files" || outcome == "more files") && err != nil, outcome == "other files" && !errors.Is(err, wire.ErrProtocol):
				t.Errorf("%s, %s: got error %v", name, outcome, err)
			case (outcome == "refused" || denied) && (!is || refused.Error() != tt.text):
				t.Errorf("%s, %s: got error %v, want %s", name, outcome, err, tt.text)
			}
			if is && refused.Denied() != denied {
				t.Errorf("%s, %s: it is denied: %v", name, outcome, refused.Denied())
			}
			giveUp()
		}
	}
}

// TestRefusedRequests checks the requests that envd itself refuses.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	g, server := newServed(t)
	for _, tt := range []struct {
		host string
		port uint16
	}{{"", 80}, {strings.Repeat("a", 256), 80}, {"a.test", 0}} {
		_, err := g.DialEgress(patience.Context(t), tt.host, tt.port)
		if refused, is := errors.AsType[*RefusedError](err); !is || refused.Reason != "not an address" || len(refused.Request) > 300 {
			t.Errorf("%.10q and port %d: got error %v", tt.host, tt.port, err)
		}
	}
	_, err := g.Kernel(patience.Context(t))
	must.Is(t, err, errNoKernels)
	controller, tty, err := g.Terminal(patience.Context(t)) // where it may open one itself
	must.Do(t, err)
	must.Do(t, errors.Join(controller.Close(), tty.Close()))

	ctx, giveUp := context.WithCancel(patience.Context(t))
	ended := make(chan error, link.MaxDialling)
	for range link.MaxDialling {
		go func() {
			_, err := g.DialEgress(ctx, strings.Repeat("a", 255), 80)
			ended <- err
		}()
	}
	ids := map[uint64]bool{}
	for range link.MaxDialling {
		m, _, err := server.Receive(0)
		must.Do(t, err)
		ids[m.ID] = true
	}
	if len(ids) != link.MaxDialling {
		t.Errorf("got %d different numbers of %d requests", len(ids), link.MaxDialling)
	}
	_, err = g.DialEgress(patience.Context(t), "a.test", 80)
	if refused, is := errors.AsType[*RefusedError](err); !is || refused.Reason != fmt.Sprintf("%d connections are being made", link.MaxDialling) {
		t.Errorf("one request more: got error %v", err)
	}
	giveUp()
	for range link.MaxDialling {
		must.Is(t, patience.Receive(t, "the end of a request", ended), context.Canceled)
	}
	server.Close()
	if _, err := g.DialEgress(patience.Context(t), "a.test", 80); err == nil || !strings.HasPrefix(err.Error(), "room: ask the server: ") {
		t.Errorf("without a server: got error %v", err)
	}
}

// accept waits for the next connection of a listener.
func accept(t *testing.T, l net.Listener) (net.Conn, error) {
	t.Helper()
	type accepted struct {
		conn net.Conn
		err  error
	}
	next := make(chan accepted, 1)
	go func() {
		conn, err := l.Accept()
		next <- accepted{conn, err}
	}()
	got := patience.Receive(t, "a connection", next)
	return got.conn, got.err
}

// TestListenersOfEnvd checks that the connections of the server reach the listener of their port, that
// they are counted until they are closed, and that those beyond the bound are refused.
func TestListenersOfEnvd(t *testing.T) {
	t.Parallel()
	g, server := newServed(t)
	g.slots = slots{link.NewPortSlots(1, 1), link.NewSlots(1)}
	g.dial = func(context.Context, uint16) (net.Conn, error) { return nil, errors.New("nobody listens") }
	dial := func(port uint16) (net.Conn, byte) {
		t.Helper()
		ours, theirs, err := wire.StreamPair()
		must.Do(t, err)
		t.Cleanup(func() { ours.Close() })
		must.Do(t, server.SendFiles(wire.Message{Kind: wire.KindDial, Port: port}, wire.Lent(wire.FileStream, theirs)))
		must.Do(t, errors.Join(theirs.Close(), ours.SetDeadline(patience.Deadline())))
		status := make([]byte, 1)
		_, err = io.ReadFull(ours, status)
		must.Do(t, err)
		return ours, status[0]
	}
	l, err := g.Listen(protocol.PortEnvd)
	must.Do(t, err)
	if a, ok := l.Addr().(*net.TCPAddr); !ok || a.Port != protocol.PortEnvd || g.listener(protocol.PortEnvd) != l {
		t.Errorf("it listens at %v", l.Addr())
	}
	for range 2 { // the second time there is as much room as before
		conn, status := dial(protocol.PortEnvd)
		accepted, err := accept(t, l)
		must.Do(t, err)
		if more, beyond := dial(protocol.PortEnvd); status != link.StatusConnected || beyond != link.StatusTooMany || !isClosed(t, more) {
			t.Errorf("got the answers %d and %d, want that one has room", status, beyond)
		}
		patience.Until(t, "a port on which nobody listens is closed", func() bool { // the last such dial may still be counted
			other, status := dial(3000)
			return status == link.StatusClosed && isClosed(t, other)
		})
		must.Do(t, accepted.(interface{ CloseWrite() error }).CloseWrite())
		if !isClosed(t, conn) {
			t.Error("a half that was closed stays open")
		}
		must.Do(t, accepted.Close())
	}
	waiting, _ := dial(protocol.PortEnvd)
	must.Do(t, errors.Join(l.Close(), l.Close()))
	if _, err := accept(t, l); !errors.Is(err, net.ErrClosed) || !isClosed(t, waiting) || g.listener(protocol.PortEnvd) != nil {
		t.Errorf("a closed listener: got error %v, want %v, and that nothing is left", err, net.ErrClosed)
	}

	g.ownLoopback = true
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	if _, err := g.Listen(port); err == nil {
		t.Error("it listens on a port that is in use")
	}
	must.Do(t, free.Close())
	l, err = g.Listen(port)
	must.Do(t, err)
	for range 2 {
		one, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", free.Addr().String())
		must.Do(t, err)
		accepted, err := accept(t, l)
		must.Do(t, err)
		two, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", free.Addr().String())
		must.Do(t, err)
		if !isClosed(t, two) {
			t.Error("a connection beyond the bound stays open")
		}
		must.Do(t, errors.Join(accepted.Close(), one.Close(), two.Close()))
	}
	must.Do(t, l.Close())
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", free.Addr().String()); err == nil {
		t.Error("a closed listener listens")
	}
}

// TestLogOfEnvd checks the bounds of a log, and that the server learns of dropped lines.
func TestLogOfEnvd(t *testing.T) {
	t.Parallel()
	l := newLog()
	write := func(line string) {
		t.Helper()
		if n, err := l.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%.10s: wrote %d bytes with error %v, want %d", line, n, err, len(line))
		}
	}
	write(" " + strings.Repeat("1", maxLine) + "\n")
	write(strings.Repeat("2", maxLine+1))
	for range maxLines {
		write("3")
	}
	line := []byte("4")
	_, _ = (&Log{lines: l.lines}).Write(line) // there is no room
	close(l.lines)
	var got []string
	l.send(func(line json.RawMessage) error {
		got = append(got, fmt.Sprintf("%d %.50s", len(line), line))
		return nil
	})
	want := []string{fmt.Sprintf("98 %s", `{"level":"WARN","msg":"2 lines of this log were dr`), fmt.Sprintf("%d %s", maxLine, strings.Repeat("1", 50))}
	for range maxLines - 1 {
		want = append(want, "1 3")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for dropped, calls := range map[int64]int{0: 2, 1: 1} { // it fails at the second call, or at the notice
		l := newLog()
		l.dropped.Store(dropped)
		write := []byte("{}")
		for range 3 {
			_, _ = l.Write(write)
		}
		write[0] = 'x' // the caller uses it again
		close(l.lines)
		n := 0
		l.send(func(line json.RawMessage) error {
			if n++; n == calls {
				return os.ErrClosed
			}
			if string(line) != "{}" {
				t.Errorf("got the line %s", line)
			}
			return nil
		})
		if n != calls {
			t.Errorf("with %d dropped lines: %d lines were sent, want that the first error ends it", dropped, n)
		}
	}
}
