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

// checkDist refuses a distribution that cannot be used with env.
func (c *Cloud) checkDist(env *wasmenv.Env, room engine.Report) error {
	if c.options.PyodideDist == "" {
		return nil
	}
	if why := room.Promises[engine.Mounts]; why != "" {
		return fmt.Errorf("the Pyodide distribution in %s cannot be shown to the sandboxes that fetch packages: %s", c.options.PyodideDist, why)
	}
	return env.CheckDist(c.options.PyodideDist)
}

// shownToAll returns what every sandbox of a template is shown. Where pip runs, that is the
// Pyodide distribution, too: sandboxes of WebAssembly have their packages found there.
func (c *Cloud) shownToAll(ctx context.Context, t lifecycle.Template) ([]engine.Mount, error) {
	all, dist := c.mounts.All(), c.dist.All()
	if len(dist) == 0 {
		return all, nil
	}
	by, err := c.engines.get(ctx, t.Engine)
	if err != nil {
		return nil, err
	}
	if r := by.Report(); r.Engine != engine.Room || r.Promises[engine.Mounts] != "" {
		return all, nil
	}
	return slices.Concat(all, dist), nil
}
