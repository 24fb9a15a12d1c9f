package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// maxRequests bounds the requests in flight to one sandbox, including upgraded
// connections.
const maxRequests = 1000

// Errors that a [Sandbox]'s Dial returns.
var (
	ErrPortClosed = errors.New("edge: nothing listens on the port")
	ErrGone       = errors.New("edge: the sandbox is gone")
	ErrTooMany    = errors.New("edge: too many connections to the sandbox")
)

// Errors that [Options].Wake returns.
var (
	ErrAsleep = errors.New("edge: traffic does not resume this sandbox") // 502, as if it did not exist
	ErrBusy   = errors.New("edge: the sandbox is changing its state")    // 409
	ErrLimit  = errors.New("edge: too many sandboxes")                   // 429
)

// A Sandbox is a sandbox that requests can be forwarded to.
type Sandbox struct {
	ID           string
	AccessToken  string // envd's token, which also signs file URLs; "" if it has none
	TrafficToken string // required on all ports except envd's; "" if they are public
	MaskHost     string // Host header that services on those ports see, with ${PORT} replaced; "": the original

	// HTTPSPorts are the ports whose servers speak TLS. Their certificates are not
	// verified, because the connection never leaves the machine.
	HTTPSPorts []int

	// Dial opens a connection to a port. Its errors are (by errors.Is) ErrPortClosed,
	// ErrGone, ErrTooMany, or something that may be temporary.
	Dial func(ctx context.Context, port int) (net.Conn, error)
}

// upstream is a sandbox with its connections.
type upstream struct {
	Sandbox
	inFlight atomic.Int64
	gone     chan struct{}   // closed when the sandbox is removed
	own      *http.Transport // to the service's own servers
	user     *http.Transport // to the user's
	user2    *http.Transport // to the user's servers that speak only HTTP/2
	pauses   []time.Duration
}

// idleTimeout is shorter than the time after which the servers inside close an idle
// connection themselves.
const idleTimeout = 90 * time.Second

func newUpstream(sb Sandbox, pauses []time.Duration) *upstream {
	u := &upstream{Sandbox: sb, gone: make(chan struct{}), pauses: pauses}
	transport := func(idle int) *http.Transport {
		return &http.Transport{
			DialContext: u.dial,
			// The client chose its encoding; what the service answers is forwarded
			// unchanged.
			DisableCompression:     true,
			MaxIdleConnsPerHost:    idle,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeader,
			// The server inside decides whether a client that asks should send a body; if
			// it does not answer that, the body is sent after this time.
			ExpectContinueTimeout: time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
			WriteBufferSize:       bufferSize,
			ReadBufferSize:        bufferSize,
		}
	}
	u.own = transport(32)
	// Connections to the user's servers are not kept: if the server closed an idle
	// connection at the moment it is used again, a request that cannot be repeated would
	// fail, and opening a connection takes only microseconds.
	u.user = transport(-1)
	u.user2 = transport(-1)
	u.user2.DisableKeepAlives = true
	u.user2.Protocols = new(http.Protocols)
	u.user2.Protocols.SetHTTP2(true)
	u.user2.Protocols.SetUnencryptedHTTP2(true)
	return u
}

// dial connects to the port in address, which [Router] put there. Like the hosted
// service, it waits up to a second for a server that is about to listen.
func (u *upstream) dial(ctx context.Context, _, address string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	if port < 1 || port > math.MaxUint16 {
		return nil, ErrPortClosed
	}
	for i := 0; ; i++ {
		conn, err := u.Dial(ctx, port)
		if err == nil || i == len(u.pauses) || !errors.Is(err, ErrPortClosed) {
			return conn, err
		}
		pause := time.NewTimer(u.pauses[i])
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-u.gone:
			pause.Stop()
			return nil, ErrGone
		}
	}
}

// isGone reports whether the sandbox was removed.
func (u *upstream) isGone() bool {
	select {
	case <-u.gone:
		return true
	default:
		return false
	}
}

// close marks the sandbox as gone and closes its idle connections. It must be called
// once.
func (u *upstream) close() {
	close(u.gone)
	u.own.CloseIdleConnections()
	u.user.CloseIdleConnections()
	u.user2.CloseIdleConnections()
}
