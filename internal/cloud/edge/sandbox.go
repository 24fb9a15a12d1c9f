package edge

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Errors of [Sandbox].Dial.
var (
	ErrPortClosed   = errors.New("edge: nothing listens on the port")
	ErrWithoutPorts = errors.New("edge: the sandbox has no ports of programs")
	ErrGone         = errors.New("edge: the sandbox is gone")
	ErrTooMany      = errors.New("edge: too many connections to the sandbox")
)

// Errors of [Options].Wake, with the status of the answer.
var (
	ErrAsleep = errors.New("edge: traffic does not resume this sandbox") // 502, as if the sandbox did not exist
	ErrBusy   = errors.New("edge: the sandbox is changing its state")    // 409
	ErrLimit  = errors.New("edge: too many sandboxes")                   // 429
)

// A Sandbox is a sandbox to which requests can be forwarded.
type Sandbox struct {
	ID           string
	AccessToken  string // token of envd; it also signs file URLs; "": the sandbox has no token
	TrafficToken string // required for all ports except envd's; "": these ports are public
	// PublicPorts means that TrafficToken is required only for the ports of the interpreter. On
	// these ports, the access token is accepted in place of TrafficToken.
	PublicPorts bool
	MaskHost    string // Host header for servers on all ports except envd's, after replacing ${PORT}; "": unchanged

	// HTTPSPorts lists the ports whose servers speak TLS. Their certificates are not verified,
	// because the connection never leaves the machine.
	HTTPSPorts []int

	// Use is called at each use of the sandbox: when a request begins or ends, and with each piece of its
	// bytes. It must be quick. nil: uses are not noted.
	Use func()

	// Dial opens a connection to a port. Its errors are (by errors.Is) ErrPortClosed,
	// ErrWithoutPorts, ErrGone, ErrTooMany, or an error that may be temporary.
	Dial func(ctx context.Context, port int) (net.Conn, error)
}

// upstream is a sandbox with its connections.
type upstream struct {
	Sandbox
	admissions [classes]admission
	slow       slowness
	gone       context.Context //nolint:containedctx // it ends when the sandbox is removed, and is no call's
	remove     context.CancelFunc
	pauses     []time.Duration

	mu    sync.Mutex
	awake *spell // nil while the sandbox is paused
}

func newUpstream(sb Sandbox, pauses []time.Duration) *upstream {
	u := newSleeper(sb, pauses)
	u.awake = u.newSpell()
	return u
}

// newSleeper returns a paused sandbox.
func newSleeper(sb Sandbox, pauses []time.Duration) *upstream {
	u := &upstream{Sandbox: sb, pauses: pauses}
	u.gone, u.remove = context.WithCancel(context.Background())
	return u
}

// ends reports whether the sandbox has ended or is about to end. A broken connection is the
// first sign of an end, so ends calls Dial, which waits until the end is known.
func (u *upstream) ends(ctx context.Context) bool {
	conn, err := u.Dial(ctx, protocol.PortEnvd)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, ErrGone)
}

// isGone reports whether the sandbox was removed.
func (u *upstream) isGone() bool { return u.gone.Err() != nil }

// spell returns the current spell, or nil while the sandbox is paused.
func (u *upstream) spell() *spell {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.awake
}

// pause ends the current spell.
func (u *upstream) pause() {
	u.mu.Lock()
	spell := u.awake
	u.awake = nil
	u.mu.Unlock()
	if spell != nil {
		spell.end()
	}
}

// resume begins a spell, unless one has already begun.
func (u *upstream) resume() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.awake == nil {
		u.awake = u.newSpell()
	}
}

// close marks the sandbox as gone and closes its connections. It must be called only once.
func (u *upstream) close() {
	u.remove()
	if spell := u.spell(); spell != nil {
		spell.close()
	}
}
