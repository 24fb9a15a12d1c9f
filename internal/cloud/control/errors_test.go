package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestAnswersKeepTheRemedy checks that the remedy at the end of a long chain of calls is in
// the answer.
func TestAnswersKeepTheRemedy(t *testing.T) {
	t.Parallel()
	const remedy = "make room on the disk"
	chain := errors.New(remedy)
	for _, call := range []string{"open /some/directory/of/a/user", "write the layer", "save the files", "pause the sandbox"} {
		chain = fmt.Errorf("%s %s: %w", call, strings.Repeat("x", 200), chain)
	}
	for name, err := range map[string]error{
		"any":           chain,
		"unsupported":   fmt.Errorf("%w: %w", errors.ErrUnsupported, chain),
		"refused":       &lifecycle.RefusedError{Reason: chain.Error()},
		"not allowed":   &lifecycle.RefusedError{Reason: chain.Error(), Forbidden: true},
		"not saved":     &lifecycle.SaveError{Err: chain},
		"not started":   &lifecycle.LaunchError{Err: chain},
		"memory unkept": &lifecycle.SaveError{Err: fmt.Errorf("%w: %w", lifecycle.ErrMemory, chain)},
	} {
		if got := answerFor(err).Message; !strings.Contains(got, remedy) || len(got) > 2*maxReason {
			t.Errorf("%s: got %q, want it with %q and at most %d bytes", name, got, remedy, 2*maxReason)
		}
	}
}

// TestAnswersToErrors checks the status and the code of the answer to each error of the registries,
// even if other calls have wrapped it.
func TestAnswersToErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("some cause")
	for _, tt := range []struct {
		err    error
		status int
		code   string
		says   string
	}{
		{cause, 500, "internal_server_error", "some cause"},
		{errorf(http.StatusTeapot, "as it is"), 418, "", "as it is"},
		{&lifecycle.NotFoundError{ID: "i1"}, 404, "", `Sandbox "i1" doesn't exist`},
		{&lifecycle.NotFoundError{ID: "i1", Paused: true}, 404, "", "connect resumes it"},
		{&lifecycle.NotFoundError{ID: "i1", Reason: lifecycle.Died, How: "it died: x"}, 404, "", ": it died: x at "},
		{&lifecycle.StateError{ID: "i1", State: lifecycle.Running}, 409, "", "Sandbox i1 is already running"},
		{&lifecycle.StateError{ID: "i1", State: lifecycle.Paused}, 409, "", "already paused"},
		{&lifecycle.StateError{ID: "i1", State: lifecycle.Pausing}, 409, "", "being paused"},
		{&lifecycle.StateError{ID: "i1", State: lifecycle.Resuming}, 409, "", "being resumed"},
		{&lifecycle.StateError{ID: "i1", State: lifecycle.Snapshotting}, 409, "", "being snapshotted"},
		{&lifecycle.StateError{ID: "i1", State: lifecycle.Killing}, 409, "", "being killed"},
		{&templates.Error{Kind: templates.NotFound}, 404, "", ""},
		{&templates.Error{Kind: templates.Invalid}, 400, "", ""},
		{&templates.Error{Kind: templates.BuiltIn}, 403, "", ""},
		{&templates.Error{Kind: templates.Conflict}, 409, "", ""},
		{&templates.Error{Kind: templates.Full}, 429, "", ""},
		{&builds.ImageError{Image: "x"}, 400, "", "the image 'x'"},
		{&builds.NoImagesError{Image: "x", Engine: "wasm", Why: "it has none"}, 400, "unsupported", "the engine wasm of this local cloud cannot begin with an image: it has none; to choose an engine that can, name a template such as base-docker"},
		{&builds.NoImagesError{Engine: "docker"}, 400, "unsupported", "such as base-room"},
		{&builds.SpaceError{}, 507, "", "no space"},
		{builds.ErrBusy, 429, "", "template builds, 20"},
		{builds.ErrClosed, 503, "", "is closing"},
		{builds.ErrCutOff, 400, "", "cut off"},
		{os.ErrDeadlineExceeded, 408, "", "did not come"},
		{&lifecycle.LimitError{Max: 7}, 429, "", "sandboxes, 7"},
		{&lifecycle.FrozenLimitError{Max: 7}, 503, "", "they may, 7 sandboxes, so"},
		{&lifecycle.FrozenLimitError{Max: 7, Memory: 3 << 20}, 503, "", "they may, 7 sandboxes or 3 MiB, so"},
		{&lifecycle.KeptLimitError{Max: 7}, 503, "", "the files of 7 sandboxes"},
		{errors.ErrUnsupported, 501, "", "not supported by the isolation"},
		{&lifecycle.RefusedError{Reason: "no"}, 400, "", "validation error: no"},
		{&lifecycle.RefusedError{Reason: "no", Forbidden: true}, 403, "", "no"},
		{&lifecycle.SaveError{Err: cause}, 500, saveFailed, "The files of the sandbox could not be kept: some cause"},
		{&lifecycle.SaveError{Err: fmt.Errorf("%w: %w", lifecycle.ErrMemory, cause)}, 500, saveFailed, "memory false"},
		{&lifecycle.LaunchError{Err: cause}, 500, "sandbox_create_failed", "Failed to create sandbox: some cause"},
		{&lifecycle.LaunchError{Err: cause, Resumed: true}, 500, "sandbox_create_failed", "still paused: some cause"},
		{lifecycle.ErrClosed, 503, "", "is closing"},
		{lifecycle.ErrKeyReused, 422, "", "was used for a different request"},
		{lifecycle.ErrUnhealthy, 503, "", "it runs on"},
		{lifecycle.ErrUnresponsive, 409, "sandbox_snapshot_guest_agent_unresponsive", "memory false"},
		{&lifecycle.RefusedError{Reason: "no", Unsupported: true}, 400, protocol.CodeUnsupported, "validation error: no"},
		{&engine.InUseError{Resource: "disk", Used: 3, Most: 2}, 409, "", "uses 3 bytes of disk, which is more than the 2 bytes"},
		{&engine.InUseError{Resource: "memory", Used: 3, Most: 2}, 409, "", "of memory, files in memory included, which"},
		{builds.ErrFetches, 429, "", "images are being fetched"},
		{layers.ErrGone, 404, "", "just been deleted"},
		{context.DeadlineExceeded, 504, "", "not done within"},
	} {
		for _, err := range []error{tt.err, fmt.Errorf("a call: %w", tt.err)} {
			got := answerFor(err)
			if got.Code != tt.status || got.ErrorCode != tt.code || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%v: got %d %q %s, want %d %q with %q", err, got.Code, got.ErrorCode, got.Message, tt.status, tt.code, tt.says)
			}
		}
	}
	for _, refused := range []error{&lifecycle.RefusedError{Reason: "no"}, &lifecycle.RefusedError{Reason: "no", Forbidden: true}} {
		if got := answerFor(&lifecycle.LaunchError{Err: refused}); got.Code >= 500 {
			t.Errorf("%v: a launch that is refused is answered with %d, as a failure", refused, got.Code)
		}
	}
}

// TestLoggedErrors checks that failures of this program, which a person has to look at, are logged,
// and that no other errors are logged.
func TestLoggedErrors(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context //nolint:containedctx // of a request
		err  error
		want bool
	}{
		{t.Context(), errors.New("broken"), true}, {gone, errors.New("broken"), false}, {t.Context(), &lifecycle.LaunchError{Err: errors.New("broken")}, true},
		{t.Context(), lifecycle.ErrClosed, false}, {t.Context(), &lifecycle.LimitError{Max: 1}, false}, {t.Context(), errors.ErrUnsupported, false},
		{t.Context(), context.DeadlineExceeded, false}, {t.Context(), invalid("x"), false}, {t.Context(), &lifecycle.NotFoundError{ID: "i1"}, false},
	} {
		var log bytes.Buffer
		s := &Service{options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		w := httptest.NewRecorder()
		s.fail(w, httptest.NewRequestWithContext(tt.ctx, "GET", "/sandboxes", nil), tt.err)
		if logged := log.Len() > 0; logged != tt.want {
			t.Errorf("%v: the log has %q, want the failure there: %v", tt.err, log.String(), tt.want)
		}
		var body apiError
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Code != w.Code || w.Header().Get("Should-Retry") != "false" {
			t.Errorf("%v: got %d %s with %v, want the status in the body, and that it is not retried", tt.err, w.Code, w.Body, w.Header())
		}
	}
}

// TestFullDisk checks that a full disk is reported as such, even if only the text of an engine's
// process shows it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, errors.New("room: save the files: write f: no space left on device")} {
		for name, err := range map[string]error{
			"save":   &lifecycle.SaveError{Err: fmt.Errorf("save the files: %w", cause)},
			"launch": &lifecycle.LaunchError{Err: fmt.Errorf("room: make the directory: %w", cause)},
			"resume": &lifecycle.LaunchError{Err: fmt.Errorf("room: restore the files: %w", cause), Resumed: true},
			"secret": fmt.Errorf("secrets: keep: %w", cause),
			"upload": fmt.Errorf("builds: keep an archive: %w", cause),
		} {
			got := answerFor(err)
			if got.Code != http.StatusInsufficientStorage || !strings.Contains(got.Message, "disk of the state directory") || !strings.Contains(got.Message, makeRoom) {
				t.Errorf("%s: %v: got %d %s, want 507 that names the state directory and what to do", name, cause, got.Code, got.Message)
			}
			if want := map[string]string{"save": saveFailed, "launch": "sandbox_create_failed", "resume": "sandbox_create_failed"}[name]; got.ErrorCode != want {
				t.Errorf("%s: %v: got the code %q, want %q", name, cause, got.ErrorCode, want)
			}
		}
	}
	own := &lifecycle.LaunchError{Err: fmt.Errorf("they do not fit on %s: %w", shortage.SandboxDisk, syscall.ENOSPC)}
	if got := answerFor(own); got.Code != http.StatusInternalServerError || strings.Contains(got.Message, "state directory") {
		t.Errorf("the sandbox's own disk: got %d %s, want nothing about another one", got.Code, got.Message)
	}
}

// TestAnswersAreTheSame checks that the same error always has the same answer, even if it joins two
// errors.
func TestAnswersAreTheSame(t *testing.T) {
	t.Parallel()
	for range 50 {
		if got := answerFor(errors.Join(context.DeadlineExceeded, lifecycle.ErrClosed)).Code; got != http.StatusServiceUnavailable {
			t.Fatalf("got %d, want %d", got, http.StatusServiceUnavailable)
		}
	}
}
