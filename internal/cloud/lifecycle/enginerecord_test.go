package lifecycle

import (
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEngineRecord checks what the engine stores for a sandbox, and that it comes back.
func TestEngineRecord(t *testing.T) {
	t.Parallel()
	var sb Sandbox
	sb.Template.Alias, sb.Metadata = "base", map[string]string{"a": "b"}
	sb.StartedAt, sb.EndAt = time.Unix(1, 0), time.Unix(2, 0)
	r, err := sb.engineRecord(nil)
	must.Do(t, err)
	if r.Template != "base" || r.Metadata["a"] != "b" || !r.StartedAt.Equal(sb.StartedAt) || !r.EndAt.Equal(sb.EndAt) {
		t.Errorf("got %+v, want the template, metadata and times of %+v", r, sb)
	}
	for _, tt := range []struct {
		state     State
		autoPause bool
		paused    bool
		linger    time.Duration
	}{{Running, false, false, 0}, {Running, true, false, lingering}, {Paused, true, true, 0}, {Paused, false, true, 0}} {
		sb.State, sb.AutoPause = tt.state, tt.autoPause
		r, err := sb.engineRecord(nil)
		must.Do(t, err)
		if r.Paused != tt.paused || r.Linger != tt.linger {
			t.Errorf("%+v: got paused %v and linger %v", tt, r.Paused, r.Linger)
		}
	}
}
