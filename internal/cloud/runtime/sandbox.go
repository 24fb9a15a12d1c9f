//go:build linux

package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits bound one sandbox. Zero values are the defaults: 2 CPUs, 2 GiB of
// memory, 1024 processes and threads, and 10 GiB of disk or half of the memory,
// whichever is less: what is written to disk is held in memory and counts as such.
type Limits struct {
	MemoryBytes int64
	CPUs        float64
	Processes   int
	DiskBytes   int64
}

// WithDefaults are the limits that are enforced: what is zero filled in, and no
// more CPUs than the machine has.
func (l Limits) WithDefaults() Limits {
	if l.MemoryBytes == 0 {
		l.MemoryBytes = 2 << 30
	}
	if l.CPUs == 0 {
		l.CPUs = 2
	}
	l.CPUs = min(l.CPUs, float64(processors))
	if l.Processes == 0 {
		l.Processes = 1024
	}
	if l.DiskBytes == 0 {
		// The files of a sandbox are in memory, and count there too.
		l.DiskBytes = min(10<<30, l.MemoryBytes/2)
	}
	return l
}

func (l Limits) check() error {
	if l.MemoryBytes < 16<<20 || l.CPUs < 0.01 || l.Processes < 16 || l.DiskBytes < 1<<20 {
		return fmt.Errorf("limits %+v are too small to start in", l)
	}
	return nil
}

// SandboxOptions configure [Room.NewSandbox].
type SandboxOptions struct {
	// ID is the sandbox's name and hostname: letters, digits and hyphens, at most 63.
	ID     string
	Limits Limits
	// Config is handed to the agent as it is; at most 1 MiB of JSON.
	Config json.RawMessage
	// Egress dials for the sandbox; nil is no internet. An error with a method
	// Denied() bool that answers true reaches the inside as denied. What it
	// returns should have CloseWrite, as *net.TCPConn does, to pass on that the
	// inside has no more to send.
	Egress func(ctx context.Context, host string, port uint16) (net.Conn, error)
}

// Bounds of one sandbox, as the server keeps them.
const (
	maxStreams   = 1024    // connections to its ports
	maxEgress    = 320     // connections out of it: what its proxy carries, and some; each costs the server six descriptors
	maxDialling  = 128     // of those, not yet connected
	maxOpenFiles = 1 << 19 // of one process inside
	dialTimeout  = 10 * time.Second
	bootTimeout  = 30 * time.Second
)

var errBootTimeout = fmt.Errorf("the agent was not ready within %v", bootTimeout)

// Sandbox is a running sandbox. It is safe for concurrent use. Close it.
type Sandbox struct {
	room    *Room
	options SandboxOptions
	limits  Limits
	number  uint64
	slot    uint32
	group   *group
	place   *place // without namespaces
	agent   *control
	notes   []string
	hidden  []string // trees it is not shown

	spawned chan spawned  // the room's answer to the request to start it
	named   chan error    // its answer to the request to name it
	exited  chan struct{} // its processes are gone
	gone    func()        // closes exited
	status  syscall.WaitStatus

	streams  chan struct{} // one for each open stream
	egress   chan struct{} // one for each open way out
	dialling chan struct{} // one for each way out that is not connected yet
	flows    sync.WaitGroup
	endLife  context.CancelFunc // nil before begin

	done   chan struct{}
	reason atomic.Pointer[error]
	close  func() error
}

type spawned struct {
	pidfd *os.File
	err   error
}

// NewSandbox starts a sandbox and returns when its agent is ready. ctx bounds the
// start only.
func (r *Room) NewSandbox(ctx context.Context, o SandboxOptions) (*Sandbox, error) {
	s, err := r.newSandbox(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("runtime: start sandbox %.63s: %w", o.ID, err)
	}
	return s, nil
}

func (r *Room) newSandbox(ctx context.Context, o SandboxOptions) (*Sandbox, error) {
	limits := o.Limits.WithDefaults()
	if err := errors.Join(limits.check(), checkID(o.ID)); err != nil {
		return nil, err
	}
	if len(o.Config) > maxConfig {
		return nil, fmt.Errorf("configuration of %d bytes is over %d", len(o.Config), maxConfig)
	}
	if s, started := r.takeSpare(ctx, limits); s != nil {
		err := s.begin(ctx, o, roleAgent)
		started()
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		r.options.Logger.WarnContext(ctx, "the spare sandbox could not be used", "error", err)
	}
	s, err := r.prepare(ctx, limits)
	if err != nil {
		return nil, err
	}
	return s, s.begin(ctx, o, roleAgent)
}

// prepare makes a sandbox up to where it becomes somebody's: isolated, limited,
// and its agent started, waiting for its configuration.
func (r *Room) prepare(ctx context.Context, limits Limits) (*Sandbox, error) {
	s := &Sandbox{
		room:     r,
		limits:   limits,
		spawned:  make(chan spawned, 1),
		named:    make(chan error, 1),
		exited:   make(chan struct{}),
		streams:  make(chan struct{}, maxStreams),
		egress:   make(chan struct{}, maxEgress),
		dialling: make(chan struct{}, maxDialling),
		done:     make(chan struct{}),
	}
	s.gone = sync.OnceFunc(func() { close(s.exited) })
	s.close = sync.OnceValue(s.end)
	if err := r.register(s); err != nil {
		return nil, err
	}
	if err := s.boot(ctx); err != nil {
		s.fail(err)
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// begin makes a prepared sandbox that of o, and returns when its agent is ready.
// One that fails is closed.
func (s *Sandbox) begin(ctx context.Context, o SandboxOptions, as role) error {
	s.options = o
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	s.endLife = endLife
	if err := s.configure(ctx, as); err != nil {
		s.fail(err)
		return errors.Join(err, s.close())
	}
	if as == roleAgent {
		s.flows.Go(func() { s.serve(life) })
	}
	return nil
}

func checkID(id string) error {
	if id == "" || len(id) > 63 {
		return fmt.Errorf("id of %d bytes: 1 to 63 are allowed", len(id))
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("id %q: letters, digits and hyphens are allowed", id)
		}
	}
	return nil
}

// boot has the room start the first process, puts it into its groups and leads
// it through the first stage.
func (s *Sandbox) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, errBootTimeout)
	defer cancel()
	agent, fd3, err := controlPair(maxAgentMessage)
	if err != nil {
		s.gone()
		return err
	}
	s.agent = agent
	request := message{Kind: kindSpawn, ID: s.number, Slot: s.slot}
	if s.room.rung != Full {
		p, err := s.makePlace()
		s.place = &p
		if err != nil {
			fd3.Close()
			s.gone()
			return err
		}
		if id, switched := s.room.placeID(s.slot); switched {
			request.UID = uint32(id)
		}
	}
	err = s.room.line.send(request, fd3)
	fd3.Close()
	if err != nil {
		s.gone()
		return fmt.Errorf("ask the room: %w", err)
	}
	// The answer is waited for without ctx: until it came there is nothing to kill.
	answer := <-s.spawned
	if answer.err != nil {
		return fmt.Errorf("start in new namespaces: %w", answer.err)
	}
	defer answer.pidfd.Close()
	pid, err := pidOf(answer.pidfd)
	if err != nil {
		return err
	}
	if s.group, err = s.room.groups.create(strconv.FormatUint(s.number, 10), s.limits); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	if err := s.group.add(pid); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	if err := s.sendInit(ctx, pid); err != nil {
		return err
	}
	stop := s.agent.deadline(ctx, bootTimeout)
	prepared, _, err := s.agent.expect(kindReady, 0)
	stop()
	if err != nil {
		return s.explain(ctx, "build", err)
	}
	s.notes = append(s.notes, prepared.Notes...)
	s.hidden = prepared.Hidden
	if err := s.agent.hello(ctx); err != nil {
		return s.explain(ctx, "restrict", err)
	}
	return nil
}

// configure names the sandbox and starts its agent.
func (s *Sandbox) configure(ctx context.Context, as role) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, errBootTimeout)
	defer cancel()
	config, err := memoryFile(s.options.Config)
	if err != nil {
		return err
	}
	defer config.Close()
	if s.place == nil {
		if err := s.name(); err != nil {
			return err
		}
	}
	spec := agentSpec{Hostname: s.options.ID, Ranged: s.room.ranged(), Egress: s.options.Egress != nil, Place: s.place}
	if err := s.agent.appoint(ctx, as, spec, config); err != nil {
		return s.explain(ctx, "configure", err)
	}
	if err := s.agent.await(ctx, bootTimeout); err != nil {
		return s.explain(ctx, "start the agent", err)
	}
	return nil
}

// name has the room set the hostname.
func (s *Sandbox) name() error {
	if err := s.room.line.send(message{Kind: kindName, ID: s.number, Host: s.options.ID}); err != nil {
		return fmt.Errorf("ask the room: %w", err)
	}
	select {
	case err := <-s.named:
		return err
	case <-s.exited:
		return s.causeOfDeath()
	}
}

// explain says what a process that ended without a word died of.
func (s *Sandbox) explain(ctx context.Context, doing string, err error) error {
	if errors.Is(err, errPeerEnded) {
		select {
		case <-s.exited:
			err = s.causeOfDeath()
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%s: %w", doing, because(ctx, err))
}

func (s *Sandbox) causeOfDeath() error {
	if s.status.Signaled() && s.status.Signal() == syscall.SIGKILL && s.OOMKills() > 0 {
		return ErrOutOfMemory
	}
	if s.status.Signaled() {
		return fmt.Errorf("the agent was ended by signal %d (%v)", int(s.status.Signal()), s.status.Signal())
	}
	return fmt.Errorf("the agent exited with status %d", s.status.ExitStatus())
}

func (s *Sandbox) sendInit(ctx context.Context, pid int) error {
	spec := initSpec{
		Ranged:  s.room.ranged(),
		Place:   s.place,
		Path:    s.room.options.Path,
		Trees:   s.room.trees,
		Mounted: make([]bool, len(s.room.trees)),
		Links:   s.room.links,
		Disk:    s.limits.DiskBytes,
	}
	// The kernel counts the descriptors that are on their way through sockets by
	// user, and refuses to send more above the sender's own limit: a
	// sandbox that shares the server's id could otherwise keep the server from sending any.
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	spec.Files = min(files.Max/2, maxOpenFiles)
	if s.room.groups.how("memory") == "" {
		spec.Data = s.limits.MemoryBytes
	}
	if s.room.groups.how("pids") == "" && s.room.rung == Full { // elsewhere all processes of the id count
		spec.Procs = s.limits.Processes
	}
	var mounts []*os.File
	defer func() { closeAll(mounts) }()
	if s.room.ranged() {
		var err error
		if mounts, err = s.mapTrees(pid); err != nil {
			return err
		}
		for i := range mounts {
			spec.Mounted[i] = true
		}
	}
	if err := s.agent.greet(ctx, roleInit, spec, mounts...); err != nil {
		return s.explain(ctx, "hand over the template", err)
	}
	return nil
}

// memoryFile is data as a sealed file: nobody who is given it can change it.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "config")
	_, err = f.Write(data)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// pidOf is the process that a pidfd refers to, as this process sees it.
func pidOf(pidfd *os.File) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd.Fd()))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		if value, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			if pid, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil && pid > 0 {
				return pid, nil
			}
		}
	}
	return 0, errPeerEnded
}

// roomSaid takes what the room says about this sandbox.
func (s *Sandbox) roomSaid(m message, files []*os.File, ended error) {
	switch {
	case m.Kind == kindSpawned && len(files) == 1:
		s.spawned <- spawned{pidfd: files[0]}
	case m.Kind == kindNamed:
		closeAll(files)
		var err error
		if m.Error != "" {
			err = errors.New(m.Error)
		}
		select {
		case s.named <- err:
		default: // it was not asked
		}
	case m.Kind == kindFailed:
		closeAll(files)
		s.spawned <- spawned{err: errors.New(m.Error)}
		s.gone()
	case m.Kind == kindExited:
		closeAll(files)
		select {
		case <-s.exited:
			return // this is the end of the room
		default:
		}
		s.status = syscall.WaitStatus(m.Status)
		if ended != nil {
			s.fail(ended)
		}
		select {
		case s.spawned <- spawned{err: ErrRoomEnded}: // nobody waits unless it was never answered
		default:
		}
		s.gone()
	}
}

// fail records the first reason for the end.
func (s *Sandbox) fail(err error) { s.reason.CompareAndSwap(nil, &err) }

// serve answers the agent until it ends. Nothing it says is trusted.
func (s *Sandbox) serve(life context.Context) {
	for {
		m, _, err := s.agent.receive(0)
		failed := err == nil && m.Kind == kindFailed
		if failed {
			err = fmt.Errorf("the agent ended: %.*s", maxErrorText, m.Error)
		}
		if err == nil {
			err = s.answer(life, m)
		}
		if err == nil {
			continue
		}
		if failed || errors.Is(err, ErrProtocol) {
			s.fail(err)
			s.room.killProcess(s) // it may say that it ended, and go on
		}
		<-s.exited
		s.fail(s.causeOfDeath())
		go func() { _ = s.close() }() // which waits for this function
		return
	}
}

func (s *Sandbox) answer(life context.Context, m message) error {
	if m.Kind != kindEgress || m.ID == 0 || m.Host == "" || len(m.Host) > 255 || m.Port == 0 {
		return fmt.Errorf("%w: %.20q", ErrProtocol, m.Kind)
	}
	select {
	case s.dialling <- struct{}{}:
	default:
		return s.refuse(m.ID, fmt.Errorf("%w: %d connections are being made", ErrTooMany, maxDialling))
	}
	select {
	case s.egress <- struct{}{}:
	default:
		<-s.dialling
		return s.refuse(m.ID, fmt.Errorf("%w: %d connections are open", ErrTooMany, maxEgress))
	}
	s.flows.Go(func() { s.carry(life, m) })
	return nil
}

// refuse answers a request for a way out. That the agent does not read is its
// own loss.
func (s *Sandbox) refuse(id uint64, err error) error {
	var denied interface{ Denied() bool }
	_ = s.agent.send(message{Kind: kindEgressed, ID: id, Error: err.Error(), Denied: errors.As(err, &denied) && denied.Denied()})
	return nil
}

// carry dials for the agent and copies until both directions have ended.
func (s *Sandbox) carry(life context.Context, m message) {
	defer func() { <-s.egress }()
	connected := sync.OnceFunc(func() { <-s.dialling })
	defer connected()
	if s.options.Egress == nil {
		_ = s.refuse(m.ID, errInternetOff{})
		return
	}
	conn, err := s.options.Egress(life, m.Host, m.Port)
	if err != nil {
		_ = s.refuse(m.ID, err)
		return
	}
	connected()
	inside, theirs, err := streamPair()
	if err != nil {
		conn.Close()
		_ = s.refuse(m.ID, err)
		return
	}
	err = s.agent.send(message{Kind: kindEgressed, ID: m.ID}, theirs)
	theirs.Close()
	if err != nil {
		conn.Close()
		_ = inside.Close()
		return
	}
	stop := context.AfterFunc(life, func() {
		conn.Close()
		_ = inside.Close()
	})
	defer stop()
	join(conn, inside)
}

type errInternetOff struct{}

func (errInternetOff) Error() string { return "internet access is off for this sandbox" }
func (errInternetOff) Denied() bool  { return true }

// join copies in both directions until both have ended, and closes both.
func join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	var back sync.WaitGroup
	back.Go(func() { pour(a, b) })
	pour(b, a)
	back.Wait()
}

// pour copies from from to to, and passes the end on where to has halves. An
// error ends both directions: there is nobody to tell.
func pour(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails when the connection is gone, which is what it says
	}
}

func (r *Room) killProcess(s *Sandbox) {
	_ = r.line.send(message{Kind: kindKill, ID: s.number}) // when the room is gone, so is the process
}

// Dial connects to a port inside. Errors are [ErrPortClosed] when nothing
// listens there, [ErrGone] when the sandbox has ended, [ErrTooMany].
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	conn, err := s.dial(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("runtime: dial port %d of sandbox %s: %w", port, s.options.ID, err)
	}
	return conn, nil
}

func (s *Sandbox) dial(ctx context.Context, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, ErrPortClosed
	}
	if s.reason.Load() != nil {
		return nil, ErrGone
	}
	select {
	case s.streams <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: %d connections are open", ErrTooMany, maxStreams)
	}
	conn, theirs, err := streamPair()
	if err != nil {
		<-s.streams
		return nil, err
	}
	st := &stream{UnixConn: conn, release: sync.OnceFunc(func() { <-s.streams })}
	err = s.agent.send(message{Kind: kindDial, Port: uint16(port)}, theirs)
	theirs.Close()
	if err == nil {
		err = readStatus(ctx, conn)
	}
	if err != nil {
		_ = st.Close()
		if errors.Is(err, ErrPortClosed) || ctx.Err() != nil {
			return nil, because(ctx, err)
		}
		return nil, s.whyUnanswered(err)
	}
	return st, nil
}

// whyUnanswered tells an agent that is ending, whose sockets close before the
// room says so, from one that does not answer.
func (s *Sandbox) whyUnanswered(err error) error {
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the agent did not answer: %w", err)
	}
	select {
	case <-s.exited:
		return ErrGone
	case <-patience.C:
		return fmt.Errorf("the agent did not answer: %w", err)
	}
}

// Answers of the agent to a dial, one byte on the stream.
const (
	statusConnected = 0
	statusClosed    = 1
)

func readStatus(ctx context.Context, conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	var status [1]byte
	_, err := io.ReadFull(conn, status[:])
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if status[0] != statusConnected {
		return ErrPortClosed
	}
	return conn.SetReadDeadline(time.Time{})
}

// stream is a connection that counts until it is closed.
type stream struct {
	*net.UnixConn
	release func()
}

func (s *stream) Close() error {
	defer s.release()
	return s.UnixConn.Close()
}

// Done is closed when the sandbox has ended and nothing of it is left.
func (s *Sandbox) Done() <-chan struct{} { return s.done }

// Err is why the sandbox ended: nil before, then [ErrClosed], [ErrOutOfMemory],
// [ErrRoomEnded], [ErrProtocol] or how the agent ended.
func (s *Sandbox) Err() error {
	select {
	case <-s.done:
		return *s.reason.Load()
	default:
		return nil
	}
}

// OOMKills is how many processes of the sandbox were killed because it reached
// its memory limit; always 0 where no control group limits it.
func (s *Sandbox) OOMKills() int {
	if s.group == nil {
		return 0
	}
	return s.group.oomKills()
}

// Close ends the sandbox. When it returns, everything in it is dead. It is nil
// for one that has ended by itself.
func (s *Sandbox) Close() error {
	s.fail(ErrClosed)
	return s.close()
}

func (s *Sandbox) end() error {
	if s.endLife != nil {
		s.endLife()
	}
	s.room.killProcess(s)
	<-s.exited
	if s.agent != nil {
		s.agent.close()
	}
	s.flows.Wait()
	var err error
	if s.group != nil {
		err = s.group.remove()
	}
	if s.place != nil {
		err = errors.Join(err, removePlace(s.place.Dir))
	}
	s.room.release(s)
	close(s.done)
	return err
}
