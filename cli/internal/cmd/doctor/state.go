package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
)

// checkState reports the content of the state directory, and the dangers to that content. It checks
// the directory of the running local cloud or, if none runs, the directory of the next one.
func checkState(ctx context.Context) check {
	c := check{Name: "state", Status: checkOK}
	state, err := readState(ctx)
	if err != nil {
		c.Status, c.Detail = checkFailed, cmdutil.Message(err)
		c.Hint = "e2bctl local up --state-dir names another directory, and with --ephemeral it needs none"
		return c
	}
	noun := "sandboxes"
	if len(state.Kept) == 1 {
		noun = "sandbox"
	}
	c.Detail = fmt.Sprintf("%s: %d %s, %s", state.Dir, len(state.Kept), noun, localcloud.Size(localcloud.Bytes(state.Kept)))
	if layers := state.Space.Layers; layers.Count > 0 {
		c.Detail += fmt.Sprintf("; snapshots and templates, %s", localcloud.Size(layers.Bytes))
	}
	if cached := state.Space.Cache.Bytes + state.Space.Uploads.Bytes; cached > 0 {
		c.Detail += fmt.Sprintf("; cached for builds, %s", localcloud.Size(cached))
	}
	if state.Volumes.Count > 0 {
		c.Detail += fmt.Sprintf("; %s, %s", countVolumes(state.Volumes), localcloud.Size(state.Volumes.Bytes))
	}
	if state.InUse != nil {
		c.Detail += "; " + state.InUse.By()
	}
	if len(state.Notes) > 0 {
		c.Status, c.Hint = checkWarning, strings.Join(state.Notes, "; ")
	}
	return c
}

// countVolumes returns a text with the number of volumes, and whether they have a
// quota.
func countVolumes(s volumes.Space) string {
	noun := "volumes"
	if s.Count == 1 {
		noun = "volume"
	}
	switch s.Sized {
	case 0:
		return fmt.Sprintf("%d %s without a quota", s.Count, noun)
	case s.Count:
		return fmt.Sprintf("%d %s with a quota", s.Count, noun)
	}
	return fmt.Sprintf("%d %s, %d of them with a quota", s.Count, noun, s.Sized)
}

func readState(ctx context.Context) (localcloud.State, error) {
	dir, note, err := localcloud.StateDir()
	if place, found := localcloud.Find(); found == nil {
		if record, none := place.Read(); none == nil && record.State != "" {
			if record.State != dir {
				dir, note, err = record.State, "", nil
			}
		}
	}
	if err != nil {
		return localcloud.State{}, err
	}
	state, err := localcloud.ReadState(ctx, dir)
	if note != "" {
		state.Notes = append(state.Notes, note)
	}
	return state, err
}
