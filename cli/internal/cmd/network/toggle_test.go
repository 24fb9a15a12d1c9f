package network

import "testing"

// TestToggle checks the values of a flag that is on, off or not given.
func TestToggle(t *testing.T) {
	t.Parallel()
	for value, valid := range map[string]bool{"on": true, "off": true, "": false, "ON": false, "true": false} {
		var set toggle
		if got := set.String(); got != "" {
			t.Errorf("before it is set, got %q", got)
		}
		err := set.Set(value)
		if (err == nil) != valid || (set.on != nil) != valid {
			t.Errorf("%q: got error %v, want it to be valid: %v", value, err, valid)
		}
		if valid && (*set.on != (value == "on") || set.String() != value) {
			t.Errorf("%q: got %q", value, set.String())
		}
	}
}
