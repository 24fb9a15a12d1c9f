//go:build !linux || 386 || arm || mips || mipsle

package cloud

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// defaultEngine is the engine of a cloud that does not set Options.Engine.
const defaultEngine = engine.Docker

// imagePath is the PATH of a sandbox in a room if the image of the sandbox does not set PATH.
// imagePath is not used on this system, because there are no rooms.
const imagePath = ""

// openers maps each engine to the function that opens it. This system supports no rooms, because
// they need Linux.
var openers = map[engine.Name]opener{
	engine.Room:       openNone,
	engine.Docker:     openDocker,
	engine.Wasm:       openNone,
	engine.GVisor:     openNone,
	engine.Kubernetes: openPods,
}

func openNone(context.Context, *Cloud, string) (engine.Engine, error) {
	return nil, fmt.Errorf("%w: use the engine %s", engine.ErrLinuxOnly, engine.Docker)
}

// findPython returns an absent Python, because containers use the Python of their image.
func findPython(context.Context) (*pyenv.Env, error) { return &pyenv.Env{Level: pyenv.Absent}, nil }

// searchPath returns "": only sandboxes in a room use the programs of this machine.
func searchPath(*pyenv.Env) string { return "" }

// machineBounds returns no bounds, because no engine on this system runs sandboxes directly on the
// machine.
func machineBounds() (engine.Bounds, error) { return engine.Bounds{}, nil }

// machineMemory returns 0: containers use the memory of another, possibly virtual, machine.
func machineMemory() int64 { return 0 }
