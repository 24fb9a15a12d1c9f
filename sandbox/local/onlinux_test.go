package local

import (
	"errors"
	"strings"
	"testing"
)

func TestOnLinux(t *testing.T) {
	t.Parallel()
	for system, supported := range map[string]bool{"linux": true, "darwin": false, "windows": false} {
		err := onLinux(EngineWasm, system)
		if errors.Is(err, ErrUnsupported) == supported || (err == nil) != supported {
			t.Errorf("%s: got %v, want it to be supported: %v", system, err, supported)
		}
		if !supported && (!strings.Contains(err.Error(), system) || !strings.Contains(err.Error(), "the engine wasm: it runs on Linux only")) {
			t.Errorf("got %v, want the system, the engine and the reason", err)
		}
	}
}
