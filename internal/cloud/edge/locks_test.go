package edge

import (
	"context"
	"net"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNoCallKeepsALock checks that the locks of a router and its sandboxes are free after each call.
func TestNoCallKeepsALock(t *testing.T) {
	t.Parallel()
	rt := New(Options{Asleep: func(string) []Sandbox { return nil }})
	u := newUpstream(Sandbox{ID: id, Dial: func(context.Context, int) (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		return near, nil
	}}, nil)
	first := u.awake
	var open net.Conn
	dial := func(s *spell) error {
		conn, err := s.dial(t.Context(), "tcp", "127.0.0.1:1")
		if err == nil {
			open = conn
		}
		return err
	}
	for _, call := range []struct {
		name string
		do   func()
	}{
		{"Add", func() { rt.Add(Sandbox{ID: "other"}) }}, {"lookup", func() { rt.lookup(id) }}, {"known", func() { rt.known("none") }},
		{"Pause", func() { rt.Pause("other") }}, {"Resume", func() { rt.Resume("other") }}, {"Remove", func() { rt.Remove("other") }}, {"Remove again", func() { rt.Remove("other") }},
		{"spell", func() { u.spell() }}, {"dial", func() { must.Do(t, dial(first)) }}, {"conn.Close", func() { must.Do(t, open.Close()) }}, {"dial again", func() { must.Do(t, dial(first)) }},
		{"resume", u.resume}, {"pause", u.pause}, {"pause again", u.pause}, {"add after the end", func() {
			near, far := net.Pipe()
			_, err := first.add(near)
			must.Is(t, err, errPaused)
			must.Do(t, far.Close())
		}},
		{"resume after a pause", u.resume}, {"close", u.close}, {"warn", func() { u.admissions[toPrograms].warn() }}, {"warn again", func() { u.admissions[toPrograms].warn() }},
	} {
		call.do()
		for name, lock := range map[string]interface {
			TryLock() bool
			Unlock()
		}{"of the router": &rt.mu, "of the sandbox": &u.mu, "of the spell": &first.mu, "of the limit": &u.admissions[toPrograms].mu} {
			if !lock.TryLock() {
				t.Fatalf("%s keeps the lock %s", call.name, name)
			}
			lock.Unlock()
		}
	}
	if len(rt.sandboxes) > 0 || first.conns != nil || u.awake == first {
		t.Errorf("%d sandboxes are left, and the connections %v", len(rt.sandboxes), first.conns)
	}
}
