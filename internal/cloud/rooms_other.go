//go:build !linux || 386 || arm || mips || mipsle

package cloud

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// defaultEngine is the engine of a cloud without Options.Engine.
const defaultEngine = engine.Docker

// imagePath is the PATH of sandboxes whose image sets none, in rooms.
const imagePath = ""

// openers open the engines that a cloud can have. Rooms need namespaces of Linux.
var openers = map[engine.Name]opener{
	engine.Room:   openNone,
	engine.Docker: openDocker,
	engine.Wasm:   openNone,
	engine.GVisor: openNone,
}

func openNone(context.Context, *Cloud, string) (engine.Engine, error) {
	return nil, fmt.Errorf("%w: use the engine %s", engine.ErrLinuxOnly, engine.Docker)
}

// findPython returns none: containers have their own.
func findPython(context.Context) (*pyenv.Env, error) { return &pyenv.Env{Level: pyenv.Absent}, nil }

// searchPath returns "": only rooms have the programs of this machine.
func searchPath(*pyenv.Env) string { return "" }

// machineBounds returns none: no engine runs on this machine itself.
func machineBounds() (engine.Bounds, error) { return engine.Bounds{}, nil }

// machineMemory returns 0: containers use the memory of a virtual machine, or of
// another machine.
func machineMemory() int64 { return 0 }
