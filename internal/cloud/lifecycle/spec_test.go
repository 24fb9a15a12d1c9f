package lifecycle_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSpecIsWhole checks that a sandbox is launched with everything that was requested for it, even
// when it is launched again from its own files, or from the files of the sandbox that it was copied
// from.
func TestSpecIsWhole(t *testing.T) {
	t.Parallel()
	v := serve(t, t.TempDir(), shared)
	asked := lifecycle.Request{
		Template: lifecycle.Template{ID: base.ID, Alias: "base", User: "me", Home: "/home/me", Workdir: "/work", Start: "start", Ready: "ready", Engine: engine.Room, Image: &engine.Image{Reference: "a", Digest: "b"}},
		Lifetime: time.Hour, Secure: true, Envs: map[string]string{"A": "1"}, Metadata: map[string]string{"m": "n"}, Internet: new(true),
		Network:   &lifecycle.Network{AllowOut: []string{"a.test"}, DenyOut: []string{"0.0.0.0/0"}, AllowPublicTraffic: new(false), MaskHost: "mask.test", HTTPSPorts: []int{443}},
		AutoPause: true, KeepMemory: true, AutoResume: true, Headers: true, Idle: time.Minute,
		Volumes: []lifecycle.VolumeMount{{ID: "1", Name: "data", Path: "/data"}}, Mounts: []mounts.Mount{{Dir: "/dir", Path: "/mounted", Writable: true}},
	}
	sb, err := v.Create(t.Context(), asked)
	must.Do(t, err)
	first := v.fakes.Spec(sb.ID)
	want := lifecycle.Spec{
		ID: sb.ID, Template: asked.Template, AccessToken: sb.AccessToken, TrafficToken: sb.TrafficToken, MaskHost: "mask.test", HTTPSPorts: []int{443},
		Envs: asked.Envs, Metadata: asked.Metadata, Volumes: asked.Volumes, Mounts: asked.Mounts, Headers: true, AutoPause: true, KeepMemory: true, AutoResume: true,
	}
	var empty []string // PublicPorts is false, because the traffic is private
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			empty = append(empty, v.Type().Field(i).Name)
		}
	}
	if diff := cmp.Diff([]string{"PublicPorts", "Egress", "Asks", "Layers", "Files", "Memory", "Use"}, empty); diff != "" {
		t.Errorf("the fields that are not compared (-want +got):\n%s", diff)
	}
	check := func(what string, got lifecycle.Spec) {
		t.Helper()
		rules, err := asked.Network.Rules(asked.Internet)
		must.Do(t, err)
		if got.Asks == nil || !reflect.DeepEqual(got.Egress, rules) {
			t.Errorf("%s: got the rules %v and %v to ask with, want both", what, got.Egress, got.Asks)
		}
		if got.Use == nil {
			t.Errorf("%s: its uses are not noted", what)
		}
		got.Egress, got.Asks, got.Use, got.Layers, got.Files, got.Memory = nil, nil, nil, nil, "", ""
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("created", first)
	v.pause(t, sb.ID, lifecycle.PauseOptions{DropMemory: true})
	resume(t, v, sb.ID)
	again := v.fakes.Spec(sb.ID)
	check("resumed from its files", again)
	if again.Files == "" || again.Asks != first.Asks {
		t.Errorf("got the files %q and other questions: %v, want its files and its own questions", again.Files, again.Asks != first.Asks)
	}
	forks, err := v.Fork(t.Context(), sb.ID, 1, time.Hour, nil)
	must.Do(t, err)
	must.Do(t, forks[0].Err)
	child := forks[0].Sandbox
	want.ID, want.AccessToken, want.TrafficToken = child.ID, child.AccessToken, child.TrafficToken
	check("a copy", v.fakes.Spec(child.ID))
	if child.ID == sb.ID || child.AccessToken == sb.AccessToken || child.TrafficToken == sb.TrafficToken {
		t.Error("a copy has the id or a token of its source")
	}
}
