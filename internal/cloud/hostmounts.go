package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// show opens the requested directories of the host for a sandbox. The caller must call closeAll
// when the sandbox has started, and also after an error.
func (c *Cloud) show(asked []mounts.Mount) (shown []engine.Mount, closeAll func(), err error) {
	closeAll = func() {
		for _, m := range shown {
			m.File.Close()
		}
	}
	if len(asked) > 0 && c.options.Service != nil {
		return nil, closeAll, &lifecycle.RefusedError{Reason: "mounts: a server shows no directories of its machine: copy the files into the sandbox, or use a volume", Forbidden: true}
	}
	for _, m := range asked {
		found, err := c.mounts.Find(m)
		if err != nil {
			if denied, ok := errors.AsType[*mounts.DeniedError](err); ok {
				err = &lifecycle.RefusedError{Reason: "mounts: " + denied.Error(), Forbidden: true}
			}
			return shown, closeAll, err
		}
		shown = append(shown, found)
	}
	return shown, closeAll, nil
}

// openDist opens the directory of a Pyodide distribution. It returns nil if dir is "".
func openDist(dir string) (*mounts.Set, error) {
	var all []mounts.Mount
	if dir != "" {
		if err := wasmenv.CheckDist(dir); err != nil {
			return nil, err
		}
		all = append(all, mounts.Mount{Dir: dir, Path: protocol.PyodideDist})
	}
	set, err := mounts.Open(mounts.Options{All: all})
	if err != nil {
		return nil, fmt.Errorf("the Pyodide distribution: %w", err)
	}
	return set, nil
}

// shownTo returns the mounts that a sandbox has without a request. Every sandbox has the directories
// that the owner of the cloud mounts in all sandboxes. A sandbox in a room that runs pip for a
// sandbox of engine.Wasm also has the Pyodide distribution. Other sandboxes do not have the
// distribution, because a sandbox with mounts cannot come from the warm pool.
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
