//go:build linux

package cloud

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestHeaderRules checks that each sandbox with header rules gets its own authority, and that other
// sandboxes get none. If a sandbox cannot have an authority, the rules are refused by name.
func TestHeaderRules(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{})
	const rules = `{"templateID":"base","network":{"rules":{"api.test":[{"transform":{"headers":{"A":"b"}}}]}}}`
	one, two, without := create(t, c, rules), create(t, c, rules), create(t, c, `{"templateID":"base"}`)
	first, second := fake.boxes[one].options, fake.boxes[two].options
	if len(first.Authority) == 0 || string(first.Authority) == string(second.Authority) {
		t.Errorf("got the authorities %s and %s, want two", first.Authority, second.Authority)
	}
	if got := fake.boxes[without].options.Authority; len(got) > 0 {
		t.Errorf("without rules: got the authority %s, want none", got)
	}
	if !first.Config.Authority {
		t.Errorf("got the configuration %+v, want it to say that there is an authority", first.Config)
	}
	fake.refuses = engine.Lackf(engine.HeaderRules, "for a test")
	if status, text := do(t, c, "POST", "/sandboxes", rules); status != 400 || !strings.Contains(text, "not supported by this local cloud: network.rules") {
		t.Errorf("got %d %s, want 400 that names network.rules", status, text)
	}
}
