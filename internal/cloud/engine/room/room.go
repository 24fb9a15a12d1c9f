//go:build linux

package room

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// ErrRoomEnded: the room, and so every sandbox, has ended.
var ErrRoomEnded = errors.New("the room ended")

// Options configure [Start].
type Options struct {
	// Dir is the instance directory. It must exist and be private to this user; the
	// keeper removes it when the server ends. Files named survey-* beside it are
	// kept for the next start.
	Dir string
	// Agent is the binary to re-execute; "" means this program. It must
	// import package reexec.
	Agent string
	// Isolation is the wanted isolation level; Auto takes the best one the machine
	// supports.
	Isolation engine.Isolation
	// Trees are host directories that sandboxes show at the same path, each under a
	// writable overlay that vanishes with the sandbox. /usr always is one of them.
	// Files in them that are closed to others may be left out; see the package's
	// comment.
	Trees []string
	// Path is the PATH of login shells; "" means [DefaultPath].
	Path string
	// Processes is how many processes and threads all sandboxes together may have;
	// 0 means half of what the machine has, or of what the server's user may have.
	Processes int64
	// Warm are the limits of one more sandbox that is kept ready in the background
	// for the next [Room.NewSandbox] with these limits; nil keeps none. It uses the
	// memory of an idle agent.
	Warm *engine.Limits
	// Zygote is the configuration of the process that kernels are forked from: its
	// Python and System. The process is made in the background, and only with Full
	// isolation; nil makes none.
	Zygote *guest.Config
	// Logger logs the messages of the room's processes; nil logs nothing.
	Logger *slog.Logger
}

// DefaultPath is the PATH inside a sandbox.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Room supervises sandboxes. It is safe for concurrent use. The caller must close
// it.
type Room struct {
	options       Options
	level         engine.Isolation
	ids           roomIDs
	report        engine.Report
	trees         []string
	system        int // how many of trees are the system's
	links         map[string]string
	roots         string // contains the directories of sandboxes without namespaces
	binary        *os.File
	groups        *cgroup.Groups
	lock          *os.File
	keeper        *spawn.Process
	keeperControl *wire.Conn
	room          *spawn.Process // the guard, if sandboxes run in place
	control       *wire.Conn
	stop          func() error  // ends the room, and says why processes may be left
	done          chan struct{} // closed when the room has ended and its sandboxes know
	stderr        sync.WaitGroup
	close         func() error

	counted    counter.Maxima // what this user may have, to be divided
	private    private        // what is not shown of the trees
	mappings   mappings
	warm       warmPool
	flows      flowBudget
	egressPath wire.EgressPath // the egress path of sandboxes on this machine
	zygote     zygote
	boots      chan struct{} // one for each sandbox that is starting without a warm sandbox

	mu        sync.Mutex
	closed    bool
	next      uint64
	slots     map[uint32]bool
	sandboxes map[uint64]*Sandbox // those not yet closed
}

// Start makes the room, after it has tried once that the machine supports what the
// isolation needs. ctx bounds only the start. An error that Is [engine.ErrNoIsolation]
// says what was tried. If Start fails nothing is left running, but o.Dir may be
// left behind.
func Start(ctx context.Context, o Options) (*Room, error) {
	if len(os.Args) > 0 && os.Args[0] == hello.Argv0 {
		return nil, errors.New("room: start: this process is an agent itself: its binary does not import the hook that makes it one")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Path == "" {
		o.Path = DefaultPath
	}
	if o.Processes == 0 {
		var err error
		if o.Processes, err = cloudProcesses(); err != nil {
			return nil, fmt.Errorf("room: start: %w", err)
		}
	}
	if o.Warm != nil {
		if err := o.Warm.WithDefaults().Check(); err != nil {
			return nil, fmt.Errorf("room: start: %w", err)
		}
	}
	r := &Room{
		options:   o,
		slots:     make(map[uint32]bool),
		sandboxes: make(map[uint64]*Sandbox),
		boots:     make(chan struct{}, 4*runtime.NumCPU()),
	}
	r.close = sync.OnceValue(r.end)
	if err := r.flows.fill(); err != nil {
		return nil, fmt.Errorf("room: start: %w", err)
	}
	if err := r.startBest(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if o.Warm != nil {
		r.keepWarm(ctx, o.Warm.WithDefaults())
	}
	r.keepZygote(ctx)
	return r, nil
}

// startBest starts the keeper and then the room, at the best available isolation
// level.
func (r *Room) startBest(ctx context.Context) (err error) {
	o := r.options
	if err := checkDir(o.Dir); err != nil {
		return fmt.Errorf("room: start: instance directory %q: %w", o.Dir, err)
	}
	if r.trees, r.system, r.links, err = planTrees(o.Trees); err != nil {
		return fmt.Errorf("room: start: %w", err)
	}
	if r.binary, err = openBinary(o.Agent, o.Dir); err != nil {
		return fmt.Errorf("room: start: open the agent: %w", err)
	}
	if err := r.startKeeper(ctx); err != nil {
		return fmt.Errorf("room: start: start the keeper: %w", err)
	}
	levels := []engine.Isolation{o.Isolation}
	if o.Isolation == engine.Auto {
		levels = []engine.Isolation{engine.Full, engine.Restricted}
	}
	var refused engine.NoIsolationError
	for _, level := range levels {
		err := r.startLevel(ctx, level)
		if err == nil {
			for _, a := range refused.Attempts {
				r.note(fmt.Sprintf("this machine refuses isolation %q: %v", a.Isolation, a.Err))
			}
			return nil
		}
		_ = r.endRoom() // the reason why the level could not be started says more
		if ctx.Err() != nil {
			return fmt.Errorf("room: start: %w", context.Cause(ctx))
		}
		refused.Attempts = append(refused.Attempts, engine.Attempt{Isolation: level, Err: err})
	}
	return &refused
}

// checkDir refuses directories that the keeper must not remove.
func checkDir(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return errors.New("not a clean absolute path")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !instance.OwnedByUs(info) || info.Mode().Perm()&0o077 != 0 {
		return errors.New("not a directory of this user's own with mode 0700")
	}
	return nil
}

func (r *Room) startLevel(ctx context.Context, level engine.Isolation) (err error) {
	if level != engine.Full && level != engine.Restricted && level != engine.None {
		return fmt.Errorf("there is no isolation %q", level)
	}
	r.level, r.egressPath = level, wire.EgressNone
	if level == engine.Full {
		r.egressPath = wire.EgressTry
	}
	if r.ids, err = planIDs(); err != nil {
		return err
	}
	if level == engine.Restricted && r.options.Isolation == engine.Auto && !r.ids.ranged {
		if err := landlock.KeepsSignals(); err != nil {
			return err
		}
	}
	if level == engine.Full && r.ids.ranged {
		r.findPrivate(ctx)
	}
	if err := r.makeRoots(); err != nil {
		return err
	}
	if err := r.startRoom(ctx); err != nil {
		return fmt.Errorf("start the room: %w", err)
	}
	if err := r.probe(ctx); err != nil {
		return fmt.Errorf("try a sandbox: %w", err)
	}
	return nil
}

func (r *Room) startKeeper(ctx context.Context) error {
	if err := instance.ReapStale(ctx, r.options.Dir); err != nil {
		r.options.Logger.WarnContext(ctx, "an earlier instance could not be cleaned up", "error", err)
	}
	r.groups = cgroup.Create("e2bctl-"+rand.Text(), r.options.Processes, counter.CloudPart)
	r.roots = planRoots(r.options.Dir)
	spec := instance.Spec{Dir: r.options.Dir, Roots: r.roots, Groups: r.groups.Directories()}
	var err error
	if r.lock, err = instance.Lock(spec); err != nil {
		return errors.Join(err, cgroup.Remove(ctx, spec.Groups))
	}
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return errors.Join(err, cgroup.Remove(ctx, spec.Groups))
	}
	r.keeperControl = conn
	keeper, err := spawn.Start(r.binary, fd3, nil, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{})
	fd3.Close() // now only the child has it open, so that its end is noticed
	if err != nil {
		return errors.Join(err, cgroup.Remove(ctx, spec.Groups))
	}
	err = conn.Handshake(ctx, wire.RoleKeeper, spec, r.lock)
	if err == nil {
		err = conn.AwaitReady(ctx, wire.HandshakeTimeout)
	}
	if err != nil {
		keeper.Kill() // whatever this process is, it is not a keeper
		return errors.Join(notAnAgent(err), cgroup.Remove(context.WithoutCancel(ctx), spec.Groups))
	}
	r.keeper = keeper
	return nil
}

func (r *Room) startRoom(ctx context.Context) error {
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return err
	}
	from, to, err := os.Pipe()
	if err != nil {
		conn.Close()
		fd3.Close()
		return err
	}
	var process *spawn.Process
	var guard *wire.Conn
	if r.level == engine.Full {
		at := spawn.Placement{}
		if r.ids.ranged {
			at.Owner = spawn.IDBase
		}
		process, err = spawn.Start(r.binary, fd3, to, roomAttr(r.ids), at)
	} else {
		process, guard, err = r.startGuard(ctx, fd3, to)
	}
	to.Close()
	fd3.Close()
	if err != nil {
		conn.Close()
		from.Close()
		return err
	}
	r.stderr.Go(func() { r.logStderr(from) })
	r.room, r.control, r.done, r.closed = process, conn, nil, false
	r.stop = sync.OnceValue(func() error { return stopRoom(process, conn, guard) })
	spec, err := r.roomSpec()
	if err != nil {
		return err
	}
	home, err := r.groups.OpenHome()
	if err != nil {
		return err
	}
	err = conn.Handshake(ctx, wire.RoleRoom, spec, home...)
	wire.CloseAll(home)
	if err != nil {
		return err
	}
	if err := conn.AwaitReady(ctx, 10*time.Second); err != nil {
		return err
	}
	r.done = make(chan struct{})
	go r.serve()
	return nil
}

// wire.RoomSpec returns what the room is told.
func (r *Room) roomSpec() (spec wire.RoomSpec, err error) {
	if r.level != engine.Full {
		return wire.RoomSpec{Ranged: r.ids.ranged, InPlace: true}, nil
	}
	if r.counted, err = counter.Read(); err != nil {
		return wire.RoomSpec{}, fmt.Errorf("read what the kernel counts by user: %w", err)
	}
	spec = wire.RoomSpec{Ranged: r.ids.ranged, Counters: r.counted.Part(counter.CloudPart), Processes: uint64(r.options.Processes)}
	spec.Limits, err = countedLimits(counter.CloudPart)
	if r.ids.ranged { // a maximum applies to each sandbox, because each has an owner of its own
		spec.Counters = r.counted.Part(counter.SandboxPart)
		spec.Limits, err = sandboxLimits()
	}
	return spec, err
}

// logStderr logs what the room and the agents write to stderr, which is what a Go
// program prints when it panics.
func (r *Room) logStderr(from *os.File) {
	defer from.Close()
	lines := bufio.NewReaderSize(from, 4<<10)
	for {
		line, err := lines.ReadSlice('\n') // a longer line comes in pieces
		if len(line) > 0 {
			r.options.Logger.DebugContext(context.Background(), "from the room", "line", string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// serve hands each message of the room to the sandbox that it is about.
func (r *Room) serve() {
	defer close(r.done)
	for {
		m, files, err := r.control.Receive(1)
		if err != nil {
			// The room is gone, or sends nonsense and ends with its socket.
			ended := wire.Message{Kind: wire.KindExited}
			if err := r.stop(); err != nil {
				ended.Error = err.Error()
			}
			r.mu.Lock()
			r.closed = true
			left := slices.Collect(maps.Values(r.sandboxes))
			r.mu.Unlock()
			for _, s := range left {
				s.roomSaid(ended, nil, ErrRoomEnded)
			}
			return
		}
		r.mu.Lock()
		s := r.sandboxes[m.ID]
		r.mu.Unlock()
		if s == nil {
			wire.CloseAll(files)
			continue
		}
		s.roomSaid(m, files, nil)
	}
}

// register gives a new sandbox its number and its ids.
func (r *Room) register(s *Sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrRoomEnded
	}
	slot := uint32(1) // the first slot is the room's own
	for r.slots[slot] {
		slot++
	}
	if slot >= spawn.SlotsCount {
		return fmt.Errorf("%w: %d sandboxes", engine.ErrTooMany, len(r.slots))
	}
	r.next++
	s.number, s.slot = r.next, slot
	r.slots[slot] = true
	r.sandboxes[s.number] = s
	return nil
}

func (r *Room) release(s *Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slots, s.slot)
	delete(r.sandboxes, s.number)
}

// ranged reports whether a sandbox has a range of ids, and so both a root and a
// user.
func (r *Room) ranged() bool { return r.ids.ranged && r.level == engine.Full }

// Report describes what the machine provides.
func (r *Room) Report() engine.Report {
	report := r.report
	report.Notes, report.Hidden = slices.Clone(report.Notes), slices.Clone(report.Hidden)
	return report
}

// Done returns a channel that is closed when the room has ended, by Close or by
// itself.
func (r *Room) Done() <-chan struct{} { return r.done }

// Close ends all sandboxes and the room. When it returns nil their processes are
// dead, and the control groups and the instance directory are gone. An error that
// Is [engine.ErrProcessesLeft] says that processes may still run, which only happens
// without namespaces. Later calls return what the first returned.
func (r *Room) Close() error { return r.close() }

func (r *Room) end() error {
	r.private.end()
	r.warm.end()
	r.zygote.end()
	r.mu.Lock()
	r.closed = true
	open := slices.Collect(maps.Values(r.sandboxes))
	r.mu.Unlock()
	var closing sync.WaitGroup
	for _, s := range open {
		closing.Go(func() { _ = s.Close() }) // the keeper removes what this could not
	}
	closing.Wait()
	left := r.endRoom()
	r.mappings.close()
	if r.binary != nil {
		r.binary.Close()
	}
	if r.lock != nil {
		r.lock.Close()
	}
	if r.keeperControl != nil {
		r.keeperControl.Close()
	}
	if r.keeper != nil {
		<-r.keeper.Done
	}
	if _, err := os.Stat(r.options.Dir); r.keeper != nil && !errors.Is(err, fs.ErrNotExist) {
		left = errors.Join(left, fmt.Errorf("%s was not removed", r.options.Dir))
	}
	if left != nil {
		return fmt.Errorf("room: close: %w", left)
	}
	return nil
}

// stopRoom ends the room's process. The kernel ends everything in its namespaces.
// Without namespaces the room does that when its socket closes, and after it the
// guard, which says whether anything is left.
func stopRoom(room *spawn.Process, conn, guard *wire.Conn) error {
	conn.Close()
	if guard == nil {
		room.Kill()
		return nil
	}
	<-room.Done
	return verdict(guard)
}

// endRoom ends the room's process and everything in it.
func (r *Room) endRoom() error {
	if r.control == nil {
		return nil
	}
	err := r.stop()
	if r.done != nil {
		<-r.done
	}
	r.stderr.Wait()
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrProcessesLeft, err)
	}
	return nil
}

func (r *Room) fillReport(notes, hidden []string) {
	r.report = engine.Report{
		Isolation: r.level,
		IDs:       1,
		Memory:    r.groups.How("memory"),
		CPU:       r.groups.How("cpu"),
		Processes: r.groups.How("pids"),
		Disk:      "size of the tmpfs",
		Notes:     notes,
		Hidden:    hidden,
	}
	if r.report.Memory == "" {
		r.report.Memory = "not enforced for the sandbox, RLIMIT_DATA for each process: " + r.groups.Why["memory"]
	}
	if r.report.CPU == "" {
		r.report.CPU = "not enforced: " + r.groups.Why["cpu"]
	}
	switch {
	case r.level != engine.Full:
		r.report.Disk = "not enforced: no file system of its own"
		if r.report.Processes == "" {
			r.report.Processes = "not enforced: " + r.groups.Why["pids"]
		}
	case r.report.Processes == "":
		r.report.Processes = "RLIMIT_NPROC of the user namespace"
	}
	if r.groups.Unbounded != nil {
		r.note(fmt.Sprintf("all sandboxes together may have as many processes as the machine: %v", r.groups.Unbounded))
	}
	switch {
	case r.ranged():
		r.report.IDs = spawn.SlotSize
	case r.level == engine.Full:
		r.note("root and user are one id without capabilities: directories that belong to the host's root are read-only, and apt cannot install")
	case r.level == engine.Restricted:
		r.note("no namespaces: processes see those of the host, there is no network and no socket inside, and the Python environment is read-only")
		if !r.ids.ranged {
			r.note("sandboxes have the id of the server: they can change modes and times of its user's files (chmod, touch), and see names and changes in directories of that user (inotify)")
			r.report.Notes = append(r.report.Notes, landlock.LeavesOpen()...)
		}
	case r.level == engine.None:
		r.note("nothing is isolated: sandboxes are plain processes of the server's user")
	}
}

func (r *Room) note(text string) { r.report.Notes = append(r.report.Notes, text) }

// probe makes a sandbox and throws it away: what the machine can do is found out by
// doing it, never by reading a setting.
func (r *Room) probe(ctx context.Context) error {
	s, err := r.prepare(ctx, engine.Limits{}.WithDefaults(), forProbe)
	if err != nil {
		return err
	}
	if err := s.begin(ctx, engine.SandboxOptions{ID: "probe", Config: json.RawMessage("{}")}, wire.RoleProbe); err != nil {
		return err
	}
	r.fillReport(s.notes, s.hidden)
	r.judgeEgressPath(s)
	return s.Close()
}

var _ io.Closer = (*Room)(nil)
