package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
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

// TestFullDisk checks that a full disk is reported as such, also if only the text of an
// engine's process says so.
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
		}
	}
	own := &lifecycle.LaunchError{Err: fmt.Errorf("they do not fit on %s: %w", shortage.SandboxDisk, syscall.ENOSPC)}
	if got := answerFor(own); got.Code != http.StatusInternalServerError || strings.Contains(got.Message, "state directory") {
		t.Errorf("the sandbox's own disk: got %d %s, want nothing about another one", got.Code, got.Message)
	}
}

// TestAnswersAreTheSame checks that the same error always has the same answer, also if it
// joins two errors.
func TestAnswersAreTheSame(t *testing.T) {
	t.Parallel()
	for range 50 {
		if got := answerFor(errors.Join(context.DeadlineExceeded, lifecycle.ErrClosed)).Code; got != http.StatusServiceUnavailable {
			t.Fatalf("got %d, want %d", got, http.StatusServiceUnavailable)
		}
	}
}
