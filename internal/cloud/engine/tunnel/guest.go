package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/yamux"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// Guest is the end of the tunnel inside a sandbox. It is safe for concurrent use, but only
// one goroutine may accept.
type Guest struct {
	Hello   Hello
	session *yamux.Session
	lane    *lane
	control *Conn
}

// Join waits for the server's hello. If another server has taken over, Join waits for the hello of
// that server; see [Guest.Superseded].
func (l *Link) Join() (*Guest, error) {
	lane := l.wire.lane()
	lane.guest = true
	session, err := yamux.Server(lane, config())
	if err != nil {
		return nil, err
	}
	stream, err := session.AcceptStream()
	if err != nil {
		return nil, err
	}
	g := &Guest{session: session, lane: lane, control: newConn(stream)}
	if err := receive(g.control, maxHello, &g.Hello); err != nil {
		return nil, err
	}
	if g.Hello.Version != Version {
		err := fmt.Errorf("the program in the sandbox speaks version %d of the tunnel's protocol and the server version %d: name the right one with local.WithBinary(path)", Version, g.Hello.Version)
		g.Fail(err)
		return nil, err
	}
	return g, nil
}

// Superseded reports whether the tunnel ended because the sandbox was restored with another server.
func (g *Guest) Superseded() bool { return g.lane.superseded() }

// Ready informs the server that the sandbox can be used.
func (g *Guest) Ready() error { return send(g.control, report{Kind: kindReady}) }

// Log sends a line of the daemon's log, a JSON object.
func (g *Guest) Log(line json.RawMessage) error {
	return send(g.control, report{Kind: kindLog, Line: line})
}

// Fail sends the server the reason for the sandbox's end.
func (g *Guest) Fail(err error) {
	_ = send(g.control, report{Kind: kindFailed, Text: err.Error()[:min(len(err.Error()), maxText)]}) // the server may be gone
}

// Accept returns the next connection of the server. [Arrival.Port] returns its destination.
func (g *Guest) Accept() (*Arrival, error) {
	stream, err := g.session.AcceptStream()
	if err != nil {
		return nil, err
	}
	return &Arrival{newConn(stream)}, nil
}

// Arrival is a connection of the server.
type Arrival struct{ *Conn }

// Port waits for the port to which the connection leads.
func (a *Arrival) Port() (uint16, error) {
	var o order
	err := receive(a.Conn, maxMessage, &o)
	return o.Port, err
}

// RefusedError contains the reason why the server did not make a connection.
type RefusedError struct {
	Reason string
	denied bool
}

func (e *RefusedError) Error() string { return e.Reason }

// Denied reports whether a rule is the reason. Trying again is then useless.
func (e *RefusedError) Denied() bool { return e.denied }

// Dial requests a connection to host from the server. host is a name or an address. If the server
// refuses, the error is a [*RefusedError].
func (g *Guest) Dial(ctx context.Context, host string, port uint16) (*Conn, error) {
	conn, a, err := g.ask(ctx, request{Host: host, Port: port})
	if conn == nil {
		return nil, err
	}
	if errors.Is(err, io.EOF) {
		a.Error, err = "too many connections are being made, or the rules have just changed", nil
	}
	if err == nil && a.Error != "" {
		err = &RefusedError{Reason: a.Error, denied: a.Denied}
	}
	if err != nil {
		_ = conn.Close()
		return nil, link.CauseOf(ctx, err)
	}
	return conn, nil
}

// Kills requests from the server the number of processes of the sandbox that were killed so far for
// lack of memory.
func (g *Guest) Kills(ctx context.Context) (int, error) {
	conn, a, err := g.ask(ctx, request{Kills: true})
	if conn == nil {
		return 0, err
	}
	if err := errors.Join(err, conn.Close()); err != nil {
		return 0, link.CauseOf(ctx, err)
	}
	return a.Kills, nil
}

// ask opens a connection with a request, and waits for the answer. The caller must close the
// connection. After an error, the connection is nil.
func (g *Guest) ask(ctx context.Context, r request) (*Conn, answer, error) {
	conn, err := open(g.session)
	if err != nil {
		return nil, answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var a answer
	if err = send(conn, r); err == nil {
		err = receive(conn, maxMessage, &a)
	}
	return conn, a, err
}
