//go:build linux

package zmq

import (
	"bytes"
	"encoding/json"
	"net"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// fed is a connection that returns data to readers and discards writes.
type fed struct {
	net.Conn
	*bytes.Reader
}

func (f fed) Read(b []byte) (int, error)  { return f.Reader.Read(b) }
func (f fed) Write(b []byte) (int, error) { return len(b), nil }

// No bytes of a kernel cause a panic, or use more memory than their own length.
func FuzzZMTP(f *testing.F) {
	ready := append([]byte{zmtpCommand, 6}, "\x05READY"...)
	f.Add(append(bytes.Clone(ready), 0, 1, 'x'))
	f.Add(append(bytes.Clone(ready), zmtpLong|zmtpMore, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	f.Add(append(bytes.Clone(ready), zmtpLong, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 'x'))
	f.Add(append(bytes.Clone(ready), zmtpMore, 0, zmtpMore, 0, zmtpCommand, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		z, err := openZMTP(fed{Reader: bytes.NewReader(append(bytes.Clone(greeting), data...))}, "SUB", "me")
		if err != nil {
			return
		}
		total := 0
		for {
			parts, err := z.readMessage()
			if err != nil {
				return
			}
			for _, part := range parts {
				total += len(part)
			}
			if total > len(data) {
				t.Fatalf("%d bytes out of %d", total, len(data))
			}
		}
	})
}

func FuzzJupyterMessage(f *testing.F) {
	l := &Link{key: []byte("key")}
	f.Add([]byte(`{"msg_id":"1"}`), []byte(`{}`), []byte(`{"a":1}`), true)
	f.Add([]byte(`{`), []byte(``), []byte(`[]`), true)
	f.Add([]byte(`{}`), []byte(`{}`), []byte(`{}`), false)
	f.Fuzz(func(t *testing.T, header, parent, content []byte, sign bool) {
		signed := [][]byte{header, parent, []byte("{}"), content}
		signature := []byte("0")
		if sign {
			signature = l.sign(signed)
		}
		m, err := l.open(append([][]byte{[]byte("topic"), []byte(delimiter), signature}, signed...))
		if err == nil && (!sign || !json.Valid(m.Content)) {
			t.Errorf("%q was taken", content)
		}
		if err == nil {
			if _, err := jupyter.MarshalV1(m); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestZMTPSpeaksToItself(t *testing.T) {
	t.Parallel()
	ours, theirs, err := child.SocketPair()
	must.Do(t, err)
	defer ours.Close()
	conn, err := net.FileConn(theirs)
	theirs.Close()
	must.Do(t, err)
	defer conn.Close()
	opened := make(chan *zmtp, 1)
	go func() {
		z, err := openZMTP(conn, "ROUTER", "")
		if err != nil {
			t.Error(err)
		}
		opened <- z
	}()
	x, err := openZMTP(ours, "DEALER", "me")
	y := <-opened
	if err != nil || y == nil {
		t.Fatalf("got %v, want a socket and no error", err)
	}
	sent := [][]byte{{}, bytes.Repeat([]byte("a"), 255), bytes.Repeat([]byte("b"), 256), bytes.Repeat([]byte("c"), 1<<20)}
	go func() { _ = x.writeMessage(sent...) }()
	got, err := y.readMessage()
	if err != nil || len(got) != len(sent) {
		t.Fatalf("got %d parts, %v, want %d and no error", len(got), err, len(sent))
	}
	for i := range sent {
		if !bytes.Equal(got[i], sent[i]) {
			t.Errorf("part %d differs", i)
		}
	}
}
