//go:build linux

package e2e

import (
	"context"
	"errors"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/state"
)

func TestEval(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	ctx := t.Context()
	if _, err := sb.RunCode(ctx, "rows = [1, 2, 3]\n'kept'", nil); err != nil {
		t.Fatal(err)
	}
	if n, err := sandbox.Eval[int](ctx, sb, " len(rows)\n"); err != nil || n != 3 {
		t.Errorf("got %d, %v, want 3", n, err)
	}
	if set, err := sandbox.Eval[map[string]struct{}](ctx, sb, "{'a', 'b'}"); err != nil || len(set) != 2 {
		t.Errorf("a set: %v, %v, want 2 members", set, err)
	}
	if n, err := sandbox.Eval[*big.Int](ctx, sb, "2 ** 100"); err != nil || n.BitLen() != 101 {
		t.Errorf("a large int: %v, %v, want 2 ** 100", n, err)
	}
	when := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	if got, err := sandbox.Eval[time.Time](ctx, sb, "__import__('datetime').datetime(2026, 5, 1, 12, tzinfo=__import__('datetime').timezone.utc)"); err != nil || !got.Equal(when) {
		t.Errorf("a time: %v, %v, want %v", got, err, when)
	}
	if n, err := sandbox.Eval[int](ctx, sb, "(seen := 7)"); err != nil || n != 7 {
		t.Errorf("an assignment expression: %d, %v, want 7", n, err)
	}
	if got := sandboxtest.Eval(t, sb, "_"); got != "kept" {
		t.Errorf("_ is %s after Eval, want the value of the last code", got)
	}
}

// Code that is no expression, or whose value has no Go form or is no T, has an error of
// its own kind, and the kernel stays as it was.
func TestEvalFailures(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	ctx := t.Context()
	for expression, want := range map[string]string{
		"x = 1": "SyntaxError", "": "SyntaxError", "1/0": "ZeroDivisionError", "import os": "SyntaxError",
		"unknown": "NameError", "exit_code(": "SyntaxError", "%time": "SyntaxError", "(lambda: int('x'))()": "ValueError",
		"__import__('sys').exit(3)": "SystemExit",
	} {
		_, err := sandbox.Eval[int](ctx, sb, expression)
		if failed, ok := errors.AsType[*sandbox.ExecutionError](err); !ok || failed.Name != want {
			t.Errorf("%s: %v, want an ExecutionError %s", expression, err, want)
		}
	}
	for _, expression := range []string{"'3'", "None", "[1]", "2 ** 70", "1.5", "open('/dev/null')", "'x' * (17 << 20)"} {
		n, err := sandbox.Eval[int](ctx, sb, expression)
		if _, ok := errors.AsType[*state.DecodeError](err); !ok || n != 0 {
			t.Errorf("%s as an int: %d, %v, want a state.DecodeError", expression, n, err)
		}
	}
	if opaque, err := sandbox.Eval[state.Opaque](ctx, sb, "open('/dev/null')"); err != nil {
		t.Errorf("a file as an Opaque: %v, %v", opaque, err)
	}
	if large, err := sandbox.Eval[string](ctx, sb, "'\"' * (5 << 20)"); err != nil || len(large) != 5<<20 {
		t.Errorf("5 MiB: got %d bytes, %v", len(large), err)
	}
	if got, err := sandbox.Eval[any](ctx, sb, "[1, 'a', None]"); err != nil || !reflect.DeepEqual(got, []any{int64(1), "a", nil}) {
		t.Errorf("any: %v, %v", got, err)
	}
	if _, err := sandbox.Eval[int](ctx, sb, "'\xff'"); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("not UTF-8: %v, want api.ErrInvalidArgument", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := sandbox.Eval[int](ctx, sb, "[0 for _ in iter(int, 1)]"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("endless: %v, want context.DeadlineExceeded", err)
	}
	if n, err := sandbox.Eval[int](t.Context(), sb, "1 + 1"); err != nil && !errors.Is(err, sandbox.ErrKernelRestarted) || err == nil && n != 2 {
		t.Errorf("afterwards: %d, %v, want 2", n, err)
	}
}
