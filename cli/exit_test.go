package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestExitCode covers the statuses that a script cannot produce at will; the
// others are produced by testdata/script.
func TestExitCode(t *testing.T) {
	t.Parallel()
	answer := func(status int) error {
		return api.ResponseError("GET", "/sandboxes/x", status, http.Header{}, nil)
	}
	gone := func(state sandbox.GoneState) error { return &sandbox.GoneError{ID: "x", State: state} }
	stopped := &signalError{signal: syscall.SIGTERM}
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("any"), 1},
		{answer(500), 1},
		{answer(404), 3},
		{fmt.Errorf("reading: %w", fs.ErrNotExist), 3},
		{fmt.Errorf("writing: %w", fs.ErrExist), 5},
		{answer(401), 4},
		{answer(403), 10},
		{answer(400), 2},
		{api.ErrNoAPIKey, 4},
		{answer(409), 5},
		{gone("paused"), 5},
		{&localcloud.ConflictError{}, 5},
		{answer(429), 6},
		{api.ResponseError("POST", "/v3/templates", 429, http.Header{}, nil), 6},
		{context.DeadlineExceeded, 7},
		{&cmdutil.PartialError{Failed: 1, Total: 2}, 8},
		{api.NewError("GET", "/", errors.New("connection refused")), 9},
		{stopped, 143},
		{cmdutil.RemoteStatus(42), 42},
		{&cmdutil.OwnError{Err: answer(404)}, 125},
		{&cmdutil.OwnError{Err: gone("killed")}, 125},
		{&cmdutil.OwnError{Err: gone("killed"), Running: true}, 137},
		{&cmdutil.OwnError{Err: gone("expired"), Running: true}, 124},
		{&cmdutil.OwnError{Err: gone("paused"), Running: true}, 125},
		{&cmdutil.OwnError{Err: context.DeadlineExceeded}, 124},
		{&cmdutil.OwnError{Err: stopped}, 143},
	}
	for _, tt := range tests {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("exitCode(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// Refusals for too much name a remedy that fits.
func TestTooManyNamesAWayOut(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/v3/templates": "e2bctl template ls", "/v2/templates/t/builds/b": "e2bctl template ls", "/sandboxes": "e2bctl kill"} {
		if got := classify(api.ResponseError("POST", path, 429, http.Header{}, nil)).hint; !strings.Contains(got, want) {
			t.Errorf("%s: got the hint %q, want it to name %s", path, got, want)
		}
	}
}
