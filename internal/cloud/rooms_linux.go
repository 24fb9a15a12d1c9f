//go:build !386 && !arm && !mips && !mipsle

package cloud

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/gvisor"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/wasm"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	_ "github.com/e2bctl/e2bctl/internal/cloud/reexec" // lets the room execute this program for its processes
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
)

// defaultEngine is the engine of a cloud that does not set Options.Engine.
const defaultEngine = engine.Room

// imagePath is the PATH of sandboxes whose image sets no PATH.
const imagePath = room.DefaultPath

// openers maps each engine that this system supports to the function that opens it.
var openers = map[engine.Name]opener{
	engine.Room:       openRoom,
	engine.Docker:     openDocker,
	engine.Wasm:       openWasm,
	engine.GVisor:     openGVisor,
	engine.Kubernetes: openPods,
}

// roomEngine is the engine that isolates sandboxes with namespaces.
type roomEngine struct {
	*room.Room
	noteUse func() // notes the use of the engine's programs; called for each sandbox, because a cloud may run for months
}

func openRoom(ctx context.Context, c *Cloud, dir string) (engine.Engine, error) {
	r, err := c.startRoom(ctx, engine.Room, dir, c.roomOptions())
	if err != nil {
		return nil, err
	}
	if hidden := r.Report().Hidden; len(hidden) > 0 && c.options.Engine != engine.Room { // too late for avoidHidden: kernels already use the Python
		return nil, errors.Join(errors.New(remedyOf(hidden)), r.Close())
	}
	return roomEngine{r, func() {}}, nil
}

// openWasm opens a room for the engine engine.Wasm. Sandboxes in this room have the files of this
// engine.
func openWasm(ctx context.Context, c *Cloud, dir string) (engine.Engine, error) {
	env, err := wasmenv.Find()
	if err != nil {
		return nil, err
	}
	r, err := c.startRoom(ctx, engine.Wasm, dir, room.Options{
		Binary: c.options.Binary, Isolation: c.options.Isolation, Limits: c.options.Limits, Trees: []string{env.Dir}, Logger: c.logger("engine"),
		ReservedBytes: wasmenv.ReservedBytes,
	})
	if err != nil {
		return nil, err
	}
	if err := c.checkDist(env, r.Report()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if hidden := r.Report().Hidden; len(hidden) > 0 {
		return nil, errors.Join(fmt.Errorf("sandboxes here run as an id that cannot enter %s: run as an ordinary user", strings.Join(hidden, ", ")), r.Close())
	}
	return wasm.New(roomEngine{r, env.NoteUse}, env, c.options.PyodideDist), nil
}

// checkDist returns an error if a Pyodide distribution does not work with env.
func (c *Cloud) checkDist(env *wasmenv.Env, room engine.Report) error {
	if c.options.PyodideDist == "" {
		return nil
	}
	if why := room.Promises[engine.Mounts]; why != "" {
		return fmt.Errorf("the Pyodide distribution in %s cannot be shown to the sandboxes that fetch packages: %s", c.options.PyodideDist, why)
	}
	return env.CheckDist(c.options.PyodideDist)
}

// openGVisor opens a room whose sandboxes run in gVisor.
func openGVisor(ctx context.Context, c *Cloud, dir string) (engine.Engine, error) {
	if err := gvisorenv.CheckBinary(c.options.Binary); err != nil {
		return nil, err
	}
	program, err := gvisorenv.Find(ctx, c.options.Runsc)
	if err != nil {
		return nil, err
	}
	o := c.roomOptions()
	o.Runsc, o.Isolation, o.Zygote, o.Warm = program.Path, engine.Full, nil, nil
	r, err := c.startRoom(ctx, engine.GVisor, dir, o)
	if err != nil {
		return nil, err
	}
	return gvisor.New(ctx, roomEngine{r, program.NoteUse}, gvisor.Options{Runsc: program, Binary: c.options.Binary, Programs: c.programs()})
}

// programs returns the programs that processes of a room execute besides envd. These are the Python
// of kernels, and the dynamic loaders. A loader changes when its libraries change.
func (c *Cloud) programs() []string {
	loaders := []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"}
	if c.python.Level == pyenv.Absent {
		return loaders
	}
	return append(loaders, c.python.Python)
}

// startRoom starts the room of an engine. The keeper of the room removes the room's directory. The
// first room uses the cloud's directory. Each other room uses a new directory.
func (c *Cloud) startRoom(ctx context.Context, name engine.Name, dir string, o room.Options) (_ *room.Room, err error) {
	first := c.options.Engine
	if first == engine.Docker || first == engine.Kubernetes { // they need no directory
		first = engine.Room
	}
	o.Dir = dir
	if name != first {
		if o.Dir, err = newInstanceDir(c.options.Dir); err != nil {
			return nil, err
		}
	}
	if name == first {
		if o.Keeper, err = c.keepInstance(ctx, o); err != nil {
			return nil, err
		}
	}
	r, err := room.Start(ctx, o)
	if err != nil && o.Dir != dir {
		err = errors.Join(err, os.RemoveAll(o.Dir)) // the keeper may not have started
	}
	return r, err
}

// keepInstance returns the keeper of the cloud's directory. All rooms of the cloud share this
// keeper.
func (c *Cloud) keepInstance(ctx context.Context, o room.Options) (*room.Keeper, error) {
	if c.keeper != nil {
		return c.keeper.(*room.Keeper), nil
	}
	k, err := room.StartKeeper(ctx, room.KeeperOptions{Dir: o.Dir, Binary: o.Binary, Processes: o.Processes, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	c.keeper = k
	return k, nil
}

func (c *Cloud) roomOptions() room.Options {
	o := room.Options{
		Zygote: c.warmConfig(), ZygoteLater: c.options.Warm == 0,
		Binary: c.options.Binary, Isolation: c.options.Isolation, Limits: c.options.Limits, Trees: c.python.Trees, Path: searchPath(c.python), Logger: c.logger("engine"),
	}
	if c.options.Warm != 0 {
		o.Warm, o.WarmCount = &c.options.Limits, c.options.Warm
	}
	return o
}

func (r roomEngine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	r.noteUse()
	s, err := r.Room.NewSandbox(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// findPython returns the Python of kernels in a room.
func findPython(ctx context.Context) (*pyenv.Env, error) { return orAbsent(pyenv.Find(ctx)) }

// searchPath returns the PATH in a sandbox. The directory of the kernels' Python is first, so
// that the pip command installs packages for kernels.
func searchPath(env *pyenv.Env) string {
	if env.Level == pyenv.Absent {
		return room.SearchPath()
	}
	return filepath.Dir(env.Python) + ":" + room.SearchPath()
}

// machineBounds returns the limits of the control groups of this process.
func machineBounds() (engine.Bounds, error) { return cgroup.Bounds() }

// machineMemory returns the size in bytes of this machine's memory, or of the container's
// memory if that is smaller. It returns 0 if the size is unknown.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	memory := int64(info.Totalram) * int64(info.Unit) //nolint:unconvert // its size is not the same everywhere
	if bounds, err := machineBounds(); err == nil && bounds.MemoryBytes > 0 {
		return min(memory, bounds.MemoryBytes)
	}
	return memory
}
