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

// A commonCloud is a cloud that several tests use. It is started for the first of them: loading its
// kernels' modules is more work than most tests are.
type commonCloud struct {
	start sync.Once
	cloud *local.Cloud
	err   error
}

// The cloud sharedCloud is that of all tests that change only their own sandboxes. The cloud forkingCloud is
// that of the tests of kernels that wait in sandboxes, which others would take.
var sharedCloud, forkingCloud commonCloud

// get returns the cloud. It skips t if this machine cannot run a cloud.
func (c *commonCloud) get(t *testing.T) *sandboxtest.Cloud {
	t.Helper()
	c.start.Do(func() {
		// The cloud outlives t, so it cannot use t's log and context. It logs
		// only problems: more output would hide the messages of a failed test in
		// CI.
		logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.cloud, c.err = local.Start(context.Background(), local.WithLogger(logger))
	})
	if c.err != nil {
		sandboxtest.New(t) // skips t if this machine cannot run a cloud
		t.Fatal(c.err)
	}
	return &sandboxtest.Cloud{Cloud: c.cloud}
}

// shared returns a cloud that other tests use too. A test that moves its clock,
// lists its sandboxes or reads its requests needs a cloud of its own.
func shared(t *testing.T) *sandboxtest.Cloud {
	t.Helper()
	return sharedCloud.get(t)
}

// withShared runs the tests and then closes the clouds that they shared, before
// the check for leftovers.
type withShared struct{ *testing.M }

func (m withShared) Run() int {
	code := m.M.Run()
	for _, common := range []*commonCloud{&sharedCloud, &forkingCloud} {
		if err := common.cloud.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close a shared cloud:", err)
			code = 1
		}
	}
	return code
}

// whenWritten cancels a context as soon as anything is written to it.
type whenWritten struct{ cancel context.CancelFunc }

func (w whenWritten) Write(p []byte) (int, error) {
	w.cancel()
	return len(p), nil
}
