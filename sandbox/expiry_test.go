package sandbox

import (
	"errors"
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
