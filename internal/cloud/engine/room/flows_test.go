//go:build linux

package room

import (
	"context"
	"net"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFailedConnectionsAreReturned checks that connections out of a sandbox that come to nothing
// are no longer counted, whatever was in their way.
func TestFailedConnectionsAreReturned(t *testing.T) {
	t.Parallel()
	const connections, budget = assuredFlows + 2, 100
	made, open := 0, 0
	for name, tt := range map[string]struct {
		dial             func(context.Context, string, uint16) (net.Conn, error)
		noAccess, noEnvd bool
	}{
		"no access":   {noAccess: true},
		"unreachable": {},
		"envd ended": {noEnvd: true, dial: func(context.Context, string, uint16) (net.Conn, error) {
			made++
			open++
			conn, _ := net.Pipe()
			return countedConn{conn, &open}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envd, inside := wirePair(t)
			if tt.noEnvd {
				inside.Close()
			}
			var egress engine.Egress = &testEgress{dial: tt.dial}
			if tt.noAccess {
				egress = nil
			}
			s := &Sandbox{envd: envd, traffic: newTraffic(&flowBudget{left: budget}, nil)}
			s.traffic.access = link.NewAccess(t.Context(), egress)
			for range connections {
				must.Do(t, s.traffic.budget.take(&s.traffic.carried))
			}
			for id := range uint64(connections) {
				connected := false
				s.carry(wire.Message{Kind: wire.KindEgress, ID: id + 1, Host: "example.com", Port: 443}, func() { connected = true })
				if !connected {
					t.Errorf("connection %d is still counted as one that is being made", id)
				}
				if tt.noEnvd {
					continue // nobody is there to be answered
				}
				if m, _, err := inside.Receive(0); err != nil || m.Kind != wire.KindRefused || m.ID != id+1 || m.Denied != tt.noAccess {
					t.Errorf("connection %d was answered with %+v and error %v", id, m, err)
				}
			}
			if s.traffic.carried.open != 0 || s.traffic.budget.left != budget {
				t.Errorf("%d connections are counted, and the budget is %d, want none and %d", s.traffic.carried.open, s.traffic.budget.left, budget)
			}
			if tt.dial != nil && (made != connections || open != 0) {
				t.Errorf("of %d connections %d are open, want none of %d", made, open, connections)
			}
		})
	}
}

// A countedConn is counted until it is closed.
type countedConn struct {
	net.Conn
	open *int
}

func (c countedConn) Close() error {
	*c.open--
	return c.Conn.Close()
}

// wirePair returns both ends of a control connection, which end with the test.
func wirePair(t *testing.T) (ours, theirs *wire.Conn) {
	t.Helper()
	ours, file, err := wire.Pair(wire.MaxEnvdMessage)
	must.Do(t, err)
	t.Cleanup(ours.Close)
	theirs, err = wire.NewConn(file, wire.MaxEnvdMessage)
	must.Do(t, err)
	t.Cleanup(theirs.Close)
	return ours, theirs
}
