package wasm

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Engine runs sandboxes of a room without processes.
type Engine struct {
	room engine.Engine
	env  *wasmenv.Env
	dist string
}

var _ engine.Engine = (*Engine)(nil)

// New returns an engine. Its sandboxes are sandboxes of room, and the directory of env is visible
// in the sandboxes of room. Packages of the sandboxes may come from the Pyodide distribution in the
// directory dist. If dist is "", there is no distribution. Close closes the room.
func New(room engine.Engine, env *wasmenv.Env, dist string) *Engine { return &Engine{room, env, dist} }

// NewSandbox starts a sandbox of the room. ctx bounds only the start.
func (e *Engine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	err := e.Report().Promises.CheckOptions(o)
	if err == nil {
		err = wasmenv.Check(e.env.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("wasm: start sandbox %.63s: %w", o.ID, err)
	}
	o.Config.Wasm = e.wasm(o)
	o.Egress = nil
	s, err := e.room.NewSandbox(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("wasm: %w", err)
	}
	return sandbox{s}, nil
}

// wasm returns the settings of Python in WebAssembly.
func (e *Engine) wasm(o engine.SandboxOptions) *guest.Wasm {
	w := &guest.Wasm{Dir: e.env.Dir, MemoryBytes: uint64(o.Limits.WithDefaults().MemoryBytes)}
	for _, m := range o.Mounts {
		w.Places = append(w.Places, m.Path)
	}
	for _, v := range o.Volumes {
		w.Places = append(w.Places, v.Path)
	}
	return w
}

// Report returns the room's report without the features that need processes.
func (e *Engine) Report() engine.Report {
	r := e.room.Report()
	r.Engine = engine.Wasm
	r.Egress = "none: Python in WebAssembly has no sockets"
	packages := "packages come from indexes alone, which have no numpy and no pandas for WebAssembly: a full Pyodide distribution has (WasmParams.PyodideDist, --pyodide-dist)"
	if e.dist != "" {
		packages = "packages come from indexes and from the Pyodide distribution in " + e.dist
	}
	r.Notes = append(slices.Clone(r.Notes), "Python runs in WebAssembly, by Deno and Pyodide in "+e.env.Dir, packages)
	r.Promises.Lack("there are no processes", engine.Commands, engine.Terminals, engine.Ports)
	r.Promises.Lack("code runs as the user only", engine.TwoUsers)
	r.Promises.Lack("Python in WebAssembly has no sockets", engine.AllEgress, engine.HeaderRules, engine.HostServices)
	r.Promises.Lack("there is nothing to run their programs", engine.Images)
	r.Promises.Lack(noResize, engine.Resizes)
	return r
}

// CheckLayers calls CheckLayers of the room.
func (e *Engine) CheckLayers(ctx context.Context, dir string) error {
	return e.room.CheckLayers(ctx, dir)
}

// Merge calls Merge of the room.
func (e *Engine) Merge(ctx context.Context, layers []string, dir string) error {
	return e.room.Merge(ctx, layers, dir)
}

// UnpackTar returns an error, because the engine has no images.
func (e *Engine) UnpackTar(context.Context, []string, io.Reader, string) error {
	return fmt.Errorf("wasm: %w", e.Report().Promises.Check(engine.Images))
}

// Done returns a channel that is closed when the room has ended.
func (e *Engine) Done() <-chan struct{} { return e.room.Done() }

// Err returns the reason why the engine ended by itself.
func (e *Engine) Err() error { return e.room.Err() }

// Close ends all sandboxes and the room.
func (e *Engine) Close() error { return e.room.Close() }

// sandbox is a sandbox of the room. In this sandbox only envd listens on ports.
type sandbox struct{ engine.Sandbox }

// Dial connects to a port of envd. Nothing else can listen.
func (s sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	switch port {
	case protocol.PortEnvd, protocol.PortInterpreter, protocol.PortJupyter:
		return s.Sandbox.Dial(ctx, port)
	}
	return nil, engine.Lackf(engine.Ports, "%s", guest.NoProcesses)
}

const noResize = "Deno gets its memory at its start"

// Resize returns an error, because the engine cannot resize running sandboxes.
func (s sandbox) Resize(context.Context, engine.Limits) error {
	return engine.Lackf(engine.Resizes, "%s", noResize)
}

// SetEgress does nothing, because the sandbox has no egress.
func (s sandbox) SetEgress(engine.Egress) {}
