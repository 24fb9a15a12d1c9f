package jupyter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	pingInterval = 15 * time.Second
	// silence bounds the time for which a peer may leave pings unanswered while Receive waits.
	silence = 45 * time.Second
	// writeTimeout bounds one write. A peer that accepts nothing for this time counts as lost.
	writeTimeout = time.Minute
	// MaxMessage is the largest size of a message from the peer.
	MaxMessage = 128 << 20
)

// Conn is the client's end of a kernel's websocket. Send and Close are safe for
// concurrent use; Receive must be called from one goroutine. Close must be called.
type Conn struct {
	socket *websocket.Conn
	v1     bool

	writing sync.Mutex
	close   func() error
	done    chan struct{}
	pinging sync.WaitGroup

	// Only Receive uses the fields below.
	failed error // the first error of reading
	buffer bytes.Buffer
}

// DialError reports that the server refused to open a websocket.
type DialError struct {
	// StatusCode and Header are the status and the header of the answer. Body is the beginning of
	// the answer's body.
	StatusCode int
	Header     http.Header
	Body       []byte
}

func (e *DialError) Error() string {
	return fmt.Sprintf("jupyter: open the kernel's websocket: %d %s", e.StatusCode, http.StatusText(e.StatusCode))
}

// ErrTooBig means that the peer does not accept messages of this size.
var ErrTooBig = errors.New("jupyter: the peer ended the connection over a message that is too big")

// Dial opens a websocket at url ("ws://host/api/kernels/{id}/channels"). ctx bounds only the
// dialling. If the server answers but does not open a websocket, the error is a [*DialError].
func Dial(ctx context.Context, dialer *websocket.Dialer, url string, header http.Header) (*Conn, error) {
	d := *dialer
	d.Subprotocols = []string{SubprotocolV1}
	socket, response, err := d.DialContext(ctx, url, header)
	if errors.Is(err, websocket.ErrBadHandshake) && response != nil {
		body, _ := io.ReadAll(response.Body) // at most 1 KiB, which gorilla has read already
		_ = response.Body.Close()
		return nil, &DialError{StatusCode: response.StatusCode, Header: response.Header, Body: body}
	}
	if err != nil {
		return nil, fmt.Errorf("jupyter: open the kernel's websocket: %w", OrDeadline(ctx, err))
	}
	c := &Conn{socket: socket, v1: socket.Subprotocol() == SubprotocolV1, done: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		close(c.done)
		// Best effort: the peer may be gone.
		_ = socket.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
		err := socket.Close()
		c.pinging.Wait()
		return err
	})
	socket.SetReadLimit(MaxMessage)
	socket.SetPongHandler(func(string) error { return socket.SetReadDeadline(time.Now().Add(silence)) })
	c.pinging.Go(c.ping)
	return c, nil
}

// OrDeadline returns err, an error of dialling. If err is a timeout and the deadline of ctx has
// passed, OrDeadline returns the error of ctx instead. This is necessary because the connection has
// the same deadline as ctx, and times out a moment before ctx ends.
func OrDeadline(ctx context.Context, err error) error {
	deadline, limited := ctx.Deadline()
	// Connecting and reading time out with errors of different types.
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() || !limited || time.Now().Before(deadline) {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// ping sends pings, so that proxies do not cut a silent connection, and so that the loss of the
// peer is detected.
func (c *Conn) ping() {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-ticker.C:
			if c.socket.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return // Receive will notice
			}
		}
	}
}

// Send sends a message. After an error the connection can no longer be used.
func (c *Conn) Send(m *Message) error {
	kind, frame := websocket.BinaryMessage, []byte(nil)
	var err error
	if c.v1 {
		frame, err = MarshalV1(m)
	} else {
		var isBinary bool
		frame, isBinary, err = Marshal(m)
		if !isBinary {
			kind = websocket.TextMessage
		}
	}
	if err != nil {
		return fmt.Errorf("jupyter: encode %s: %w", m.Header.MsgType, err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.socket.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := c.socket.WriteMessage(kind, frame); err != nil {
		return fmt.Errorf("jupyter: send %s: %w", m.Header.MsgType, err)
	}
	return nil
}

// Receive waits for the next message. After an error, later calls return the same error. Close ends
// a waiting Receive.
func (c *Conn) Receive() (*Message, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	kind, frame, err := c.receive()
	if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Code == websocket.CloseMessageTooBig {
		err = fmt.Errorf("%w: %w", ErrTooBig, err)
	}
	if err != nil {
		c.failed = fmt.Errorf("jupyter: receive: %w", err)
		return nil, c.failed
	}
	var m *Message
	if c.v1 && kind == websocket.BinaryMessage {
		m, err = UnmarshalV1(frame)
	} else {
		m, err = Unmarshal(frame, kind == websocket.BinaryMessage)
	}
	if err != nil {
		c.failed = err
		return nil, err
	}
	return m, nil
}

// keptBuffer is the largest size of a buffer that is kept for the next message.
const keptBuffer = 1 << 20

// receive reads a frame, and returns it in newly allocated memory. It first collects the frame in a
// buffer that it keeps for later frames, because this buffer has already grown to the usual size.
func (c *Conn) receive() (kind int, frame []byte, err error) {
	// If Receive was not called for a while, the pongs have not been seen either.
	_ = c.socket.SetReadDeadline(time.Now().Add(silence))
	kind, r, err := c.socket.NextReader()
	if err != nil {
		return 0, nil, err
	}
	c.buffer.Reset()
	if _, err := c.buffer.ReadFrom(r); err != nil {
		return 0, nil, err
	}
	frame = bytes.Clone(c.buffer.Bytes())
	if c.buffer.Cap() > keptBuffer {
		c.buffer = bytes.Buffer{}
	}
	return kind, frame, nil
}

// Close closes the connection. It is idempotent.
func (c *Conn) Close() error { return c.close() }
