package lifecycle_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

func isRefused(err error) bool {
	_, ok := errors.AsType[*lifecycle.RefusedError](err)
	return ok
}

func isSave(err error) bool {
	_, ok := errors.AsType[*lifecycle.SaveError](err)
	return ok
}

// TestRefusals checks calls that are refused for their arguments or for the sandbox that they name, and
// that the sandbox runs on unchanged.
func TestRefusals(t *testing.T) {
	t.Parallel()
	silent := errors.New("silent")
	unhealthy := func(err error) bool { return errors.Is(err, lifecycle.ErrUnhealthy) && errors.Is(err, silent) }
	pause := func(o lifecycle.PauseOptions) func(*server, string) error {
		return func(v *server, id string) error {
			v.fail(lifecycletest.Healthy, silent)
			return v.Pause(v.t.Context(), id, o)
		}
	}
	egress := func(n lifecycle.Network) func(*server, string) error {
		return func(v *server, id string) error { return v.SetEgress(id, n, nil) }
	}
	for name, tt := range map[string]struct {
		call func(v *server, id string) error
		is   func(error) bool
	}{
		"a pause that requires envd":    {pause(lifecycle.PauseOptions{RequireHealthy: true}), unhealthy},
		"a pause to files without envd": {pause(lifecycle.PauseOptions{DropMemory: true}), unhealthy},
		"headers without a certificate": {egress(lifecycle.Network{Headers: map[string]map[string]string{"a.test": {"A": "b"}}}), isRefused},
		"requests without a certificate": {egress(lifecycle.Network{
			DenyOut: []string{"0.0.0.0/0"}, Requests: map[string][]network.Request{"a.test": {{Path: "/"}}},
		}), isRefused},
		"questions of another": {func(v *server, _ string) error { _, err := v.Asks("iother"); return err }, isNotFound},
		"a pause without room on the disk": {func(v *server, id string) error {
			must.Do(v.t, os.RemoveAll(filepath.Join(v.dir, "new")))
			must.Do(v.t, os.WriteFile(filepath.Join(v.dir, "new"), nil, 0o600))
			return v.Pause(v.t.Context(), id, lifecycle.PauseOptions{DropMemory: true})
		}, isSave},
	} {
		v := serve(t, t.TempDir())
		id := v.create(t)
		was := v.get(t, id)
		if err := tt.call(v, id); !tt.is(err) {
			t.Errorf("%s: got error %v", name, err)
		}
		if sb := v.get(t, id); sb.State != lifecycle.Running || sb.Network != was.Network || v.fakes.Fake(id).Paused() {
			t.Errorf("%s: got %+v, want it to run as before", name, sb)
		}
		if some := v.List(func(*lifecycle.Sandbox) bool { return false }); len(some) != 0 {
			t.Errorf("%s: a list of none has %d", name, len(some))
		}
		v.fail(lifecycletest.Healthy, nil)
		v.end(t)
	}
}

// TestUnresponsiveBoots checks that a sandbox whose envd did not answer at its pause can be booted.
func TestUnresponsiveBoots(t *testing.T) {
	t.Parallel()
	v := remember(t, t.TempDir())
	id := v.taught(t)
	v.fail(lifecycletest.Healthy, errors.New("silent"))
	pauseFull(t, v, id)
	_, err := v.Resume(t.Context(), id, reboot)
	must.Do(t, err)
	v.wantTaught(t, id, "files before", "")
	v.end(t)
}
