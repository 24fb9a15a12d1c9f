//go:build linux

package local_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestCloseWithKernelConnection checks that Close does not wait for clients that keep
// a connection to a kernel. It used to wait for 14 seconds, until the client itself
// noticed that the connection was dead.
func TestCloseWithKernelConnection(t *testing.T) {
	t.Parallel()
	patience.SoonAfter(t, "Close", 5*time.Second, func() func() {
		cloud := sandboxtest.New(t, local.WithWarm(0))
		sb, err := sandbox.Create(t.Context(), cloud.Option(), sandbox.WithCodeTransport(sandbox.CodeTransportWebsocket), sandbox.WithEnvs(startsCold))
		must.Do(t, err)
		t.Cleanup(func() { _ = sb.Close() }) // there is nothing left to end
		if _, err := sb.RunCode(t.Context(), "1", nil); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := cloud.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCallsAfterClose checks that after Close of the cloud every call returns that it is
// closed, and that closing its handles is no error.
func TestCallsAfterClose(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	sb, err := client.Create(t.Context(), sandbox.WithEnvs(startsCold))
	must.Do(t, err)
	if _, err := sb.RunCode(t.Context(), "1", nil); err != nil {
		t.Fatal(err)
	}
	command, err := sb.Commands.Start(t.Context(), "exec sleep 1000", nil)
	must.Do(t, err)
	must.Do(t, cloud.Close())
	for name, call := range map[string]func() error{
		"Wait":      func() error { _, err := command.Wait(t.Context()); return err },
		"RunCode":   func() error { _, err := sb.RunCode(t.Context(), "1", nil); return err },
		"Run":       func() error { _, err := sb.Commands.Run(t.Context(), "true", nil); return err },
		"Read":      func() error { _, err := sb.Files.Read(t.Context(), "/etc/passwd", nil); return err },
		"Info":      func() error { _, err := sb.Info(t.Context()); return err },
		"Dial":      func() error { _, err := sb.Dial(t.Context(), 80); return err },
		"Create":    func() error { _, err := client.Create(t.Context()); return err },
		"a new one": func() error { _, err := sandbox.Create(t.Context(), cloud.Option()); return err },
	} {
		err := call()
		if !errors.Is(err, local.ErrClosed) || !errors.Is(err, sandbox.ErrGone) || !strings.Contains(err.Error(), "the local cloud at "+cloud.URL()+" was closed") {
			t.Errorf("%s: got %v, want %v", name, err, local.ErrClosed)
		}
	}
	if err := sb.Close(); err != nil {
		t.Errorf("Close of a sandbox: got %v, want no error", err)
	}
}
