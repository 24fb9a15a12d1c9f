//go:build linux

package local_test

import (
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCloseWithKernelConnection checks that Close does not wait for clients that keep
// a connection to a kernel. It used to wait for 14 seconds, until the client itself
// noticed that the connection was dead.
func TestCloseWithKernelConnection(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	sb, err := sandbox.Create(t.Context(), append(cloud.Options(), sandbox.WithCodeTransport(sandbox.CodeTransportWebsocket))...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.RunCode(t.Context(), "1", nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cloud.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	_ = sb.Close() // there is nothing left to end
}
