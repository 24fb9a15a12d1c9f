package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// tool is a tool of the protocol, in a form that can be added to the library's servers.
type tool struct {
	name string
	add  func(*endpoint, *sdk.Server)
}

func allTools() []tool {
	return []tool{pythonTool(), bashTool(), readTool(), editTool(), writeTool(), publishTool(), checkpointTool(), restoreTool(), searchTool()}
}

// arguments contains the arguments that all tools with a sandbox accept.
type arguments struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id of the sandbox; without it, the one of this session"`
}

func (a arguments) sandbox() string { return a.Sandbox }

// call is one call of a tool.
type call struct {
	server  *endpoint
	session *sdk.ServerSession
	box     *held
	answer  answer
}

// newTool returns a tool that runs in a sandbox. The answers of the tool contain the id of that
// sandbox.
func newTool[In interface{ sandbox() string }](declared *sdk.Tool, run func(context.Context, *call, In) error) tool {
	return toolOf(declared, func(ctx context.Context, e *endpoint, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, error) {
		return e.answered(ctx, req, func(ctx context.Context, ask question) *sdk.CallToolResult {
			return e.run(ctx, req, in.sandbox(), ask, func(ctx context.Context, c *call) error { return run(ctx, c, in) })
		})
	})
}

// toolOf returns a tool whose arguments have the fields of In.
func toolOf[In any](declared *sdk.Tool, run func(context.Context, *endpoint, *sdk.CallToolRequest, In) (*sdk.CallToolResult, error)) tool {
	return newRawTool(declared, reflect.TypeFor[In](), func(ctx context.Context, e *endpoint, req *sdk.CallToolRequest, arguments json.RawMessage) (*sdk.CallToolResult, error) {
		var in In
		if len(arguments) > 0 {
			if err := json.Unmarshal(arguments, &in); err != nil {
				return nil, err
			}
		}
		return run(ctx, e, req, in)
	})
}

// newRawTool returns a tool whose arguments are JSON for the type in. The library checks that the
// arguments fit this type. The library's AddTool is generic and is compiled for each type of
// arguments. Only newRawTool calls it, with one type of arguments for all tools.
func newRawTool(declared *sdk.Tool, in reflect.Type, run func(context.Context, *endpoint, *sdk.CallToolRequest, json.RawMessage) (*sdk.CallToolResult, error)) tool {
	schema, err := jsonschema.ForType(in, &jsonschema.ForOptions{})
	if err != nil {
		panic(err) // unreachable: only types of this package are passed
	}
	declared.InputSchema = schema
	return tool{declared.Name, func(e *endpoint, server *sdk.Server) {
		sdk.AddTool(server, declared, func(ctx context.Context, req *sdk.CallToolRequest, arguments json.RawMessage) (*sdk.CallToolResult, any, error) {
			result, err := run(ctx, e, req, arguments)
			return result, nil, err
		})
	}}
}

// run calls do with the sandbox of the given id, and returns the answer. If id is "", it uses the
// sandbox of the session.
func (e *endpoint) run(ctx context.Context, req *sdk.CallToolRequest, id string, ask question, do func(context.Context, *call) error) *sdk.CallToolResult {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.life, func() { cancel(errEnding) })()
	c := &call{server: e, session: req.Session}
	box, release, err := e.find(ctx, req.Session, id)
	if err != nil {
		return c.answer.failed(err)
	}
	c.box = box
	defer release()
	defer box.asked.sendTo(ask)()
	err = do(context.WithValue(ctx, questionKey{}, ask), c)
	if errors.Is(err, sandbox.ErrGone) {
		e.sandboxes.letGo(box)
		err = fmt.Errorf("%w. Its files and variables are lost; a call without \"sandbox\" goes on in a new one", err)
	}
	c.answer.note("sandbox %s · %v", c.box.ID(), roundTime(time.Since(began)))
	for _, host := range box.asked.refused() {
		c.answer.note("%s could not be reached: nobody allowed it", host)
	}
	if err != nil {
		return c.answer.failed(err)
	}
	return c.answer.result()
}

func (e *endpoint) find(ctx context.Context, session *sdk.ServerSession, id string) (*held, func(), error) {
	switch {
	case id != "":
		return e.sandboxes.named(ctx, id)
	case e.sessions:
		return e.sandboxes.ofSession(ctx, session)
	case len(e.config.Sandboxes) > 0:
		return e.sandboxes.named(ctx, e.config.Sandboxes[0])
	}
	return e.sandboxes.fresh(ctx)
}

func roundTime(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// limit returns ctx with a time limit of the given seconds. If seconds is 0, the limit is usual.
func limit(ctx context.Context, seconds int, usual time.Duration) (context.Context, context.CancelFunc, time.Duration, error) {
	const most = 3600
	if seconds < 0 || seconds > most {
		return nil, nil, 0, fmt.Errorf("timeout_seconds is %d: want 1 to %d", seconds, most)
	}
	d := usual
	if seconds > 0 {
		d = time.Duration(seconds) * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d, errTooLong)
	return ctx, cancel, d, nil
}

var errTooLong = errors.New("it took too long")

// message returns the text of err for a model.
func message(err error) string { return plain(cmdutil.Message(err)) }

// hints returns the annotations of a tool, for the client.
func hints(title string, readOnly, destructive, openWorld bool) *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{Title: title, ReadOnlyHint: readOnly, DestructiveHint: &destructive, OpenWorldHint: &openWorld}
}
