package edge

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
)

// resetWhenAborted resets the connection of a request when its handler is aborted, because
// the sandbox was killed or paused, or its connection broke. It must be deferred. HTTP/2 has
// a reset for a stream. An HTTP/1.1 connection would be closed in the middle of the answer,
// which clients take for a timeout of their own, or for a complete answer.
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

// reset closes a connection so that its other end sees an error, not an end.
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
