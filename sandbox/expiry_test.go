package sandbox

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestExpiryOfConnect checks that Connect refuses fields that only the creation of a sandbox
// sets, and that a client with these fields in its defaults can still connect.
func TestExpiryOfConnect(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := s.client(WithDefaults(WithExpiry(Expiry{After: time.Hour, Then: ThenPause, Resume: true})))
	for _, e := range []Expiry{{Then: ThenKill}, {Then: ThenPause}, {Then: ThenPause, Resume: true}} {
		if _, err := c.Connect(t.Context(), testID, WithExpiry(e)); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%+v: got %v, want api.ErrInvalidArgument", e, err)
		}
	}
	if n := s.seen("POST"); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	sb, err := c.Connect(t.Context(), testID)
	must.Do(t, err)
	defer sb.Close()
	if want := `POST /v2/sandboxes/i1234567890/connect {"timeout":3600}`; s.last() != want {
		t.Errorf("got %s, want %s", s.last(), want)
	}
}

// TestExpiryIdle checks the requests of an idle limit, and that a service that would ignore the limit
// gets no request for a sandbox.
func TestExpiryIdle(t *testing.T) {
	t.Parallel()
	for _, e := range []Expiry{{Idle: -1}, {Idle: time.Minute, Renew: true}, {Idle: time.Minute, After: time.Minute}} {
		if err := e.check(); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%+v: got %v, want api.ErrInvalidArgument", e, err)
		}
	}
	if err := (Expiry{Idle: time.Minute}).checkInherited(); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("Connect with an idle limit: got %v, want api.ErrInvalidArgument", err)
	}
	for e, want := range map[Expiry]time.Duration{{Idle: time.Minute}: 0, {Idle: time.Minute, After: time.Hour}: time.Hour} {
		c := &sandboxConfig{expiry: e}
		if p := c.createParams(); p.IdleTimeout != time.Minute || p.Lifetime != want || c.renewal() != 0 {
			t.Errorf("%+v: got idle timeout %v, lifetime %v and lease %v, want 1m, %v and none", e, p.IdleTimeout, p.Lifetime, c.renewal(), want)
		}
	}
	s := newService(t)
	_, err := s.client().Create(t.Context(), WithExpiry(Expiry{Idle: time.Minute}))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "IdleTimeout") || s.seen("POST") != 0 {
		t.Errorf("got %v after %d requests, want errors.ErrUnsupported that names IdleTimeout, and no request", err, s.seen("POST"))
	}
}
