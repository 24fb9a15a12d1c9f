package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// TestMessage covers what the SDK says to Go programs.
func TestMessage(t *testing.T) {
	t.Parallel()
	ctx, cancel := WithLimit(t.Context(), "deadline", Duration(time.Nanosecond))
	defer cancel()
	<-ctx.Done()
	for want, err := range map[string]error{
		"create from base: POST /sandboxes: 500: no": errors.New("sandbox: create from base: api: POST /sandboxes: 500: no"),
		"one\ntwo":              errors.Join(errors.New("sandbox: one"), errors.New("api: two")),
		"run: it took too long": fmt.Errorf("sandbox: run: %w", context.DeadlineExceeded),
		"run: the time limit of --deadline 1ns was reached":                                         fmt.Errorf("sandbox: run: %w", context.Cause(ctx)),
		"its lifetime ended; create it with a longer --lifetime":                                    errors.New("its lifetime ended; ask for more with WithLifetime or SetLifetime"),
		"no key: set E2B_API_KEY for a service, or add --local for the local cloud of this machine": errNoKey,
		"x is gone: it is paused":                                     errors.New("x is gone: it is paused; Resume or Connect wakes it up"),
		"resume it from its files with e2bctl resume --reboot":        errors.New("resume it from its files with WithReboot or ResumeParams.Reboot"),
		"pause it with --mode filesystem, which keeps only its files": errors.New(`pause it with mode="filesystem" (memory false), which keeps only its files`),
		"red": errors.New("\x1bred"),
	} {
		if got := Message(err); got != want {
			t.Errorf("Message(%q) = %q, want %q", err, got, want)
		}
	}
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Errorf("%v is no context.DeadlineExceeded", context.Cause(ctx))
	}
	if !errors.Is(errNoKey, api.ErrNoAPIKey) {
		t.Errorf("%v is no api.ErrNoAPIKey", errNoKey)
	}
}
