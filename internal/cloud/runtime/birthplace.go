//go:build linux

package runtime

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
)

// birthplace is where a process is born: in the groups that the thread is in that
// starts it. Only hierarchies that take threads are part of it.
type birthplace struct {
	groups []*os.File // to be joined first
	home   []*os.File // where the thread goes back to
}

// openBirthplace gives the groups of a birthplace.
func (s *group) openBirthplace() ([]*os.File, error) { return openGroups(takingThreads(s.dirs)) }

// openHome gives the home of every birthplace: the instance's own groups, which
// limit nothing.
func (g *groups) openHome() ([]*os.File, error) {
	return openGroups(takingThreads(slices.Collect(maps.Values(g.byController))))
}

func takingThreads(dirs []hierarchy) []hierarchy {
	return slices.DeleteFunc(slices.Clone(dirs), func(h hierarchy) bool { return !h.takesThreads() })
}

// start starts a command. It is called on a locked thread. An error that [errAway]
// is is the end of this process: where its thread stays, it is killed with the
// group's.
func (b birthplace) start(cmd *exec.Cmd) error {
	if len(b.groups) == 0 {
		return cmd.Start()
	}
	err := joinGroups(b.groups)
	if err == nil {
		err = cmd.Start()
	}
	if away := joinGroups(b.home); away != nil {
		return errors.Join(err, errAway, away)
	}
	return err
}

var errAway = errors.New("a thread stays in a sandbox's group")

// joinGroups moves this thread into groups.
func joinGroups(groups []*os.File) error {
	for _, g := range groups {
		if _, err := g.WriteString("0"); err != nil {
			return fmt.Errorf("join a control group: %w", err)
		}
	}
	return nil
}
