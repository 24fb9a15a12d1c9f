//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
)

// gvisor runs the programs of a sandbox in gVisor, whose processes run in the namespaces of this
// process.
type gvisor struct {
	namespaces
	program *os.File // the detached mount of the program that gVisor starts
}

func (v *gvisor) initialize(c *wire.Conn, spec *wire.InitSpec, files *wire.Files) error {
	return initWith(v, c, spec, files)
}

// envd starts runsc, whose first process is this program, and relays the messages between the server
// and that process. For the server, it acts as the envd of a room. For envd, which is a process of
// gVisor, it acts as the server of a tunnel.
func (*gvisor) envd(ctx context.Context, g *Guest, spec *wire.EnvdSpec, files *wire.Files, _ func(context.Context, *Guest) error) error {
	if err := endureSignals(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	process, err := startRunsc(ctx, spec, files)
	if err != nil {
		return fmt.Errorf("start gVisor: %w", err)
	}
	defer process.kill()
	g.Egress = spec.Egress
	ready := make(chan struct{}) // before, the server expects nothing else
	hello := tunnel.Hello{ID: spec.Hostname, Config: g.Config, Room: &tunnel.Room{Hostname: spec.Hostname, Ranged: spec.Ranged, Names: spec.Names}}
	options := tunnel.Options{Hello: hello, Restored: spec.Restored, Kills: g.OOMKills, Tell: func(line []byte) {
		<-ready
		_ = g.control.Send(wire.Message{Kind: wire.KindLog, Spec: line}) // the server may be gone
	}}
	if spec.Egress {
		options.Egress = serverEgress{g}
	}
	t, err := tunnel.Open(ctx, process, options)
	if err != nil {
		return fmt.Errorf("start gVisor: %w", process.explain(err))
	}
	defer t.Close()
	g.dial = func(ctx context.Context, port uint16) (net.Conn, error) { return t.Dial(ctx, int(port)) }
	memory := &checkpointer{tunnel: t, runsc: process}
	g.memory = memory
	watchBoth(ctx, cancel, g.receive, g.dial, memory.stops)
	err = g.control.Send(wire.Message{Kind: wire.KindReady})
	close(ready)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.Done():
		err := t.Err()
		if err == nil || errors.Is(err, io.EOF) {
			err = errRunscEnded
		}
		return process.explain(err)
	}
}

var errRunscEnded = errors.New("gVisor ended")

// watchBoth starts to receive the messages of the server, and to watch envd. When the server has gone or
// envd is silent, it cancels ctx, with that reason.
func watchBoth(ctx context.Context, cancel context.CancelCauseFunc, receive func(context.Context) error,
	dial func(context.Context, uint16) (net.Conn, error), stops func() (bool, int),
) {
	go func() { cancel(receive(ctx)) }()
	go func() { cancel(watchEnvd(ctx, dial, stops)) }() // without an error, ctx has ended
}

// serverEgress is the sandbox's egress through the server.
type serverEgress struct{ *Guest }

func (e serverEgress) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return e.DialEgress(ctx, host, port)
}

// Connect returns an error: no traffic to an address arrives here.
func (serverEgress) Connect(context.Context, *net.TCPConn) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Answer returns no answer: no query arrives here.
func (serverEgress) Answer(context.Context, []byte) []byte { return nil }

// Closed returns false: the server itself refuses connections, with a reason.
func (serverEgress) Closed() bool { return false }

// runscProcess is a process of runsc that runs a sandbox. The tunnel uses the standard input and
// output of the sandbox's first process as its connection.
type runscProcess struct {
	// program is the file of runsc. It is never closed: its descriptor is the path of every runsc command,
	// and must never become that of another file.
	program *os.File
	cmd     *exec.Cmd
	flags   []string // flags of all runsc commands for this sandbox
	input   *os.File
	output  *os.File // remaining bytes can still be read after gVisor's end
	stderr  *head
	ended   chan struct{} // closed when gVisor has ended, and stderr is complete
}

// head is a writer that forwards all bytes and keeps the first of them. If nothing is written for
// staleTime, it drops the kept bytes, because the bytes that follow are unrelated to them.
type head struct {
	mu   sync.Mutex
	kept strings.Builder
	last time.Time // time of the last write
}

const (
	maxHead   = 1 << 10
	staleTime = 5 * time.Second
)

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	h.forget()
	h.last = time.Now()
	h.kept.Write(p[:min(len(p), maxHead-h.kept.Len())])
	h.mu.Unlock()
	return os.Stderr.Write(p)
}

// forget drops stale bytes. The caller holds mu.
func (h *head) forget() {
	if time.Since(h.last) > staleTime {
		h.kept.Reset()
	}
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	return strings.Join(strings.Fields(h.kept.String()), " ")
}

// panicLog is the file to which gVisor's kernel writes the reason for a panic.
const panicLog = runnerState + "/panic"

// container is runsc's name of the sandbox. Each sandbox has its own runsc.
const container = "sandbox"

// startRunsc starts gVisor with a bundle that describes the sandbox. It uses two of the passed
// files: runsc, and the directory of the memory to restore. It closes all other passed files,
// because they are not used inside.
func startRunsc(ctx context.Context, spec *wire.EnvdSpec, files *wire.Files) (*runscProcess, error) {
	defer files.Close()
	runsc, err := files.Take(wire.FileRunsc)
	if err != nil {
		return nil, err
	}
	memory, err := files.TakeWhen(spec.Restored, wire.FileMemory)
	if err != nil {
		return nil, err
	}
	bundle := runnerState + "/bundle"
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return nil, err
	}
	description, err := json.Marshal(bundleOf(spec))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(bundle+"/config.json", description, 0o600); err != nil {
		return nil, err
	}
	p := &runscProcess{program: runsc, flags: runscFlags(spec), stderr: &head{}, ended: make(chan struct{})}
	command := []string{"run", "--bundle=" + bundle, container}
	if spec.Restored {
		command = []string{"restore", "--bundle=" + bundle, "--image-path=" + passedDirectory, container}
	}
	p.cmd = exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", runsc.Fd()), append(slices.Clone(p.flags), command...)...)
	if spec.Restored {
		p.cmd.ExtraFiles = []*os.File{memory}
	}
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = 10 * time.Second // its children may hold its output
	asRunsc(p.cmd)
	stdio, err := p.pipes()
	defer wire.CloseAll(stdio)
	if err != nil {
		return nil, err
	}
	start := p.cmd.Start
	if spec.Network {
		start = func() error { return inNetwork(p.cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its output is more useful than its status
	}()
	return p, nil
}

// passedDirectory is the path of the only file that a runsc process gets in addition to its standard
// input, output and error.
const passedDirectory = "/proc/self/fd/3"

// asRunsc sets the fields that all commands of runsc have in common.
func asRunsc(cmd *exec.Cmd) {
	cmd.Args[0] = "runsc"
	cmd.Env = []string{"PATH=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// pipes makes the standard input and output of the sandbox, and returns the sandbox's ends.
func (p *runscProcess) pipes() (theirs []*os.File, err error) {
	var input, output *os.File
	if input, p.input, err = os.Pipe(); err != nil {
		return nil, err
	}
	if p.output, output, err = os.Pipe(); err != nil {
		return []*os.File{input}, errors.Join(err, p.input.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout = input, output
	return []*os.File{input, output}, nil
}

// command runs a runsc command for the sandbox. It passes dir, if not nil, as [passedDirectory].
func (p *runscProcess) command(ctx context.Context, dir *os.File, args ...string) error {
	cmd := exec.CommandContext(ctx, p.cmd.Path, slices.Concat(p.flags, args, []string{container})...)
	asRunsc(cmd)
	if dir != nil {
		cmd.ExtraFiles = []*os.File{dir}
	}
	said := &head{}
	cmd.Stdout, cmd.Stderr = said, said
	err := cmd.Start()
	if err == nil {
		child.PreferAsVictim(cmd.Process.Pid, child.MaxBadness) // rather than the sandbox
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("runsc %s: %w: %s", args[0], err, said)
	}
	return nil
}

// runscFlags returns the flags of all runsc commands. The sandbox's limits apply to all of runsc,
// so runsc itself sets no limits. Files are written to this machine's file system, so that the room
// can save them. File access is shared, because other sandboxes and the host may write to volumes.
// runsc does not compare the description of a restored sandbox with the saved description, because
// runsc would reject options that runsc itself has added. The comparison is not needed: the same
// program made both descriptions.
func runscFlags(spec *wire.EnvdSpec) []string {
	network := "none"
	if spec.Network {
		network = "sandbox"
	}
	flags := []string{
		"--root=" + runnerState + "/state", "--ignore-cgroups", "--network=" + network, "--platform=systrap",
		"--overlay2=none", "--file-access=shared", "--host-settings=ignore", "--gvisor-marker-file",
		"--restore-spec-validation=ignore", "--oci-seccomp",
		"--panic-log=" + panicLog,
	}
	if spec.Ranged {
		flags = append(flags, "--allow-suid")
	}
	return append(flags, fmt.Sprintf("--dcache=%d", rememberedNames()))
}

// rememberedNames returns the number of file names that gVisor caches. The cached names are the
// names of files that the sandbox does not have open. For each of these names, gVisor keeps up to
// two files of this machine open. These files, and the files that the sandbox has open, count
// against the limit of one process. gVisor's default of a thousand names is too high: opening files
// would fail.
func rememberedNames() uint64 {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0 // it is slower then
	}
	return files.Max / 8
}

func (p *runscProcess) Read(b []byte) (int, error)  { return p.output.Read(b) }
func (p *runscProcess) Write(b []byte) (int, error) { return p.input.Write(b) }
func (p *runscProcess) Close() error                { return errors.Join(p.input.Close(), p.output.Close()) }

// kill ends gVisor. The kernel then also ends gVisor's sandbox.
func (p *runscProcess) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// explain ends gVisor, and adds gVisor's output to an error.
func (p *runscProcess) explain(err error) error {
	p.kill()
	said := p.stderr.String()
	if panicked, failed := os.ReadFile(panicLog); failed == nil && len(panicked) > 0 {
		line, _, _ := strings.Cut(string(panicked), "\n")
		said = line[:min(len(line), maxHead)]
	}
	if said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// bundleOf describes the sandbox in the format of container runtimes (OCI).
func bundleOf(spec *wire.EnvdSpec) any {
	type object = map[string]any
	names := capability.Names(capability.Kept(spec.Ranged))
	mount := func(destination, kind, source string, options ...string) object {
		return object{"destination": destination, "type": kind, "source": source, "options": options}
	}
	namespaces := []object{}
	for _, kind := range []string{"pid", "mount", "ipc", "uts", "network"} {
		namespace := object{"type": kind}
		if kind == "network" && spec.Network {
			namespace["path"] = "/proc/self/ns/net" // the namespace in which runsc is started
		}
		namespaces = append(namespaces, namespace)
	}
	return object{
		"ociVersion": "1.0.0",
		"hostname":   spec.Hostname,
		"root":       object{"path": runnerRoot},
		"process": object{
			"user": object{"uid": 0, "gid": 0}, "cwd": "/",
			"args":            []string{guest.MountedProgram, guest.ProgramArgument},
			"env":             []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			"noNewPrivileges": !spec.Ranged,
			"capabilities":    object{"bounding": names, "effective": names, "permitted": names, "inheritable": names},
		},
		"mounts": []object{
			mount("/proc", "proc", "proc"),
			mount("/sys", "sysfs", "sysfs"),
			mount("/dev", "tmpfs", "tmpfs"),
			mount("/dev/shm", "tmpfs", "tmpfs"),
			// Otherwise gVisor would have its own /tmp, which could not be saved. When memory is
			// restored it must be allowed on an overlay, even if it was on none before: gVisor
			// keeps the options that it was saved with.
			mount("/tmp", "bind", runnerRoot+"/tmp", "rbind", "rw", "overlayfs_stale_read"),
			mount(guest.MountedProgram, "bind", runnerProgram, "bind", "ro"),
		},
		"linux": object{"namespaces": namespaces, "seccomp": protectFirst()},
	}
}
