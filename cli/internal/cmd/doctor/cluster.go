package doctor

import (
	"context"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
)

// checkCluster checks the cluster of the engine kubernetes. ok means that no check failed.
func (o *doctorOptions) checkCluster(ctx context.Context) (checks []check, ok bool) {
	ok = true
	for _, found := range kubelink.Examine(ctx, o.Kubernetes.Options(), o.Factory.Logger()) {
		c := check{Name: found.Name, Status: checkOK, Detail: found.Detail, Hint: found.Remedy}
		if found.Failed {
			c.Status, ok = checkFailed, false
		}
		checks = append(checks, c)
	}
	return checks, ok
}
