package cloud

import (
	"errors"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
)

// show opens the requested directories of the host for a sandbox. The caller must call closeAll
// when the sandbox has started, and also after an error.
func (c *Cloud) show(asked []mounts.Mount) (shown []engine.Mount, closeAll func(), err error) {
	closeAll = func() {
		for _, m := range shown {
			m.File.Close()
		}
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
