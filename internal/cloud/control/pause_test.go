package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
)

// failing makes an operation of every fake fail with err.
func (s *service) failing(op lifecycletest.Operation, err error) {
	s.fakes.Hook = func(_ context.Context, _ string, asked lifecycletest.Operation) error {
		if asked == op {
			return err
		}
		return nil
	}
}

// seen is the state of a sandbox, as GET reports it.
type seen struct{ state, mode, domain any }

func (s *service) seen(t *testing.T, id string) seen {
	t.Helper()
	got := s.must(t, "GET", "/sandboxes/"+id, "", 200)
	return seen{got["state"], got["pauseMode"], got["domain"]}
}

var (
	seenRunning = seen{"running", nil, "localhost:1"}
	seenFull    = seen{"paused", "full", nil}
	seenFiles   = seen{"paused", "filesystem", nil}
)

// TestPauseAndResume checks that pause and resume work in each generation, as its clients send
// them.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, pause  string
		paused       seen
		path, resume string
		lifetime     time.Duration
	}{
		{"without a body", ``, seenFull, "/v2/sandboxes/%/connect", ``, 300 * time.Second},
		{"empty objects", `{}`, seenFull, "/v2/sandboxes/%/connect", `{}`, 300 * time.Second},
		{"first generation", `{"memory":true}`, seenFull, "/sandboxes/%/connect", `{"timeout":20}`, 20 * time.Second},
		{"resume", `{"memory":null}`, seenFull, "/sandboxes/%/resume", ``, 15 * time.Second},
		{"healthy", `{"requireHealthyGuest":true}`, seenFull, "/sandboxes/%/resume", `{"timeout":30}`, 30 * time.Second},
		{"filesystem", `{"memory":false}`, seenFiles, "/v2/sandboxes/%/connect", `{"timeout":40}`, 40 * time.Second},
		{"reboot", `{}`, seenFull, "/v2/sandboxes/%/connect", `{"memory":false}`, 300 * time.Second},
		{"reboot of the first generation", `{}`, seenFull, "/sandboxes/%/connect", `{"timeout":20,"memory":false}`, 20 * time.Second},
		{"resume with a reboot", `{}`, seenFull, "/sandboxes/%/resume", `{"timeout":20,"memory":false}`, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			created := s.must(t, "POST", "/v2/sandboxes", `{"templateID":"base","metadata":{"a":"b"},"network":{"allowPublicTraffic":false}}`, 201)
			id := created["sandboxID"].(string)
			s.must(t, "POST", "/sandboxes/"+id+"/pause", tt.pause, 204)
			if got := s.seen(t, id); got != tt.paused {
				t.Errorf("paused, GET says %+v, want %+v", got, tt.paused)
			}
			s.must(t, "POST", "/sandboxes/"+id+"/pause", tt.pause, 409)
			before := s.fakes.Fake(id)
			resumed := s.must(t, "POST", strings.Replace(tt.path, "%", id, 1), tt.resume, 201)
			if rebooted, want := s.fakes.Fake(id) != before, strings.Contains(tt.pause+tt.resume, `"memory":false`); rebooted != want {
				t.Errorf("it was started anew: %v, want %v", rebooted, want)
			}
			if diff := cmp.Diff(created, resumed); diff != "" {
				t.Errorf("answers of create and resume (-create +resume):\n%s", diff)
			}
			got := s.must(t, "GET", "/sandboxes/"+id, "", 200)
			started, _ := time.Parse(time.RFC3339, got["startedAt"].(string))
			ends, _ := time.Parse(time.RFC3339, got["endAt"].(string))
			if !livesFor(tt.lifetime, started, ends) || s.seen(t, id) != seenRunning {
				t.Errorf("it lives for %v, and GET says %+v, want %v and %+v", ends.Sub(started), s.seen(t, id), tt.lifetime, seenRunning)
			}
			s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
			s.must(t, "DELETE", "/sandboxes/"+id, "", 204)
			if got := s.must(t, "GET", "/sandboxes/"+id, "", 404); got["reason"] != "killed" || got["endedAt"] == "" {
				t.Errorf("got %v, want reason %q and when", got, "killed")
			}
		})
	}
}

// TestPauseFails checks that a refused pause or resume names the reason, and leaves the
// sandbox as it was.
func TestPauseFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("no space left on device")
	for _, tt := range []struct {
		name         string
		before       func(t *testing.T, s *service, id string)
		path, body   string
		status       int
		message      string
		after        seen
		options      func(*lifecycle.Options)
		healthyAfter bool
	}{
		{"envd does not answer, and has to", func(_ *testing.T, s *service, _ string) { s.failing(lifecycletest.Healthy, broken) },
			"/sandboxes/%/pause", `{"requireHealthyGuest":true}`, 503, "envd in the sandbox does not answer", seenRunning, nil, true},
		{"envd does not answer, without memory", func(_ *testing.T, s *service, _ string) { s.failing(lifecycletest.Healthy, broken) },
			"/sandboxes/%/pause", `{"memory":false}`, 503, "envd in the sandbox does not answer", seenRunning, nil, true},
		{"envd did not answer, resumed", func(t *testing.T, s *service, id string) {
			s.failing(lifecycletest.Healthy, broken)
			s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
			if got := s.must(t, "GET", "/sandboxes/"+id, "", 200); got["envdUnresponsiveAtPause"] != true {
				t.Errorf("got %v, want envdUnresponsiveAtPause", got)
			}
		}, "/v2/sandboxes/%/connect", ``, 409, "resume it with memory false", seenFull, nil, false},
		{"disk full", func(_ *testing.T, s *service, _ string) { s.failing(lifecycletest.Save, broken) },
			"/sandboxes/%/pause", `{"memory":false}`, 507, "The disk of the state directory is full, so the sandbox could not be kept: no space left on device; the sandbox is as it was before", seenRunning, nil, true},
		{"not stopped", func(_ *testing.T, s *service, _ string) { s.failing(lifecycletest.Pause, broken) },
			"/sandboxes/%/pause", ``, 507, "no space left on device", seenRunning, nil, true},
		{"isolation that cannot stop processes", func(_ *testing.T, s *service, _ string) {
			s.failing(lifecycletest.Pause, fmt.Errorf("freeze: %w", errors.ErrUnsupported))
		}, "/sandboxes/%/pause", ``, 501, "not supported by the isolation of this local cloud: freeze", seenRunning, nil, true},
		{"too much memory", func(_ *testing.T, s *service, id string) { s.fakes.Fake(id).Use(2 << 20) },
			"/sandboxes/%/pause", ``, 503, `mode="filesystem"`, seenRunning, func(o *lifecycle.Options) { o.MaxFrozenMemory = 1 << 20 }, true},
		{"too many with memory", func(t *testing.T, s *service, _ string) {
			s.must(t, "POST", "/sandboxes/"+s.mustCreate(t, `{"templateID":"base"}`)+"/pause", ``, 204)
		}, "/sandboxes/%/pause", ``, 503, `mode="filesystem"`, seenRunning, func(o *lifecycle.Options) { o.MaxFrozen = 1 }, true},
		{"too many with files", func(t *testing.T, s *service, _ string) {
			s.must(t, "POST", "/sandboxes/"+s.mustCreate(t, `{"templateID":"base"}`)+"/pause", `{"memory":false}`, 204)
		}, "/sandboxes/%/pause", `{"memory":false}`, 503, "the files of 1 sandboxes are kept", seenRunning, func(o *lifecycle.Options) { o.MaxKept = 1 }, true},
		{"no place", func(t *testing.T, s *service, id string) {
			s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
			s.mustCreate(t, `{"templateID":"base"}`)
		}, "/v2/sandboxes/%/connect", ``, 429, "maximum number of concurrent sandboxes, 1: kill one that is not needed", seenFull, func(o *lifecycle.Options) { o.MaxSandboxes = 1 }, false},
		{"not resumed", func(t *testing.T, s *service, id string) {
			s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204)
			s.failing(lifecycletest.Resume, broken)
		}, "/v2/sandboxes/%/connect", ``, 507, "Failed to resume sandbox, which is still paused: the disk of the state directory", seenFull, nil, false},
		{"not booted", func(t *testing.T, s *service, id string) {
			s.must(t, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`, 204)
			s.fakes.Fail(broken)
		}, "/v2/sandboxes/%/connect", ``, 507, "Failed to resume sandbox, which is still paused: the disk of the state directory", seenFiles, nil, false},
		{"memory of another machine", func(t *testing.T, s *service, id string) {
			s.must(t, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`, 204)
			s.fakes.Fail(fmt.Errorf("gvisor: %w: another processor", engine.ErrOtherMachine))
		}, "/v2/sandboxes/%/connect", ``, 400, "resume it with memory false (e2bctl resume --reboot), which boots it from its files: gvisor: its memory cannot be restored here: another processor", seenFiles, nil, false},
		{"timeout of a paused one", func(t *testing.T, s *service, id string) { s.must(t, "POST", "/sandboxes/"+id+"/pause", ``, 204) },
			"/sandboxes/%/timeout", `{"timeout":1}`, 404, "is paused, and connect resumes it", seenFull, nil, false},
		{"resume of a running one", func(*testing.T, *service, string) {}, "/sandboxes/%/resume", ``, 409, "is already running", seenRunning, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(o *lifecycle.Options) {
				if tt.options != nil {
					tt.options(o)
				}
			})
			id := s.mustCreate(t, `{"templateID":"base","autoPause":true}`)
			tt.before(t, s, id)
			resp, text := s.do(t, "POST", strings.Replace(tt.path, "%", id, 1), tt.body)
			if resp.StatusCode != tt.status || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), tt.message) {
				t.Errorf("got %d %s, want %d and %q in it", resp.StatusCode, text, tt.status, tt.message)
			}
			if got := resp.Header.Get("Retry-After"); got != "" {
				t.Errorf("got Retry-After %s, want none", got)
			}
			if got := s.seen(t, id); got != tt.after {
				t.Errorf("GET says %+v, want %+v", got, tt.after)
			}
			if tt.healthyAfter && s.fakes.Fake(id).Paused() {
				t.Error("its processes are stopped, want them to run")
			}
			s.fakes.Hook = nil
			s.must(t, "DELETE", "/sandboxes/"+id, "", http.StatusNoContent)
		})
	}
}

// livesFor reports whether a sandbox has this lifetime, counted from its start or from the moment
// shortly after the start at which the lifetime was set.
func livesFor(lifetime time.Duration, started, ends time.Time) bool {
	life := ends.Sub(started)
	return life >= lifetime && life <= lifetime+time.Since(started)
}
