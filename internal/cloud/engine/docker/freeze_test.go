//go:build linux

package docker_test

import (
	"errors"
	"io"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestFreeze checks that a frozen sandbox keeps its memory, answers nothing and later continues.
func TestFreeze(t *testing.T) {
	t.Parallel()
	s := start(t, open(t, docker.Options{}), engine.SandboxOptions{})
	run(t, s, `(while true; do date +%s%N > /tmp/clock; sleep 0.01; done) > /dev/null 2>&1 &`)
	conn, err := s.Dial(t.Context(), protocol.PortEnvd)
	must.Do(t, err)
	defer conn.Close()
	for range 2 { // both are idempotent
		must.Do(t, s.Freeze(t.Context()))
	}
	if _, err := io.ReadAll(conn); err == nil {
		t.Error("a connection outlived the freeze")
	}
	if _, err := s.Dial(t.Context(), protocol.PortEnvd); !errors.Is(err, engine.ErrFrozen) {
		t.Errorf("dial: got %v, want frozen", err)
	}
	for range 2 {
		must.Do(t, s.Thaw(t.Context()))
	}
	run(t, s, `a=$(cat /tmp/clock); while [ "$(cat /tmp/clock)" = "$a" ]; do sleep 0.01; done`)
	if usage, ok := s.Usage(); !ok || usage.Memory == 0 || usage.CPU == 0 || s.Memory() == 0 {
		t.Errorf("usage: got %+v, %v", usage, ok)
	}
	must.Do(t, s.Hold(t.Context()))
	must.Do(t, s.Freeze(t.Context()))
	if err := s.Close(); err != nil {
		t.Errorf("close a frozen sandbox: %v", err)
	}
	if err := s.Freeze(t.Context()); !errors.Is(err, engine.ErrGone) {
		t.Errorf("freeze a closed one: got %v, want gone", err)
	}
	if _, ok := s.Usage(); ok {
		t.Error("a closed sandbox uses something")
	}
}
