//go:build linux

package e2e

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// Commands run as the last user of a template, and kernels as root, as on the service.
func TestKernelUser(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	if cloud.Report().UserIDs == 1 {
		t.Skip("sandboxes have one user id here, so that there is no other user")
	}
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	b := &builder{client: client, dir: t.TempDir()}
	b.must(t, "nobody", template.FromTemplate("code-interpreter-v1").User("nobody"))
	sb := cloud.Create(t, sandbox.WithTemplate("nobody"))
	if got := sandboxtest.Run(t, sb, "id -u"); got != "65534" {
		t.Errorf("commands run as %q, want nobody", got)
	}
	ex, err := sb.RunCode(t.Context(), "import os; os.getuid()", nil)
	if err != nil || ex.Text() != "0" {
		t.Errorf("kernels run as %v, %v, want root", ex, err)
	}
}
