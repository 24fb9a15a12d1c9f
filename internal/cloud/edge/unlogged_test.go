package edge

import (
	"os"
	"testing"
)

// TestBrokenCopiesAreNotLogged checks that connections that break off write nothing to the log of the
// process.
func TestBrokenCopiesAreNotLogged(t *testing.T) {
	t.Parallel()
	if log := New(Options{}).proxy.ErrorLog; log == nil || log.Writer() == os.Stderr {
		t.Error("the proxy writes to the log of the process")
	}
}
