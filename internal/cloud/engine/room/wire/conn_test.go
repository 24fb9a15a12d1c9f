//go:build linux

package wire

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestSizes checks messages and texts of errors of the longest size, and of one byte more.
func TestSizes(t *testing.T) {
	t.Parallel()
	a, b := pairOfConns(t)
	for _, n := range []int{MaxErrorText - 1, MaxErrorText, MaxErrorText + 1} {
		must.Do(t, a.Send(Message{Kind: KindFailed, Error: strings.Repeat("x", n)}))
		m, _, err := b.Receive(0)
		must.Do(t, err)
		if want := min(n, MaxErrorText); len(m.Error) != want {
			t.Errorf("error of %d bytes: got %d, want %d", n, len(m.Error), want)
		}
	}
	empty := len(Encode(Message{Kind: KindLog, Host: "x"})) - 1
	longest := Message{Kind: KindLog, Host: strings.Repeat("x", MaxMessage-empty)}
	must.Do(t, a.Send(longest))
	if m, _, err := b.Receive(0); err != nil || m.Host != longest.Host {
		t.Errorf("longest message: got %d bytes and %v, want %d", len(m.Host), err, len(longest.Host))
	}
	longest.Host += "x"
	if err := a.Send(longest); err == nil || !strings.Contains(err.Error(), "65537 bytes is over 65536") {
		t.Errorf("message that is too long: got %v, want an error with both sizes", err)
	}
	if err := a.Send(Message{Spec: json.RawMessage("{")}); err == nil {
		t.Error("a message that is no JSON was sent")
	}
}

// TestReceiveRefuses checks what the receiver refuses, with the reason, and that no file of a refused
// message stays open. The peer may be hostile.
func TestReceiveRefuses(t *testing.T) {
	t.Parallel()
	const limit = 2
	for _, tt := range []struct {
		name, data  string
		files, take int
		want        string // "" if the message is received
	}{
		{"all that fits", `{"kind":"go","files":["a","b"]}`, 2, limit, ""},
		{"no file where none may come", `{"kind":"go"}`, 0, 0, ""},
		{"a file without a name, where none may come", `{"kind":"go"}`, 1, 0, ""},
		{"a name where no file may come", `{"kind":"go","files":["a"]}`, 1, 0, "0 descriptors came with the names of 1"},
		{"no JSON", `{"kind":`, 2, limit, "unexpected end of JSON"},
		{"nothing", ` `, 0, limit, "unexpected end of JSON"},
		{"a message that is too long, with files", `{"kind":"go","files":["a"]}` + strings.Repeat(" ", 64), 1, limit, "message is over 64 bytes"},
		{"too many files", `{"kind":"go","files":["a","b","c","d","e"]}`, 5, limit, "descriptors were lost"},
		{"a long message with too many files", `{"kind":"go"}` + strings.Repeat(" ", 64), 5, limit, "message is over 64 bytes"},
	} {
		a, file, err := Pair(MaxMessage)
		must.Do(t, err)
		b, err := NewConn(file, 64)
		must.Do(t, err)
		var fds []int
		var closed []func() bool
		var sent Files
		for i := range tt.files {
			w, isClosed := writing(t)
			sent.Add(FileTree.Numbered(i), w)
			fds, closed = append(fds, int(w.Fd())), append(closed, isClosed)
		}
		_, _, err = a.conn.WriteMsgUnix([]byte(tt.data), unix.UnixRights(fds...), nil)
		must.Do(t, err)
		sent.Close()
		m, got, err := b.Receive(tt.take)
		switch {
		case tt.want == "" && (err != nil || m.Kind != KindGo || got.Len() != len(m.Files)):
			t.Errorf("%s: got %+v with %d files, %v, want it to be received", tt.name, m, got.Len(), err)
		case tt.want != "" && (!errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %v, want ErrProtocol with %q", tt.name, err, tt.want)
		}
		got.Close()
		for i, isClosed := range closed {
			if !isClosed() {
				t.Errorf("%s: file %d is open", tt.name, i)
			}
		}
		a.Close()
		b.Close()
	}
}

// TestParseRights checks that control messages without descriptors give no files, and that a forged one
// is an error.
func TestParseRights(t *testing.T) {
	t.Parallel()
	credentials := unix.UnixCredentials(&unix.Ucred{Pid: 1})
	for name, oob := range map[string][]byte{"none": nil, "credentials": credentials} {
		if files, err := parseRights(oob); len(files) != 0 || err != nil {
			t.Errorf("%s: got %v, %v, want nothing", name, files, err)
		}
	}
	if files, err := parseRights(credentials[:len(credentials)-8]); len(files) != 0 || err == nil {
		t.Errorf("half a message: got %v, %v, want an error", files, err)
	}
}

// TestExpect checks each answer to a wait for one kind of message. The files of an answer that was not
// wanted are closed.
func TestExpect(t *testing.T) {
	t.Parallel()
	is := func(target error, text string) func(error) bool {
		return func(err error) bool {
			return err != nil && (target == nil || errors.Is(err, target)) && strings.Contains(err.Error(), text)
		}
	}
	for _, tt := range []struct {
		name string
		want Kind
		sent Message
		err  func(error) bool // nil if it is none
	}{
		{"the kind", KindReady, Message{Kind: KindReady}, nil},
		{"the kind, where the version has no meaning", KindReady, Message{Kind: KindReady, Protocol: hello.Version + 1}, nil},
		{"a hello", KindHello, Message{Kind: KindHello, Protocol: hello.Version}, nil},
		{"a hello of another version", KindHello, Message{Kind: KindHello, Protocol: hello.Version + 1}, is(nil, "local.WithBinary(path)")},
		{"another kind", KindReady, Message{Kind: KindGo}, is(ErrProtocol, `"go" came instead of "ready"`)},
		{"a failure", KindReady, Message{Kind: KindFailed, Error: "no such disk"}, func(err error) bool { return err != nil && err.Error() == "no such disk" }},
	} {
		a, b := pairOfConns(t)
		w, isClosed := writing(t)
		files := &Files{}
		files.Add(FileTar, w)
		must.Do(t, a.SendFiles(tt.sent, files))
		files.Close()
		m, got, err := b.Expect(tt.want, 1)
		if tt.err == nil {
			if err != nil || m.Kind != tt.want || got.Len() != 1 || isClosed() {
				t.Errorf("%s: got %+v with %d files, %v, want it with its file", tt.name, m, got.Len(), err)
			}
			got.Close()
			continue
		}
		if !tt.err(err) || m.Kind != "" || got != nil {
			t.Errorf("%s: got %+v, %v, %v", tt.name, m, got, err)
		}
		if !isClosed() {
			t.Errorf("%s: the file is open", tt.name)
		}
	}
}

// TestPeerEnds checks what is received after the other end has ended: in order, after End, or with a
// message that it has not read.
func TestPeerEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(a, b *Conn){
		"closed": func(a, _ *Conn) { a.Close() },
		"no more messages": func(a, b *Conn) {
			a.End()
			must.Do(t, b.Send(Message{Kind: KindGo})) // it still receives
			_, _, err := a.Expect(KindGo, 0)
			must.Do(t, err)
		},
		"with an unread message": func(a, b *Conn) {
			must.Do(t, b.Send(Message{Kind: KindGo}))
			a.Close()
		},
	} {
		for wait, f := range map[string]func(*Conn) (as, want error){
			"Expect":   func(c *Conn) (as, want error) { _, _, err := c.Expect(KindReady, 0); return err, ErrPeerEnded },
			"AwaitEnd": func(c *Conn) (as, want error) { return c.AwaitEnd(t.Context()), nil },
		} {
			a, b := pairOfConns(t)
			end(a, b)
			if got, want := f(b); !errors.Is(got, want) {
				t.Errorf("%s: %s: got %v, want %v", name, wait, got, want)
			}
		}
	}
	a, b := pairOfConns(t)
	b.Close()
	if _, _, err := b.Expect(KindReady, 0); err == nil || errors.Is(err, ErrPeerEnded) {
		t.Errorf("its own end is closed: got %v, want another error than that of the peer's end", err)
	}
	if err := a.Send(Message{Kind: KindGo}); err == nil {
		t.Error("sent to nobody without an error")
	}
}

// TestSendIsBounded checks that a peer that does not read holds up no sender for ever, and that a later
// send has a time of its own.
func TestSendIsBounded(t *testing.T) {
	t.Parallel()
	a, b := pairOfConns(t)
	refused := make(chan error, 1)
	go func() {
		for {
			if err := a.SendWithin(time.Millisecond, Message{Kind: KindGo}, nil); err != nil {
				refused <- err
				return
			}
		}
	}()
	must.Is(t, patience.Receive(t, "the end of the send", refused), os.ErrDeadlineExceeded)
	b.Close()
	if err := a.Send(Message{Kind: KindGo}); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the peer's end: got %v, want an error that says so", err)
	}
}

// TestForeignSocket checks that only a Unix socket becomes a connection, and that nothing of another file
// stays open. It is not parallel, because it counts the descriptors of the process.
func TestForeignSocket(t *testing.T) { //nolint:paralleltest // see above
	w, isClosed := writing(t)
	if _, err := NewConn(w, MaxMessage); err == nil || !isClosed() {
		t.Errorf("a pipe: got %v, want an error and the pipe closed", err)
	}
	before := descriptors(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	if _, err := NewConn(os.NewFile(uintptr(fd), "internet"), MaxMessage); err == nil || err.Error() != "not a unix socket" {
		t.Errorf("a socket of the internet: got %v, want an error that it is no Unix socket", err)
	}
	if got := descriptors(t); got != before {
		t.Errorf("a socket of the internet: got %d descriptors, want %d", got, before)
	}
}

// TestStreamPair checks that both ends are connected, and that they are closed for a program that is
// executed.
func TestStreamPair(t *testing.T) {
	t.Parallel()
	ours, theirs, err := StreamPair()
	must.Do(t, err)
	defer ours.Close()
	if flags, err := unix.FcntlInt(theirs.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("got flags %#x, %v, want close-on-exec", flags, err)
	}
	_, err = theirs.WriteString("text")
	must.Do(t, errors.Join(err, theirs.Close()))
	if got, err := io.ReadAll(ours); string(got) != "text" || err != nil {
		t.Errorf("got %q, %v, want the text", got, err)
	}
}
