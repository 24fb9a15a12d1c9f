package pyshim_test

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/pyshim"
)

// TestCalls checks the expressions of calls, whose arguments are strings and both kinds of integers.
func TestCalls(t *testing.T) {
	t.Parallel()
	const modules = `__import__("sys").modules`
	for _, tt := range []struct{ got, want string }{
		{pyshim.Call("f"), modules + `["_e2bctl_state"].f()`},
		{pyshim.Call("f", "é", -3, int64(1)<<40), modules + `["_e2bctl_state"].f("\u00e9", -3, 1099511627776)`},
		{pyshim.CallTools("g", ""), modules + `["_e2bctl_tools"].g("")`},
		{pyshim.CallGuard("h", 0), modules + `["_e2bctl_guard"].h(0)`},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("got no panic for a float, want one")
		}
	}()
	pyshim.Call("f", 1.5)
}

// TestWhoIsNotInstalled checks that only a KeyError that names the module means that it is missing.
func TestWhoIsNotInstalled(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value  string
		state, guard bool
	}{
		{"KeyError", "'_e2bctl_state'", true, false},
		{"KeyError", "'_e2bctl_guard'", false, true},
		{"KeyError", "'other'", false, false},
		{"ValueError", "'_e2bctl_state' '_e2bctl_guard'", false, false},
	} {
		if got := pyshim.NotInstalled(tt.name, tt.value); got != tt.state {
			t.Errorf("the modules, %s %s: got %v, want %v", tt.name, tt.value, got, tt.state)
		}
		if got := pyshim.GuardNotInstalled(tt.name, tt.value); got != tt.guard {
			t.Errorf("the guard, %s %s: got %v, want %v", tt.name, tt.value, got, tt.guard)
		}
	}
}
