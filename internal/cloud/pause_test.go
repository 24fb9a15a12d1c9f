//go:build linux

package cloud

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWake checks that a request resumes a paused sandbox if the sandbox was created with
// AutoResume and there is room. The edge must receive the registry's error as one of its own.
func TestWake(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		create string
		before func(t *testing.T, c *Cloud, id string)
		want   int
	}{
		"paused by its timeout": {`"autoPause":true,"autoResume":{"enabled":true},"timeout":60`, func(_ *testing.T, c *Cloud, _ string) {
			c.Advance(time.Minute)
		}, http.StatusOK},
		"paused by a request": {`"autoResume":{"enabled":true}`, pauseWith(``), http.StatusOK},
		"without autoResume":  {`"autoPause":true`, pauseWith(``), http.StatusBadGateway},
		"without its memory":  {`"autoResume":{"enabled":true}`, pauseWith(`{"memory":false}`), http.StatusBadGateway},
		"where no room is left": {`"autoResume":{"enabled":true}`, func(t *testing.T, c *Cloud, id string) {
			pauseWith(``)(t, c, id)
			create(t, c, `{"templateID":"base"}`)
		}, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := startFake(t, Options{MaxSandboxes: 1})
			status, text := do(t, c, "POST", "/v2/sandboxes", `{"templateID":"base",`+tt.create+`}`)
			var sb struct{ SandboxID, EnvdAccessToken string }
			if err := json.Unmarshal([]byte(text), &sb); err != nil || status != http.StatusCreated {
				t.Fatalf("%d %s: %v", status, text, err)
			}
			tt.before(t, c, sb.SandboxID)
			status, text = do(t, c, "GET", "/files", "", "E2b-Sandbox-Id", sb.SandboxID, "E2b-Sandbox-Port", "49983", "X-Access-Token", sb.EnvdAccessToken)
			if status != tt.want {
				t.Errorf("got %d %s, want %d", status, text, tt.want)
			}
		})
	}
}

func pauseWith(body string) func(*testing.T, *Cloud, string) {
	return func(t *testing.T, c *Cloud, id string) {
		t.Helper()
		if status, text := do(t, c, "POST", "/sandboxes/"+id+"/pause", body); status != http.StatusNoContent {
			t.Fatalf("got %d %s, want 204", status, text)
		}
	}
}

// TestReportOfPauses checks that the report of a cloud contains whether the files of pauses outlast
// the cloud.
func TestReportOfPauses(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"":                                    "ends with the cloud",
		filepath.Join(t.TempDir(), "a state"): "copied to the state directory",
	} {
		c, _ := startFake(t, Options{State: state})
		if got := c.Report().Pause; !strings.Contains(got, want) {
			t.Errorf("state %q: got %q, want %q in it", state, got, want)
		}
	}
}
