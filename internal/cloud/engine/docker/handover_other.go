//go:build !linux

package docker

import (
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// canShow: this system has the mounts that it takes.
const canShow = false

// handover has no mounts on this system, where they are refused before.
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
