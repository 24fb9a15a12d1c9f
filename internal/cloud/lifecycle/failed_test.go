package lifecycle_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFailedKeepsNothing checks that a failed operation takes no place, no memory and no files.
// There is only room for one sandbox, so a resume and a pause succeed afterwards only if nothing is
// left.
func TestFailedKeepsNothing(t *testing.T) {
	t.Parallel()
	files, full := lifecycle.PauseOptions{DropMemory: true}, lifecycle.PauseOptions{}
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		before *lifecycle.PauseOptions // pause before the operation, after which the sandbox is resumed; nil: none
		from   *lifecycle.PauseOptions // pause before the operation, in which the sandbox stays; nil: none
		op     lifecycletest.Operation
		fails  func(t *testing.T, v *server, id string) error
	}{
		"a pause":                             {nil, nil, lifecycletest.Pause, func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, full) }},
		"a pause to files":                    {nil, nil, lifecycletest.Pause, func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, files) }},
		"a pause that cannot save":            {nil, nil, lifecycletest.Save, func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, full) }},
		"a pause to files that cannot save":   {nil, nil, lifecycletest.Save, func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, files) }},
		"a second pause":                      {&full, nil, lifecycletest.Pause, func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, full) }},
		"a second pause that cannot save":     {&full, nil, lifecycletest.Save, func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, full) }},
		"a second pause to files that cannot": {&files, nil, lifecycletest.Save, func(t *testing.T, v *server, id string) error { return v.Pause(t.Context(), id, files) }},
		"a resume":                            {nil, &full, lifecycletest.Resume, func(t *testing.T, v *server, id string) error { _, err := v.Resume(t.Context(), id, day); return err }},
		"a resume after another":              {&full, &full, lifecycletest.Resume, func(t *testing.T, v *server, id string) error { _, err := v.Resume(t.Context(), id, day); return err }},
		"a resume from files":                 {nil, &files, "", func(t *testing.T, v *server, id string) error { _, err := v.Resume(t.Context(), id, day); return err }},
		"a connect": {nil, &files, "", func(t *testing.T, v *server, id string) error {
			_, _, err := v.Connect(t.Context(), id, day)
			return err
		}},
		"a request": {nil, &full, lifecycletest.Resume, func(t *testing.T, v *server, id string) error { return v.Wake(t.Context(), id) }},
		"a boot of what keeps its processes": {nil, &full, "", func(t *testing.T, v *server, id string) error {
			_, err := v.Resume(t.Context(), id, reboot)
			return err
		}},
		"a snapshot": {nil, nil, lifecycletest.Checkpoint, func(t *testing.T, v *server, id string) error { _, err := v.Snapshot(t.Context(), id, nil); return err }},
		"a fork": {nil, nil, lifecycletest.Save, func(t *testing.T, v *server, id string) error {
			_, err := v.Fork(t.Context(), id, 2, time.Hour, nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lockedBuffer
			v := serve(t, t.TempDir(), func(o *lifecycle.Options) {
				o.MaxSandboxes, o.MaxFrozen, o.MaxKept = 1, 1, 1
				o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			})
			id := v.create(t)
			if tt.before != nil {
				v.pause(t, id, *tt.before)
				resume(t, v, id)
			}
			if tt.from != nil {
				v.pause(t, id, *tt.from)
			}
			was := v.get(t, id)
			v.fakes.Fake(id).Use(100)
			v.fail(tt.op, broken)
			if tt.op == "" {
				v.fakes.Fail(broken)
			}
			if err := tt.fails(t, v, id); !errors.Is(err, broken) {
				t.Errorf("got error %v, want %v", err, broken)
			}
			if lines := log.String(); !strings.Contains(lines, "sandbox="+id) || !strings.Contains(lines, "broken") {
				t.Errorf("the log has %q, want the sandbox and the error", lines)
			}
			if got := v.get(t, id); got.State != was.State {
				t.Errorf("it is %v, want it %v", got.State, was.State)
			}
			for _, wrong := range v.Unbalanced() {
				t.Error(wrong)
			}
			v.fail(tt.op, nil)
			v.fakes.Fail(nil)
			if was.State == lifecycle.Paused {
				resume(t, v, id)
			}
			v.pause(t, id, full)
			for _, wrong := range v.Unbalanced() {
				t.Error(wrong)
			}
			v.end(t)
		})
	}
}

// TestMergeFails checks that nothing of a snapshot, and of its memory, is left if its layers cannot
// be merged.
func TestMergeFails(t *testing.T) {
	t.Parallel()
	v := remember(t, t.TempDir(), shared)
	id := v.create(t)
	var chain []string
	for {
		made, err := v.Snapshot(t.Context(), id, nil)
		must.Do(t, err)
		v.layers.Release(chain...)
		chain = made.Layers
		kill(t, v, id)
		sb, err := v.Create(t.Context(), lifecycle.Request{Template: base, Lifetime: time.Hour, Layers: chain})
		must.Do(t, err)
		if id = sb.ID; len(sb.Layers) == 12 {
			break
		}
	}
	dirs, err := v.layers.Hold(chain[0])
	if err == nil {
		err = os.Remove(filepath.Join(dirs[0], "files"))
	}
	must.Do(t, err)
	v.layers.Release(chain[0])
	_, err = v.Snapshot(t.Context(), id, nil)
	if _, ok := errors.AsType[*lifecycle.SaveError](err); !ok || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want a *SaveError about the file that is not there", err)
	}
	v.layers.Release(chain...)
	wantLayers(t, v, 12)
	kill(t, v, id)
	wantLayers(t, v, 0)
	v.end(t)
}

// TestSetEgressRefused checks that an engine without network rules refuses new ones, and that the
// record of the sandbox keeps the old ones.
func TestSetEgressRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fakes.Lacks = map[engine.Feature]string{engine.NetworkRules: "its network is not ours"}
	id := s.create(t)
	err := s.SetEgress(id, lifecycle.Network{DenyOut: []string{"10.0.0.0/8"}}, nil)
	if refused, is := errors.AsType[*lifecycle.RefusedError](err); !is || refused.Reason != "its network is not ours" {
		t.Errorf("got %v", err)
	}
	if n := s.get(t, id).Network; n != nil {
		t.Errorf("the record has the refused rules: %+v", n)
	}
}

// TestSetEgressKeepsTheRest checks that an update replaces all rules for outgoing connections and
// nothing else, whether or not the sandbox was created with a network.
func TestSetEgressKeepsTheRest(t *testing.T) {
	t.Parallel()
	old := &lifecycle.Network{
		AllowOut: []string{"a.test"}, DenyOut: []string{"0.0.0.0/0"}, NameServers: []string{"203.0.113.1"},
		Headers: map[string]map[string]string{"a.test": {"A": "b"}}, Proxy: &network.EgressProxy{Address: "a.test:1080"}, Ask: true, AllowPublicTraffic: new(false), MaskHost: "mask.test", HTTPSPorts: []int{443},
	}
	asked := lifecycle.Network{
		AllowOut: []string{"b.test"}, DenyOut: []string{"0.0.0.0/0", "10.0.0.0/8"}, NameServers: []string{"203.0.113.2"},
		Headers: map[string]map[string]string{"b.test": {"C": "d"}}, Proxy: &network.EgressProxy{Address: "b.test:1080"}, Ask: true, AllowPublicTraffic: new(true), MaskHost: "other.test", HTTPSPorts: []int{8443},
	}
	nothing := lifecycle.Network{AllowPublicTraffic: new(true), MaskHost: "other.test", HTTPSPorts: []int{8443}}
	for _, made := range []*lifecycle.Network{old, nil, {}} {
		for _, asked := range []lifecycle.Network{asked, nothing} {
			s := newStage(t)
			id := s.create(t, func(q *lifecycle.Request) { q.Network, q.Headers = made, true })
			was := s.get(t, id)
			want := was
			kept := lifecycle.Network{}
			if made != nil {
				kept = *made
			}
			want.Network = &lifecycle.Network{
				AllowOut: asked.AllowOut, DenyOut: asked.DenyOut, NameServers: asked.NameServers, Headers: asked.Headers, Proxy: asked.Proxy, Ask: asked.Ask,
				AllowPublicTraffic: kept.AllowPublicTraffic, MaskHost: kept.MaskHost, HTTPSPorts: kept.HTTPSPorts,
			}
			rules, err := asked.Rules(nil)
			if err == nil {
				err = s.SetEgress(id, asked, rules)
			}
			must.Do(t, err)
			all := cmp.FilterValues(func(_, _ *network.Rules) bool { return true }, cmp.Ignore())
			if diff := cmp.Diff(want, s.get(t, id), all); diff != "" {
				t.Errorf("the record (-want +got):\n%s", diff)
			}
			if got := s.fakes.Fake(id).Rules(); got != rules {
				t.Errorf("the sandbox has the rules %v, want those that were asked for", got)
			}
			_ = s.Close()
		}
	}
}
