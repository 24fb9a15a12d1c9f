package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// watchInterval is the time between two lists of ls --watch.
const watchInterval = time.Second

// listChange is a line of ls --watch -o jsonl.
type listChange struct {
	Type    string      `json:"type"` // added, changed or removed
	Sandbox sandboxView `json:"sandbox"`
}

// listWatch repeatedly lists the sandboxes and calls show with them, until ctx ends. It returns the
// first error of list or show, or the cause of ctx's end.
func listWatch(ctx context.Context, list func(context.Context) ([]sandbox.Info, error), show func([]sandbox.Info) error) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		infos, err := list(ctx)
		if err != nil {
			return err
		}
		if err := show(infos); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// redraw returns a function that writes a table of sandboxes in place of its last table. On a
// terminal that cannot clear its screen, it writes the table below the last one, and only if
// something changed.
func (o *listOptions) redraw() func([]sandbox.Info) error {
	var last []byte
	return func(infos []sandbox.Info) error {
		o.IO.Measure()
		var frame, stable bytes.Buffer
		if err := o.writeTable(&frame, infos, true); err != nil {
			return err
		}
		clear, key := "\x1b[H\x1b[2J", &frame
		if os.Getenv("TERM") == "dumb" {
			if err := o.writeTable(&stable, infos, false); err != nil { // relative times change by themselves
				return err
			}
			clear, key = "\n", &stable
		}
		if bytes.Equal(key.Bytes(), last) {
			return nil
		}
		last = bytes.Clone(key.Bytes())
		_, err := fmt.Fprintf(o.IO.Out, "%s%s", clear, &frame)
		return err
	}
}

// writeChanges returns a function that writes a line for each sandbox that was added, changed or
// removed since the last call.
func (o *listOptions) writeChanges() func([]sandbox.Info) error {
	known := map[string]sandboxView{}
	return func(infos []sandbox.Info) error {
		now := make(map[string]sandboxView, len(infos))
		for _, info := range infos {
			view := viewOf(&info)
			now[view.SandboxID] = view
			before, was := known[view.SandboxID]
			switch same, err := sameJSON(before, view); {
			case err != nil:
				return err
			case was && same:
				continue
			}
			change := listChange{"added", view}
			if was {
				change.Type = "changed"
			}
			if err := cmdutil.WriteJSONLine(o.IO.Out, change); err != nil {
				return err
			}
		}
		for id, view := range known {
			if _, is := now[id]; is {
				continue
			}
			if err := cmdutil.WriteJSONLine(o.IO.Out, listChange{"removed", view}); err != nil {
				return err
			}
		}
		known = now
		return nil
	}
}

func sameJSON(a, b sandboxView) (bool, error) {
	one, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	other, err := json.Marshal(b)
	return bytes.Equal(one, other), err
}
