package network

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
)

// TestNoCallKeepsALock checks that the locks of questions, denials and addresses are free after each call. It
// runs before the parallel tests, because a lock that is kept would make those wait.
func TestNoCallKeepsALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Denial
		a, d := &Asks{}, &Denials{Tell: func(d Denial) { told = append(told, d) }, TellFailure: func(error) {}}
		target := Target{"a.test", 443}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		var q *asked
		failure := &egressProxyError{target: "a.test:443", err: errors.New("refused")}
		for _, call := range []struct {
			name string
			do   func()
		}{
			{"Open of none", func() { a.Open(ended, 0) }}, {"question", func() { q, _ = a.question(target, nil) }}, {"question again", func() { a.question(target, nil) }},
			{"Allow, given up", func() { _, _ = a.Allow(ended, target, nil) }}, {"Open", func() { a.Open(t.Context(), 0) }}, {"Open of later ones", func() { a.Open(ended, q.ID) }},
			{"forget of one that was taken", func() { a.forget(q) }}, {"Answer", func() { a.Answer(q.ID, true) }}, {"Answer again", func() { a.Answer(q.ID, false) }},
			{"Answer to none", func() { a.Answer(0, false) }}, {"another question", func() { q, _ = a.question(Target{"b.test", 1}, nil) }}, {"forget", func() { a.forget(q) }},
			{"address", func() { a.standIns.address("a.test") }}, {"address again", func() { a.standIns.address("a.test") }}, {"name", func() { a.standIns.name(netip.Addr{}) }},
			{"Add", func() { d.Add(Denial{Host: "a.test"}) }}, {"Add again", func() { d.Add(Denial{Host: "a.test"}) }}, {"Count", func() { d.Count() }},
			{"fail", func() { d.fail(failure) }}, {"fail again", func() { d.fail(failure) }},
		} {
			call.do()
			for name, lock := range map[string]*sync.Mutex{"of questions": &a.mu, "of addresses": &a.standIns.mu, "of denials": &d.mu} {
				if !lock.TryLock() {
					t.Fatalf("%s keeps the lock %s", call.name, name)
				}
				lock.Unlock()
			}
		}
		if len(told) != 1 || len(a.targets) != 1 || len(a.openLocked()) > 0 {
			t.Errorf("got %d denials, %d questions and %d open ones, want one answered question", len(told), len(a.targets), len(a.openLocked()))
		}
	})
}
