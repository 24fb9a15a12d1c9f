package cloud

import (
	"context"
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// openDist opens a Pyodide distribution; "" is none.
func openDist(dir string) (*mounts.Set, error) {
	var all []mounts.Mount
	if dir != "" {
		if err := wasmenv.CheckDist(dir); err != nil {
			return nil, fmt.Errorf("cloud: %w", err)
		}
		all = append(all, mounts.Mount{Dir: dir, Path: protocol.PyodideDist})
	}
	set, err := mounts.Open(mounts.Options{All: all})
	if err != nil {
		return nil, fmt.Errorf("cloud: the Pyodide distribution: %w", err)
	}
	return set, nil
}

// shownTo returns what a sandbox is shown besides what was asked for: what every one is, and
// the Pyodide distribution to one in which pip runs for a sandbox of WebAssembly. Others begin
// as the one that is kept ready, which has no mounts.
func (c *Cloud) shownTo(ctx context.Context, spec lifecycle.Spec) ([]engine.Mount, error) {
	all, dist := c.mounts.All(), c.dist.All()
	if len(dist) == 0 || spec.Metadata[protocol.PipFor] == "" {
		return all, nil
	}
	by, err := c.engines.get(ctx, spec.Template.Engine)
	if err != nil {
		return nil, err
	}
	if r := by.Report(); r.Engine != engine.Room || r.Promises[engine.Mounts] != "" {
		return all, nil
	}
	return slices.Concat(all, dist), nil
}
