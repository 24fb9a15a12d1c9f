//go:build linux

package e2e

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// A name has one sandbox for all callers, as long as the sandbox exists.
func TestGetOrCreate(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	get := func(name string, opts ...sandbox.CreateOption) *sandbox.Sandbox {
		t.Helper()
		sb, err := client.GetOrCreate(t.Context(), name, opts...)
		must.Do(t, err)
		t.Cleanup(func() { _ = sb.Close() })
		return sb
	}
	// Ten callers at once get one.
	var all sync.WaitGroup
	found := make([]*sandbox.Sandbox, 10)
	errs := make([]error, len(found))
	for i := range found {
		all.Go(func() {
			found[i], errs[i] = client.GetOrCreate(t.Context(), "chat 7", sandbox.WithExpiry(sandbox.Expiry{After: time.Minute}))
		})
	}
	all.Wait()
	for i, sb := range found {
		must.Do(t, errs[i])
		if sb.ID() != found[0].ID() {
			t.Errorf("one caller got %s, another %s", found[0].ID(), sb.ID())
		}
	}
	if other := get("chat 8"); other.ID() == found[0].ID() {
		t.Error("two names have one sandbox")
	}
	// No handle owns the sandbox.
	if _, err := found[0].RunCode(t.Context(), "x = 42", nil); err != nil {
		t.Fatal(err)
	}
	for _, sb := range found {
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
	// At its end it is paused, and resumed.
	cloud.Advance(time.Minute)
	id := found[0].ID()
	patience.Until(t, "it is paused", func() bool {
		info, err := client.Info(t.Context(), id)
		return err == nil && info.State == api.StatePaused
	})
	again := get("chat 7", sandbox.WithTemplate(sandbox.DefaultTemplate))
	if got := sandboxtest.Eval(t, again, "x"); again.ID() != id || got != "42" {
		t.Errorf("got %s with x = %s, want %s with 42", again.ID(), got, id)
	}
	// Another template is refused, and the sandbox stays.
	if _, err := client.GetOrCreate(t.Context(), "chat 7", sandbox.WithTemplate("base")); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), id) {
		t.Errorf("another template: got %v, want api.ErrConflict with the id", err)
	}
	// So are other resources, and the same ones are not.
	info, err := client.Info(t.Context(), id)
	must.Do(t, err)
	same := sandbox.Resources{CPUs: float64(info.CPUs), MemoryBytes: info.MemoryBytes, DiskBytes: info.DiskBytes}
	for _, r := range []sandbox.Resources{{CPUs: same.CPUs + 1}, {MemoryBytes: same.MemoryBytes * 2}, {CPUs: same.CPUs, DiskBytes: same.DiskBytes + 1<<20}} {
		if _, err := client.GetOrCreate(t.Context(), "chat 7", sandbox.WithResources(r)); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), "Resize") {
			t.Errorf("%+v instead of %+v: got %v, want %v", r, same, err, api.ErrConflict)
		}
	}
	again = get("chat 7", sandbox.WithResources(same))
	// The same holds for one that was paused by hand.
	must.Do(t, again.Pause(t.Context(), nil))
	again = get("chat 7")
	if got := sandboxtest.Eval(t, again, "x"); again.ID() != id || got != "42" {
		t.Errorf("paused by hand: got %s with x = %s, want %s with 42", again.ID(), got, id)
	}
	// A sandbox labelled by a program of another kind is found, and left.
	foreign := cloud.Create(t, sandbox.WithMetadata(map[string]string{sandbox.NameLabel: "foreign"}))
	found[0] = get("foreign")
	if err := found[0].Close(); err != nil || found[0].ID() != foreign.ID() {
		t.Errorf("a foreign one: got %s, %v, want %s", found[0].ID(), err, foreign.ID())
	}
	if _, err := foreign.Commands.Run(t.Context(), "true", nil); err != nil {
		t.Errorf("a foreign one after Close of the handle: %v", err)
	}
	// One that was killed is created anew.
	must.Do(t, again.Kill(t.Context()))
	if fresh := get("chat 7"); fresh.ID() == id {
		t.Error("a sandbox that was killed is returned")
	}
	for _, name := range []string{"", strings.Repeat("n", 257), "\xff"} {
		if _, err := client.GetOrCreate(t.Context(), name); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("the name %q: got %v, want api.ErrInvalidArgument", name, err)
		}
	}
}

// A name may have any characters, and matches only itself.
func TestGetOrCreateOddNames(t *testing.T) {
	t.Parallel()
	client, err := sandbox.NewClient(shared(t).Option())
	must.Do(t, err)
	defer client.Close()
	seen := map[string]string{}
	for _, name := range []string{"odd", "odd ", "odd\n", "odd\r", "odd\x00", "odd&odd=1+%20#", "odd\u202e\ufffd", "=", "*"} {
		for range 2 {
			sb, err := client.GetOrCreate(t.Context(), name)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			t.Cleanup(func() { _ = sb.Kill(t.Context()) })
			if other, ok := seen[sb.ID()]; ok && other != name {
				t.Errorf("%q and %q have one sandbox", name, other)
			}
			seen[sb.ID()] = name
		}
	}
	if len(seen) != 9 {
		t.Errorf("9 names have %d sandboxes", len(seen))
	}
}

// A service that always refuses, or always says that the sandbox is gone, is not asked for ever.
func TestGetOrCreateEnds(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	cloud.Inject(t, local.Fault{Operation: local.OpCreateSandbox, Status: http.StatusConflict, Message: "for another reason", Times: -1})
	if _, err := client.GetOrCreate(t.Context(), "name"); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), "for another reason") {
		t.Errorf("always a conflict: %v, want api.ErrConflict and the reason", err)
	}
	again := sandboxtest.New(t, local.WithWarm(0))
	client, err = sandbox.NewClient(again.Option())
	must.Do(t, err)
	defer client.Close()
	if _, err := client.GetOrCreate(t.Context(), "name"); err != nil {
		t.Fatal(err)
	}
	again.Inject(t, local.Fault{Operation: local.OpConnectSandbox, Status: http.StatusNotFound, Times: -1})
	if _, err := client.GetOrCreate(t.Context(), "name"); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("always gone: %v, want sandbox.ErrGone", err)
	}
}
