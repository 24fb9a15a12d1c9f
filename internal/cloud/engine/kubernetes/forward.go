package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	gorilla "github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/websocket"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// A port-forward over a websocket has two channels for each port: one for the data of the port, and
// one for the errors of the kubelet. Each message begins with the number of its channel. The first
// message of a channel contains the number of the port, in two bytes. Source: the API server's
// protocol "v4.channel.k8s.io", pkg/kubelet/server/portforward of kubernetes 1.34.
const (
	forwardProtocol = "v4.channel.k8s.io"
	channelData     = 0
	channelErrors   = 1
)

// These are the limits of one forwarded connection.
const (
	maxForwardError = 4 << 10
	maxForwarded    = 1 << 20 // bytes of a message; the kubelet sends at most 32 KiB
	maxWritten      = 32 << 10
	writeTimeout    = time.Minute

	handshakeTimeout = 30 * time.Second // until the API server has connected to the pod
)

// forward connects to a port of the loopback interface of a pod. If nothing listens on the port,
// the connection may be closed soon after forward has returned.
func (e *Engine) forward(ctx context.Context, pod string, port int) (*forwarded, error) {
	wrapped, holder, err := websocket.RoundTripperFor(e.config)
	if err != nil {
		return nil, err
	}
	at, _, err := rest.DefaultServerUrlFor(e.config)
	if err != nil {
		return nil, err
	}
	at = at.JoinPath("api/v1/namespaces", e.options.Namespace, "pods", pod, "portforward")
	at.RawQuery = url.Values{"ports": {strconv.Itoa(port)}}.Encode()
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, fmt.Errorf("the API server did not answer within %v", handshakeTimeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	conn, err := negotiate(wrapped, holder, request)
	if err != nil {
		return nil, fmt.Errorf("forward port %d of pod %s: %w", port, pod, err)
	}
	conn.SetReadLimit(maxForwarded)
	return &forwarded{conn: conn, skip: map[byte]int{channelData: 2, channelErrors: 2}}, nil
}

// negotiate makes the websocket of a request. The library itself only obeys the deadline of the request's
// context, so negotiate does not wait for it when the context is cancelled.
func negotiate(wrapped http.RoundTripper, holder websocket.ConnectionHolder, request *http.Request) (*gorilla.Conn, error) {
	type result struct {
		conn *gorilla.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := websocket.Negotiate(wrapped, holder, request, forwardProtocol)
		done <- result{conn, err}
	}()
	ctx := request.Context()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		go func() { // until the deadline at the latest
			if late := <-done; late.conn != nil {
				_ = late.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// forwarded is a connection to a port of a pod. One goroutine may read, and one may write.
type forwarded struct {
	conn   *gorilla.Conn
	reader io.Reader    // the rest of the current message of channelData
	skip   map[byte]int // by channel, the number of bytes of the port's number that have not arrived yet

	mu   sync.Mutex
	said strings.Builder // the errors of the kubelet
}

// Read reads the data of the pod. If the kubelet reported an error, the error of Read contains it.
func (f *forwarded) Read(p []byte) (int, error) {
	for {
		if f.reader == nil {
			if err := f.next(); err != nil {
				return 0, f.explain(err)
			}
			continue
		}
		n, err := f.reader.Read(p)
		if errors.Is(err, io.EOF) {
			f.reader, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, f.explain(err)
		}
	}
}

// next reads messages until one contains data.
func (f *forwarded) next() error {
	for {
		kind, reader, err := f.conn.NextReader()
		if err != nil {
			return err
		}
		var channel [1]byte
		if _, err := io.ReadFull(reader, channel[:]); kind != gorilla.BinaryMessage || err != nil {
			return errors.New("the API server sent a message without a channel")
		}
		if left := f.skip[channel[0]]; left > 0 {
			n, err := io.ReadFull(reader, make([]byte, left))
			if f.skip[channel[0]] -= n; err != nil {
				continue // a part of the number
			}
		}
		switch channel[0] {
		case channelData:
			f.reader = reader
			return nil
		case channelErrors:
			text, err := io.ReadAll(io.LimitReader(reader, maxForwardError))
			if err != nil {
				return err
			}
			f.hear(string(text))
		default:
			return fmt.Errorf("the API server sent a message of channel %d", channel[0])
		}
	}
}

// hear stores an error of the kubelet for explain.
func (f *forwarded) hear(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said.Len() < maxForwardError {
		f.said.WriteString(text)
	}
}

// explain adds the errors of the kubelet to the error of a connection.
func (f *forwarded) explain(err error) error {
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if said := strings.TrimSpace(f.said.String()); said != "" {
		return fmt.Errorf("%w; the kubelet said: %s", err, clip.Text(said, maxForwardError))
	}
	if gorilla.IsCloseError(err, gorilla.CloseNormalClosure) {
		return io.EOF
	}
	return err
}

// Write writes data to the pod.
func (f *forwarded) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		piece := p[:min(len(p), maxWritten)]
		if err := f.send(piece); err != nil {
			return written, f.explain(err)
		}
		written += len(piece)
		p = p[len(piece):]
	}
	return written, nil
}

func (f *forwarded) send(piece []byte) error {
	_ = f.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only where writing does
	w, err := f.conn.NextWriter(gorilla.BinaryMessage)
	if err != nil {
		return err
	}
	_, err = w.Write([]byte{channelData})
	if err == nil {
		_, err = w.Write(piece)
	}
	return errors.Join(err, w.Close())
}

// Close closes the connection.
func (f *forwarded) Close() error { return f.conn.Close() }
