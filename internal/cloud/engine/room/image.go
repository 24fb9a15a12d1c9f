//go:build linux

package room

import (
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// haveImages returns an error if this room cannot make a sandbox of the image in o, which has one.
// Without a root of its own a sandbox would run the programs of the host instead.
func (r *Room) haveImages(o engine.SandboxOptions) error {
	if r.level != engine.Full {
		return fmt.Errorf("%w: at the isolation level %s they have no root of their own, and would run the programs of this machine", engine.ErrNoImages, r.level)
	}
	if len(o.Layers) == 0 {
		return fmt.Errorf("the image %.300s has no layers", o.Image.Reference)
	}
	return nil
}

// ofHost returns the directories of the host that the sandbox shows, and the links at its root.
func (s *Sandbox) ofHost() (trees []string, links map[string]string) {
	if s.options.Image != nil {
		return nil, nil
	}
	return s.room.trees, s.room.links
}

// entersLate reports whether the second stage is executed outside of the sandbox's root: it may
// need libraries to start, which an image does not have.
func (s *Sandbox) entersLate() bool { return s.options.Image != nil && s.room.linked }
