//go:build linux

package e2e

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// Every caller who asks for a sandbox that is gone gets the reason and the time,
// also a program that never had it.
func TestReasonsReachOtherPrograms(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	c := client(t, cloud)
	for name, test := range map[string]struct {
		end  func(t *testing.T, sb *sandbox.Sandbox)
		want sandbox.GoneState
	}{
		"killed": {func(t *testing.T, sb *sandbox.Sandbox) {
			t.Helper()
			must.Do(t, sb.Kill(t.Context()))
		}, sandbox.GoneKilled},
		"killed while it is paused": {func(t *testing.T, sb *sandbox.Sandbox) {
			t.Helper()
			must.Do(t, sb.Pause(t.Context(), nil))
			must.Do(t, c.Kill(t.Context(), sb.ID()))
		}, sandbox.GoneKilled},
		"expired": {func(t *testing.T, sb *sandbox.Sandbox) {
			t.Helper()
			must.Do(t, sb.SetLifetime(t.Context(), time.Second))
			cloud.Advance(time.Hour)
			patience.Until(t, "it is gone", func() bool { _, err := c.Info(t.Context(), sb.ID()); return errors.Is(err, sandbox.ErrGone) })
		}, sandbox.GoneExpired},
	} {
		before := time.Now().Add(-time.Minute)
		sb := cloud.Create(t)
		test.end(t, sb)
		_, connected := client(t, cloud).Connect(t.Context(), sb.ID())
		_, asked := c.Info(t.Context(), sb.ID())
		for what, err := range map[string]error{"Connect": connected, "Info": asked, "Pause": c.Pause(t.Context(), sb.ID(), nil)} {
			gone, ok := errors.AsType[*sandbox.GoneError](err)
			if !ok || gone.State != test.want || !errors.Is(err, api.ErrNotFound) {
				t.Errorf("%s, %s: got %v, want a *sandbox.GoneError with %q", name, what, err, test.want)
				continue
			}
			if gone.At.Before(before) {
				t.Errorf("%s, %s: got %v, want when it ended", name, what, gone.At)
			}
		}
	}
}

// Lists and descriptions report a paused sandbox and how it resumes.
func TestPausedSandboxesAreListed(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	c := client(t, cloud)
	running := cloud.Create(t)
	paused := cloud.Create(t, sandbox.WithExpiry(sandbox.Expiry{Then: sandbox.ThenPause, Resume: true}), sandbox.WithMetadata(map[string]string{"job": "42"}))
	before := time.Now()
	must.Do(t, paused.Pause(t.Context(), nil))
	after := time.Now()
	if err := paused.Pause(t.Context(), nil); !errors.Is(err, api.ErrConflict) {
		t.Errorf("paused twice: got %v, want api.ErrConflict", err)
	}
	for _, test := range []struct {
		params sandbox.ListParams
		want   []string
	}{
		{sandbox.ListParams{}, []string{running.ID(), paused.ID()}},
		{sandbox.ListParams{States: []api.SandboxState{api.StatePaused}}, []string{paused.ID()}},
		{sandbox.ListParams{States: []api.SandboxState{api.StateRunning}}, []string{running.ID()}},
		{sandbox.ListParams{States: []api.SandboxState{api.StateRunning, api.StatePaused}, Metadata: map[string]string{"job": "42"}}, []string{paused.ID()}},
	} {
		var got []string
		for info, err := range c.List(t.Context(), &test.params) {
			must.Do(t, err)
			got = append(got, info.ID)
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("of %+v got %q, want %q", test.params, got, test.want)
		}
	}
	info, err := c.Info(t.Context(), paused.ID())
	must.Do(t, err)
	if info.State != api.StatePaused || info.PauseMode != sandbox.PauseFull || info.EnvdUnresponsiveAtPause {
		t.Errorf("got %+v, want a sandbox that is paused with its memory", info)
	}
	if want := (sandbox.Lifecycle{OnTimeout: sandbox.OnTimeoutPause, AutoResume: true}); info.Lifecycle == nil || *info.Lifecycle != want {
		t.Errorf("got %+v, want %+v", info.Lifecycle, want)
	}
	if info.EndAt.Before(before.Truncate(time.Second)) || info.EndAt.After(after) { // the API may round
		t.Errorf("got the end %v, want the time of the pause, between %v and %v", info.EndAt, before, after)
	}
	must.Do(t, paused.Resume(t.Context(), nil))
	if info, err = paused.Info(t.Context()); err != nil || info.State != api.StateRunning || info.PauseMode != "" {
		t.Errorf("got %+v, %v, want a sandbox that runs", info, err)
	}
}
