//go:build linux

package local_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCommand(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	sb, err := sandbox.Create(t.Context(), cloud.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	t.Log(cloud.Report())
	t.Log(sb.ID())
}
