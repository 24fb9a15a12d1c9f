package edge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"path"
	"strings"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// noted notes a use of the sandbox. It returns r with a body that notes a use for each piece, and the
// function use, which the caller must call at the end of the request. If the sandbox has no Use, or the
// request is not a use, noted returns r unchanged and a nil function. These requests are not uses:
// requests for the health of envd and the interpreter, requests for envd's metrics, CORS preflight
// requests, and requests to envd without its token.
func (u *upstream) noted(r *http.Request, port int) (noted *http.Request, use func()) {
	if u.Use == nil || isPreflight(r) || !u.isUse(r, port) {
		return r, nil
	}
	u.Use()
	if r.Body != nil && r.Body != http.NoBody {
		shallow := *r
		shallow.Body = &notedBody{r.Body, u.Use}
		r = &shallow
	}
	return r, u.Use
}

func (u *upstream) isUse(r *http.Request, port int) bool {
	if !protocol.OwnPort(port) {
		return true
	}
	if at := path.Clean(r.URL.Path); at == healthPath || port == protocol.PortEnvd && at == metricsPath {
		return false
	}
	return port != protocol.PortEnvd || u.authorized(r)
}

const metricsPath = "/metrics"

// notedBody is a body that notes a use of the sandbox for each piece, except for keepalive messages.
type notedBody struct {
	io.ReadCloser
	use func()
}

func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !isKeepalive(p[:n]) {
		b.use()
	}
	return n, err
}

// Keepalive messages of envd's streams, in Protocol Buffers and with their envelopes. processKeepalive is
// for the stream of a process. otherKeepalive is for the streams of a watched directory and of input. In
// JSON, a keepalive message has the field keepalive, and may contain white space. maxKeepalive bounds
// the bytes of a keepalive message.
const (
	processKeepalive = "\x00\x00\x00\x00\x04\x0a\x02\x22\x00"
	otherKeepalive   = "\x00\x00\x00\x00\x02\x1a\x00"
	maxKeepalive     = 64
)

// isKeepalive reports whether a piece of a stream is one keepalive message. Envd sends each as one piece.
func isKeepalive(p []byte) bool {
	switch {
	case len(p) > maxKeepalive || len(p) == 0 || p[0] != 0:
		return false
	case string(p) == processKeepalive, string(p) == otherKeepalive:
		return true
	}
	return bytes.Contains(p, []byte(`"keepalive"`))
}

// noteAnswer makes the body of an answer note a use of the sandbox for each piece. After an answer with
// status 101, notedConn notes the uses.
func (t *target) noteAnswer(res *http.Response) {
	if t.use != nil && res.StatusCode != http.StatusSwitchingProtocols && res.Body != http.NoBody {
		res.Body = &notedBody{res.Body, t.use}
	}
}

// notedConn is the client's half of an upgraded connection. It notes a use of the sandbox for each piece
// in both directions. The pings, pongs and close frames of a websocket are not uses.
type notedConn struct {
	net.Conn
	use     func()
	in, out *frames // nil: the connection is not a websocket
}

func (t *target) noteConn(conn net.Conn, r http.Header) net.Conn {
	if t.use == nil {
		return conn
	}
	c := &notedConn{Conn: conn, use: t.use}
	if strings.EqualFold(r.Get("Upgrade"), "websocket") {
		c.in, c.out = new(frames), new(frames)
	}
	return c
}

func (c *notedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.in.carry(p[:n]) {
		c.use()
	}
	return n, err
}

func (c *notedConn) Write(p []byte) (int, error) {
	if len(p) > 0 && c.out.carry(p) {
		c.use()
	}
	return c.Conn.Write(p)
}

// CloseWrite closes the sending half of the connection.
func (c *notedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// frames follows the frames of one direction of a websocket (RFC 6455, section 5.2).
type frames struct {
	head    [14]byte // header of the current frame, as far as it has arrived
	have    int      // number of bytes in head
	left    uint64   // bytes of the payload that are still to come
	control bool     // the frame is a ping, a pong or a close
}

// carry reports whether a piece contains bytes of a message. If f is nil, the connection is not a
// websocket, and carry returns true.
func (f *frames) carry(p []byte) (message bool) {
	if f == nil {
		return true
	}
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, uint64(len(p)))
			f.left -= n
			p = p[n:]
			message = message || !f.control
			continue
		}
		f.head[f.have] = p[0]
		f.have++
		p = p[1:]
		f.control = f.head[0]&0x8 != 0
		message = message || !f.control
		if f.have >= 2 && f.have == f.headLength() {
			f.left, f.have = f.length(), 0
		}
	}
	return message
}

// headLength returns the length of the header, which its second byte determines.
func (f *frames) headLength() int {
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 {
		n += 4 // the mask
	}
	return n
}

// length returns the length of the payload.
func (f *frames) length() uint64 {
	switch n := f.head[1] & 0x7f; n {
	case 126:
		return uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		return binary.BigEndian.Uint64(f.head[2:])
	default:
		return uint64(n)
	}
}
