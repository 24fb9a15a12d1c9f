package connlimit

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// The tests of this file run before the parallel ones: a mistake that they find at once would make some of
// those wait.

// TestConnContext checks that the connection of a request is found, also under TLS, and that a server
// without it fails at once.
func TestConnContext(t *testing.T) {
	c := &conn{}
	for name, accepted := range map[string]net.Conn{"plain": c, "TLS": tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS12})} {
		if got := ConnContext(t.Context(), accepted).Value(connKey{}); got != c {
			t.Errorf("%s: got %v, want the connection", name, got)
		}
	}
	Admit(t.Context()) // of a server without a listener
	served := false
	defer func() {
		if reason := recover(); reason == nil || served {
			t.Errorf("a server without ConnContext: got %v, and it was served: %v", reason, served)
		}
	}()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).ServeHTTP(httptest.NewRecorder(), r)
}

// connected returns both ends of a TCP connection.
func connected(t *testing.T, l *net.TCPListener) (client net.Conn, inner *net.TCPConn) {
	t.Helper()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	inner, err = l.AcceptTCP()
	must.Do(t, err)
	t.Cleanup(func() { _ = inner.Close() })
	return client, inner
}

// TestPlaces checks the list in which a connection waits after each step, and the count of connections.
func TestPlaces(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	accepting := inner.(*net.TCPListener)
	l := New(accepting, Options{Max: 2, Patience: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	beside := l.Beside(accepting)
	_, one := connected(t, accepting)
	c := beside.add(one)
	check := func(when string, open, strangers, idle int) {
		t.Helper()
		if l.Count() != open || l.strangers.Len() != strangers || l.idle.Len() != idle || l.Max() != 2 {
			t.Errorf("%s: got %d of %d connections, %d strangers and %d idle, want %d, %d and %d", when, l.Count(), l.Max(), l.strangers.Len(), l.idle.Len(), open, strangers, idle)
		}
	}
	check("accepted", 1, 1, 0)
	serve := func(admit bool, during func()) {
		ctx := context.WithValue(t.Context(), connKey{}, c)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if admit {
				Admit(r.Context())
				Admit(r.Context())
			}
			during()
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
	serve(false, func() { check("during a stranger's request", 1, 1, 0) })
	check("after a stranger's request", 1, 1, 0)
	serve(true, func() {
		check("in use", 1, 0, 0)
		serve(true, func() { check("in use twice", 1, 0, 0) })
		check("in use once", 1, 0, 0)
		if l.takeStranger(c) {
			t.Error("a connection in use is taken for a stranger")
		}
	})
	check("idle", 1, 0, 1)
	serve(false, func() { check("during another stranger's request", 1, 0, 1) })
	check("idle still", 1, 0, 1)
	if l.takeStranger(c) {
		t.Error("an idle connection is taken for a stranger")
	}
	serve(true, func() { must.Do(t, c.Close()) })
	check("closed in use", 0, 0, 0)
	_, two := connected(t, accepting)
	c = l.add(two)
	if !l.takeStranger(c) || l.takeStranger(c) {
		t.Error("a stranger is not taken once")
	}
	check("taken", 0, 0, 0)
	_, three := connected(t, accepting)
	client, four := connected(t, accepting)
	l.add(three)
	must.Do(t, l.Close())
	check("the listener is closed", 0, 0, 0)
	if l.add(four) != nil || beside.add(four) != nil {
		t.Error("a connection is added to a closed listener")
	}
	check("and still closed", 0, 0, 0)
	must.Do(t, four.Close()) // the caller of add closes it
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got error %v, want that of the listener", err)
	}
}

// TestWarning checks how often the log has too many connections.
func TestWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := New(nil, Options{Max: 0, Logger: slog.New(slog.NewTextHandler(&log, nil)), Advice: ": advice"})
		for i, step := range []struct {
			after time.Duration
			lines int
		}{{0, 1}, {0, 0}, {warnEvery - 1, 0}, {1, 1}, {0, 0}} {
			<-time.After(step.after)
			log.Reset()
			if l.add(nil) != nil {
				t.Errorf("%d: there is room", i)
			}
			if got := log.String(); strings.Count(got, "\n") != step.lines || step.lines > 0 && !strings.Contains(got, `while all are in use: advice" open=0 limit=0`) {
				t.Errorf("%d: the log has %q, want %d lines", i, got, step.lines)
			}
		}
	})
}
