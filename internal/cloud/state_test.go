//go:build linux

package cloud

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// A cloud with the state directory of an earlier one has its key, and only one has it at
// a time.
func TestState(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	first, _ := startFake(t, Options{State: state})
	if status, text := do(t, first, "GET", "/sandboxes", ""); status != 200 {
		t.Errorf("got %d %s, want the key to be accepted", status, text)
	}
	_, err := start(t.Context(), Options{State: state, Dir: t.TempDir()}, openRoom)
	if inUse, ok := errors.AsType[*store.InUseError](err); !ok || inUse.PID != os.Getpid() {
		t.Errorf("a second cloud: got %v, want it to be in use by process %d", err, os.Getpid())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, _ := startFake(t, Options{State: state})
	if got, want := second.Key(), first.Key(); got != want {
		t.Errorf("after a restart: got another key, want the same")
	}
	if status, text := do(t, second, "GET", "/sandboxes", ""); status != 200 {
		t.Errorf("got %d %s, want the key to be accepted", status, text)
	}
	given, _ := startFake(t, Options{Key: "e2b_" + strings.Repeat("0", 40)})
	other, _ := startFake(t, Options{})
	if given.Key() == other.Key() || other.Key() == first.Key() {
		t.Error("clouds without a state directory in common have the same key")
	}
}
