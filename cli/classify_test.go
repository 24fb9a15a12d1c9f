package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestClassify has one error for each class, wrapped as commands wrap it: its name, its exit
// status and the subject of its hint, which no other class has.
func TestClassify(t *testing.T) {
	t.Parallel()
	answer := func(status int, path string, body ...string) error {
		return api.ResponseError("GET", path, status, http.Header{}, []byte(strings.Join(body, "")))
	}
	const user = `{"message":"no such user"}`
	for _, tt := range []struct {
		err  error
		code string
		exit int
		hint string // "": none
	}{
		{&cmdutil.PartialError{Failed: 1, Total: 2}, "partial", 8, ""},
		{&localcloud.ConflictError{}, "conflict", 5, ""},
		{&cmdutil.UsageError{}, "usage", 2, ""},
		{&signalError{signal: syscall.SIGINT}, "interrupted", 130, ""},
		{answer(401, "/process.Process/Start", user), "unknown_user", 3, "check --user"},
		{answer(401, "/filesystem.Filesystem/Stat", user), "unknown_user", 3, "check --user"},
		{answer(401, "/files", user), "unknown_user", 3, "check --user"},
		{answer(401, "/process.Process/Start"), "unauthorized", 4, ""},
		{answer(401, "/execute"), "unauthorized", 4, ""},
		{answer(401, "/contexts"), "unauthorized", 4, ""},
		{answer(401, "/api/kernels"), "unauthorized", 4, ""},
		{answer(401, "/sandboxes", user), "unauthorized", 4, "Check the key"},
		{answer(401, "/sandboxes"), "unauthorized", 4, "Check the key"},
		{&sandbox.GoneError{ID: "x", State: sandbox.GonePaused}, "paused", 5, "e2bctl resume{local} x"},
		{&sandbox.GoneError{ID: "x", State: "killed"}, "gone", 5, ""},
		{sandbox.ErrGone, "gone", 5, ""},
		{sandbox.ErrUnknownLanguage, "unknown_language", 3, "local setup --full"},
		{api.ErrNoAPIKey, "no_key", 4, ""},
		{api.ErrInvalidKey, "invalid_key", 4, "Check the key"},
		{answer(403, "/sandboxes"), "forbidden", 10, ""},
		{sandbox.ErrUnknownTemplate, "not_found", 3, "Check --template"},
		{answer(404, "/secrets/x"), "not_found", 3, "e2bctl secret ls"},
		{answer(404, "/api-keys/x"), "not_found", 3, "e2bctl api-key ls"},
		{answer(404, "/templates/x"), "not_found", 3, "e2bctl template ls"},
		{answer(404, "/v2/templates/x"), "not_found", 3, "e2bctl template ls"},
		{answer(404, "/volumes/x"), "not_found", 3, "e2bctl volume ls"},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, "not_found", 3, "one of this machine"},
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, "not_found", 3, "one of the sandbox"},
		{answer(404, "/sandboxes/x"), "not_found", 3, "Run e2bctl ls{local} to list the sandboxes"},
		{fs.ErrNotExist, "not_found", 3, ""},
		{answer(409, "/sandboxes/x"), "conflict", 5, ""},
		{answer(400, "/sandboxes"), "invalid", 2, ""},
		{answer(429, "/sandboxes"), "rate_limited", 6, "e2bctl kill"},
		{context.DeadlineExceeded, "deadline", 7, ""},
		{api.ErrNothingListens, "network", 9, "Nothing listens there"},
		{api.NewError("GET", "/", errors.New("no route")), "network", 9, "proxy variables"},
		{&net.OpError{Op: "dial", Err: errors.New("no route")}, "network", 9, "proxy variables"},
		{&net.OpError{Op: "listen", Err: errors.New("in use")}, "failed", 1, ""},
		{answer(500, "/sandboxes"), "failed", 1, ""},
		{errors.New("any"), "failed", 1, ""},
	} {
		err := fmt.Errorf("a command: %w", tt.err)
		got := classify(err)
		if got.code != tt.code || got.exit != tt.exit || !strings.Contains(got.hint, tt.hint) || (got.hint == "") != (tt.hint == "") {
			t.Errorf("%v: got %+v, want %s with status %d and a hint about %q", err, got, tt.code, tt.exit, tt.hint)
		}
		if status := exitCode(err); status != tt.exit {
			t.Errorf("%v: got exit status %d, want %d", err, status, tt.exit)
		}
	}
}
