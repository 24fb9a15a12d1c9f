package link

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Access is the access of one sandbox to the network. One [engine.Egress] is in force at a time. When
// another Egress replaces it, or access is suspended, the connections made through the first Egress
// are cut. Access is safe for concurrent use.
type Access struct {
	life    context.Context //nolint:containedctx // it ends with the sandbox, not with a call
	changed func(open bool)

	mu        sync.Mutex
	egress    engine.Egress
	suspended bool
	grant     Grant
}

// Grant is one setting of a sandbox's access to the network. The setting is in force until the
// field Context ends.
type Grant struct {
	// Context ends when the setting is no longer in force. Connections made under the grant end
	// with it.
	Context context.Context //nolint:containedctx // it is the grant's time, not that of a call
	egress  engine.Egress
	end     context.CancelFunc
}

// NewAccess returns an access through e until life ends. If e is nil, the sandbox has no access.
func NewAccess(life context.Context, e engine.Egress) *Access {
	a := &Access{life: life, egress: e}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renew()
	return a
}

// OnChange calls changed at once and after each later change, one call at a time. The argument open
// is false if every connection is refused, and true if some connections may be permitted.
func (a *Access) OnChange(changed func(open bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = changed
	a.notify()
}

// renew replaces the grant. a.mu is held.
func (a *Access) renew() {
	if a.grant.end != nil {
		a.grant.end()
	}
	ctx, end := context.WithCancel(a.life)
	if a.suspended {
		end()
	}
	a.grant = Grant{ctx, a.egress, end}
	a.notify()
}

// notify calls the function that was passed to OnChange. a.mu is held.
func (a *Access) notify() {
	if a.changed != nil {
		a.changed(!a.suspended && a.egress != nil && !a.egress.Closed())
	}
}

// SetEgress puts e in force; nil means no access. It cuts the connections of the previous setting.
func (a *Access) SetEgress(e engine.Egress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.egress = e
	a.renew()
}

// Suspend cuts the sandbox's connections and refuses new ones until Restore.
func (a *Access) Suspend() { a.suspend(true) }

// Restore allows connections again after Suspend.
func (a *Access) Restore() { a.suspend(false) }

func (a *Access) suspend(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.suspended != on {
		a.suspended = on
		a.renew()
	}
}

// Grant returns the grant in force.
func (a *Access) Grant() Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grant
}

// Egress returns the egress that is in force, or [ErrInternetOff].
func (g Grant) Egress() (engine.Egress, error) {
	if g.egress == nil {
		return nil, ErrInternetOff
	}
	return g.egress, nil
}

// Dial connects to a host through the egress in force. Errors include [ErrInternetOff].
func (g Grant) Dial(host string, port uint16) (net.Conn, error) {
	egress, err := g.Egress()
	if err != nil {
		return nil, err
	}
	return egress.Dial(g.Context, host, port)
}

// Join is like the function [Join], but also closes both connections when the grant ends.
func (g Grant) Join(outside, inside net.Conn) {
	stop := g.Ends(outside)
	defer stop()
	Join(inside, outside) // the end of one ends the other
}

// Ends closes conn when the grant ends. A call of stop before the end of the grant prevents this.
func (g Grant) Ends(conn net.Conn) (stop func() bool) {
	return context.AfterFunc(g.Context, func() { _ = conn.Close() })
}

// ErrInternetOff means that the sandbox has no access to the network. It is a denial: see
// [IsDenied].
var ErrInternetOff error = offError{}

type offError struct{}

func (offError) Error() string { return "internet access is off for this sandbox" }

func (offError) Denied() bool { return true }

// IsDenied reports whether err means that a connection is not permitted. The program in the sandbox
// then receives a denial and not an error of the network.
func IsDenied(err error) bool {
	var denied interface{ Denied() bool }
	return errors.As(err, &denied) && denied.Denied()
}
