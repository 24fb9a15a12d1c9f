//go:build linux

package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(withShared{m})
}

// sharedCloud is the cloud of all tests that change only their own sandboxes:
// loading its kernels' modules is more work than most tests are.
var sharedCloud struct {
	start sync.Once
	cloud *local.Cloud
	err   error
}

// shared returns a cloud that other tests use too. A test that moves its clock,
// lists its sandboxes or reads its requests needs a cloud of its own.
func shared(t *testing.T) *sandboxtest.Cloud {
	t.Helper()
	sharedCloud.start.Do(func() {
		// The cloud outlives t, so it cannot use t's log and context. It logs
		// only problems: more output would hide the messages of a failed test in
		// CI.
		logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		sharedCloud.cloud, sharedCloud.err = local.Start(context.Background(), local.WithLogger(logger))
	})
	if sharedCloud.err != nil {
		sandboxtest.New(t) // skips t if this machine cannot run a cloud
		t.Fatal(sharedCloud.err)
	}
	return &sandboxtest.Cloud{Cloud: sharedCloud.cloud}
}

// withShared runs the tests and then closes the cloud that they shared, before
// the check for leftovers.
type withShared struct{ *testing.M }

func (m withShared) Run() int {
	code := m.M.Run()
	if err := sharedCloud.cloud.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "close the shared cloud:", err)
		return 1
	}
	return code
}

// whenWritten cancels a context as soon as anything is written to it.
type whenWritten struct{ cancel context.CancelFunc }

func (w whenWritten) Write(p []byte) (int, error) {
	w.cancel()
	return len(p), nil
}
