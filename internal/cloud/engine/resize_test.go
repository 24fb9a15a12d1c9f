package engine

import "testing"

// TestInUse checks that the error tells the use and the limit of the resource.
func TestInUse(t *testing.T) {
	t.Parallel()
	err := &InUseError{Resource: "memory", Used: 20, Most: 10}
	if want := "it uses 20 bytes of memory, and 10 bytes are less"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
