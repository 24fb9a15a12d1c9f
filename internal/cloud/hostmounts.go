package cloud

import (
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
)

// show opens the directories of the host that a sandbox is to see. The caller calls closeAll,
// also after an error, when the sandbox has started.
func (c *Cloud) show(by engine.Report, asked []mounts.Mount) (shown []engine.Mount, closeAll func(), err error) {
	var opened []mounts.Found
	closeAll = func() {
		for _, m := range opened {
			m.File.Close()
		}
	}
	for _, m := range asked {
		found, err := c.mounts.Find(m)
		if err != nil {
			if denied, ok := errors.AsType[*mounts.DeniedError](err); ok {
				err = &lifecycle.RefusedError{Reason: "mounts: " + denied.Error(), Forbidden: true}
			}
			return nil, closeAll, err
		}
		opened = append(opened, found)
		if found.Below && by.Engine == engine.Docker {
			// Another sandbox that can write there could put a link in its place before the
			// engine looks, which finds it by its name.
			return nil, closeAll, &lifecycle.RefusedError{Reason: fmt.Sprintf("not supported by the %s engine: mounts: %q is below a directory that is allowed, and only that itself can be shown: allow it by its own name", by.Engine, m.Dir)}
		}
		shown = append(shown, found.Mount)
	}
	return shown, closeAll, nil
}
