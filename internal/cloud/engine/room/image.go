//go:build linux

package room

// ofHost returns the directories of the host that the sandbox shows, and the links at its root.
func (s *Sandbox) ofHost() (trees []string, links map[string]string) {
	if s.options.Image != nil {
		return nil, nil
	}
	return s.room.trees.paths, s.room.trees.links
}

// entersLate reports whether the second stage is executed outside of the sandbox's root. That is
// necessary with an image: the second stage may need libraries to start, and an image does not have
// them.
func (s *Sandbox) entersLate() bool { return s.options.Image != nil && s.room.keeper.linked }
