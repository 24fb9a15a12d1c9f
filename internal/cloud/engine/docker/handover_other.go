//go:build !linux

package docker

import (
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// canShow reports that this system lacks the mounts that a handover needs.
const canShow = false

// handover is empty on this system, because the engine refuses mounts before it makes a handover.
type handover struct {
	dir    string
	mounts []engine.Mount
}

func newHandover([]engine.Mount) (*handover, error) { return nil, nil }

func (*handover) path(int) string                 { return "" }
func (*handover) mark() string                    { return "" }
func (*handover) attach(*os.File, int, int) error { return nil }
func (*handover) detach() error                   { return nil }
func (*handover) Close() error                    { return nil }

func sweepHandovers() error { return nil }
