package sshserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/e2bctl/e2bctl/internal/must"
)

// queue is one direction of a connection. It keeps the bytes that were written until they are read.
type queue struct {
	pieces chan []byte
	closed chan struct{}
	rest   []byte
}

func newQueue() *queue { return &queue{pieces: make(chan []byte, 1000), closed: make(chan struct{})} }

func (q *queue) Write(p []byte) (int, error) {
	select {
	case <-q.closed:
		return 0, io.ErrClosedPipe
	default:
		q.pieces <- bytes.Clone(p)
		return len(p), nil
	}
}

func (q *queue) Read(p []byte) (int, error) {
	for len(q.rest) == 0 {
		select {
		case q.rest = <-q.pieces:
		case <-q.closed:
			return 0, io.EOF
		}
	}
	n := copy(p, q.rest)
	q.rest = q.rest[n:]
	return n, nil
}

func (q *queue) Close() error {
	select {
	case <-q.closed:
	default:
		close(q.closed)
	}
	return nil
}

// both closes the two directions of a connection, as a socket does.
type both struct {
	*queue
	other *queue
}

func (b both) Close() error { return errors.Join(b.queue.Close(), b.other.Close()) }

// connectPiped connects a client to a server, in a bubble. served receives the result of the server.
func connectPiped(ctx context.Context, t *testing.T, config Config) (client *ssh.Client, served <-chan error) {
	t.Helper()
	signer, err := readKey(config.Keys.ClientFile)
	must.Do(t, err)
	in, out, end := newQueue(), newQueue(), make(chan error, 1)
	go func() { end <- Serve(ctx, both{in, out}, out, config) }()
	conn, channels, requests, err := ssh.NewClientConn(streams{both{out, in}, in}, "sandbox", &ssh.ClientConfig{
		User: "u", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(config.Keys.Host.PublicKey()),
	})
	must.Do(t, err)
	return ssh.NewClient(conn, channels, requests), end
}

// TestTimesOfHandshakes checks for how long a client may take until it is in, and that it may then stay.
func TestTimesOfHandshakes(t *testing.T) {
	t.Parallel()
	keys, err := OpenKeys(t.TempDir())
	must.Do(t, err)
	for name, tt := range map[string]struct {
		handshake, want time.Duration
	}{"the default": {0, DefaultHandshake}, "another": {time.Hour, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				in, out := newQueue(), newQueue()
				_, err := in.Write([]byte("SSH-2.0-half\r\n"))
				must.Do(t, err)
				began := time.Now()
				err = Serve(t.Context(), in, out, Config{Keys: keys, Handshake: tt.handshake})
				if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "it took more than "+tt.want.String()) || took != tt.want {
					t.Errorf("half a handshake: got %v after %v, want an end after %v", err, took, tt.want)
				}
				if _, err := in.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the connection goes on: got error %v", err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				client, served := connectPiped(ctx, t, Config{Keys: keys, Handshake: tt.handshake})
				<-time.After(2 * tt.want)
				for range 2 * DefaultMaxChannels { // one after the other
					session, err := client.NewSession()
					must.Do(t, err)
					must.Do(t, session.Close())
					synctest.Wait()
				}
				for range DefaultMaxChannels {
					_, err := client.NewSession()
					must.Do(t, err)
				}
				if _, err := client.NewSession(); err == nil || !strings.Contains(err.Error(), "at most 100") {
					t.Errorf("a channel too many: got %v", err)
				}
				cancel()
				must.Is(t, <-served, context.Canceled)
				_ = client.Close()
			})
		})
	}
}

// TestStreamsKeepNoLock checks that each lock is free after each function.
func TestStreamsKeepNoLock(t *testing.T) {
	t.Parallel()
	f := &recorded{data: []byte("text")}
	r, w := f.reader(func() {}), f.writer()
	for name, step := range map[string]func(){
		"ReadAt": func() { _, _ = r.ReadAt(make([]byte, 1), 0) }, "ReadAt of nothing": func() { _, _ = r.ReadAt(make([]byte, 1), -1) },
	} {
		if step(); !r.mu.TryLock() {
			t.Fatalf("%s keeps the lock", name)
		}
		r.mu.Unlock()
	}
	if must.Do(t, r.Close()); !r.mu.TryLock() {
		t.Fatal("Close keeps the lock")
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"WriteAt", func() { _, _ = w.WriteAt([]byte("x"), 0) }}, {"atEnd", func() { w.atEnd(func(context.Context) error { return nil }) }},
		{"flush", func() { must.Do(t, w.flush()) }}, {"close", func() { must.Do(t, w.close(t.Context())) }},
		{"TransferError", func() { w.TransferError(io.EOF) }}, {"WriteAt after it", func() { _, _ = w.WriteAt([]byte("x"), 0) }},
		{"close after it", func() { _ = w.close(t.Context()) }},
	} {
		if step.do(); !w.mu.TryLock() {
			t.Fatalf("%s keeps the lock", step.name)
		}
		w.mu.Unlock()
	}
}

// TestOverlaps checks which writes would change bytes that are kept.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	w := &writer{early: map[int64][]byte{100: make([]byte, 10)}}
	for _, tt := range []struct {
		offset int64
		length int
		want   bool
	}{
		{90, 10, false}, {90, 11, true}, {99, 100, true}, {100, 1, true}, {109, 1, true}, {110, 1, false}, {100, 10, true}, {100, 0, false}, {50, 5, false}, {200, 5, false},
	} {
		if got := w.overlaps(tt.offset, tt.length); got != tt.want {
			t.Errorf("%d bytes at %d: got %v", tt.length, tt.offset, got)
		}
	}
}

// TestKeptBytesOfReads checks how many bytes of a stream are kept, and that a stream which broke is not read again.
func TestKeptBytesOfReads(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{2 * behind: 2 * behind, 2*behind + 1: behind} {
		f := &recorded{data: content(10)}
		r := f.reader(func() {})
		must.Do(t, r.seek(0))
		r.kept, r.next = content(size), int64(size)
		last := r.kept[size-1]
		if r.more(); len(r.kept) != want+10 || r.next != int64(size)+10 || r.kept[want-1] != last || r.kept[want] != f.data[0] {
			t.Errorf("of %d bytes, %d are kept, up to %d; want %d and 10 more", size, len(r.kept), r.next, want)
		}
		must.Do(t, r.Close())
	}
	broken := errors.New("broken")
	f := &recorded{data: []byte("text"), err: broken}
	r := f.reader(func() {})
	_, err := r.ReadAt(make([]byte, 5), 0)
	must.Is(t, err, broken)
	if n, err := r.ReadAt(make([]byte, 4), 0); n != 4 || err != nil || len(f.opened) != 1 {
		t.Errorf("what is kept: got %d bytes and error %v", n, err)
	}
	f.err, r.kept = nil, nil
	if n, err := r.ReadAt(make([]byte, 4), 0); n != 4 || err != nil || len(f.opened) != 2 || f.closed != 1 {
		t.Errorf("from another stream: got %d bytes and error %v, and %d streams are closed", n, err, f.closed)
	}
	must.Do(t, r.Close())
}

// TestEndOfUploads checks that everything that belongs to an upload ends with that.
func TestEndOfUploads(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{nil, errors.New("broken")} {
		var life context.Context
		var read error
		u := newUpload(t.Context(), func(ctx context.Context, r io.Reader) error {
			life = ctx //nolint:fatcontext // to look at it
			_, read = io.ReadAll(r)
			return nil
		})
		must.Do(t, u.end(reason))
		if !errors.Is(read, reason) || (read == nil) != (reason == nil) || life.Err() == nil {
			t.Errorf("the file was read with error %v, want %v; its context has ended: %v", read, reason, life.Err() != nil)
		}
	}
}
