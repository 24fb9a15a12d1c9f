package edge

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
)

// resetWhenAborted resets the connection of a request when the handler of the request is aborted. A
// handler is aborted when the sandbox is killed or paused, or when a connection breaks.
// resetWhenAborted must be deferred. On an HTTP/2 connection, only the request's stream is reset. Without the reset,
// an HTTP/1.1 connection would be closed in the middle of the answer, and clients would mistake
// that for their own timeout or for the end of a complete answer.
func resetWhenAborted(w http.ResponseWriter, r *http.Request) {
	reason := recover()
	if reason == nil {
		return
	}
	if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) && r.ProtoMajor == 1 {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			reset(conn)
		}
	}
	panic(reason)
}

// reset closes a connection so that the client sees an error and not an end of the stream.
func reset(conn net.Conn) {
	inner := conn
	if secured, ok := conn.(*tls.Conn); ok {
		inner = secured.NetConn()
	}
	if c, ok := inner.(interface{ SetLinger(seconds int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = inner.Close()
}
