package mcpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox"
)

func checkpointTool() tool {
	return newTool(&sdk.Tool{
		Name: "checkpoint", Annotations: hints("Make a checkpoint", false, false, false),
		Description: "Keep the state of the sandbox as it is now, and answer with the id of the checkpoint, for restore. The answer says whether variables and processes are part of it.",
	}, makeCheckpoint)
}

// checkpointName returns the name of a checkpoint's snapshot. It contains the owner, so that the
// tool restore finds only checkpoints of this owner.
func checkpointName(owner, id string) string {
	return strings.ToLower("e2bctl-mcp-" + owner + "-" + id)
}

func makeCheckpoint(ctx context.Context, c *call, _ arguments) error {
	id := strings.ToLower(rand.Text()[:12])
	snapshot, err := c.box.Snapshot(ctx, &sandbox.SnapshotParams{Name: checkpointName(c.server.config.Owner, id)})
	if err != nil {
		return err
	}
	c.server.sandboxes.addCheckpoint(snapshot.ID)
	c.answer.note("checkpoint %s · %s", id, contents(snapshot.Memory))
	return nil
}

// contents describes a checkpoint for the model. memory reports whether the snapshot contains the
// sandbox's memory. Nil means that the service does not report it.
func contents(memory *bool) string {
	switch {
	case memory == nil:
		return "it has the files, and on E2B's service the variables and processes, too"
	case *memory:
		return "it has the files, the variables and the processes"
	}
	return "it has the files, but neither variables nor processes: save variables that you need to a file first"
}

type restoreArguments struct {
	Checkpoint string `json:"checkpoint" jsonschema:"the id that checkpoint answered"`
}

func (restoreArguments) sandbox() string { return "" }

func restoreTool() tool {
	return toolOf(&sdk.Tool{
		Name: "restore", Annotations: hints("Restore a checkpoint", false, false, false),
		Description: "Make a new sandbox with the state of a checkpoint. Later calls of this session use it; the sandbox before stays, and can be named by its id.",
	}, func(ctx context.Context, e *endpoint, req *sdk.CallToolRequest, in restoreArguments) (*sdk.CallToolResult, error) {
		return e.restore(ctx, req.Session, in.Checkpoint), nil
	})
}

func (e *endpoint) restore(ctx context.Context, session *sdk.ServerSession, id string) *sdk.CallToolResult {
	var a answer
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" || id == "" {
		return a.failed(errNoCheckpoint)
	}
	options := append(slices.Clone(e.config.Options), sandbox.WithTemplate(checkpointName(e.config.Owner, id)))
	box, release, err := e.sandboxes.restored(ctx, options)
	if err != nil {
		if errors.Is(err, sandbox.ErrNotFound) {
			err = errNoCheckpoint
		}
		return a.failed(err)
	}
	defer release()
	if e.sessions {
		e.sandboxes.replace(session, box)
	}
	a.note("restored checkpoint %s", id)
	a.note("sandbox %s", box.ID())
	return a.result()
}

var errNoCheckpoint = errors.New("there is no such checkpoint of this server: checkpoint answers with the id of a new one")
