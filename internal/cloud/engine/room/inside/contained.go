//go:build linux

package inside

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
)

// runContained is the envd of a container. It is the first process of the container. Its standard
// input and output connect it to the server. It ends when they end. The container's engine has
// already done the work of a room's first stage. So the only difference from a room is in the
// connections: this process is envd, and also acts as the server of a room for envd.
func runContained(ctx context.Context, serve func(context.Context, *Guest) error) error {
	if err := errors.Join(restrictEnvd(), endureSignals()); err != nil {
		return err
	}
	link := tunnel.NewLink(stdio{})
	return newBridge(link.Join, (*tunnel.Guest).Superseded).run(ctx, serve)
}

// run waits for the first server, and serves envd to this server and to each later server that takes
// its place.
func (b *bridge) run(ctx context.Context, serve func(context.Context, *Guest) error) error {
	server, err := b.join()
	if err != nil {
		return fmt.Errorf("talk to the server: %w", err)
	}
	b.server.Store(server)
	err = b.contain(ctx, server, serve)
	if err != nil {
		b.server.Load().Fail(err)
	}
	return err
}

func (b *bridge) contain(ctx context.Context, server *tunnel.Guest, serve func(context.Context, *Guest) error) error {
	if err := removeAll(server.Hello.Removed); err != nil {
		return err
	}
	var control *wire.Conn
	var err error
	if b.envd, control, err = bridgeEnds(); err != nil {
		return err
	}
	g := newGuest(control, 2) // the bridge has the other descriptor
	g.Root, g.Temp, g.ownLoopback, g.Egress = "/", "/tmp", true, server.Hello.Egress
	if room := server.Hello.Room; room != nil {
		g.kills = func() int { return b.kills(ctx) }
		err = g.liveInRoom(room, server.Hello.Config)
	} else {
		keepThreads(spareThreads)
		err = g.liveInImage(server.Hello.Config)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(g.receive(ctx)) }()
	go func() { cancel(b.arrivals(ctx, g)) }()
	go func() { cancel(b.requests(ctx)) }()
	return serve(ctx, g)
}

// liveInImage sets up envd in a container of an unknown image.
func (g *Guest) liveInImage(config json.RawMessage) error {
	place, err := findPlace()
	if err != nil {
		return err
	}
	if g.Config, err = place.config(config); err != nil {
		return err
	}
	g.Users, g.Run = place.users(), place.run
	if g.AnyUser, err = place.mayBeOthers(); err != nil {
		return err
	}
	g.oomKills, g.memoryUse = openFirst("memory.events", "memory/memory.oom_control"), openFirst("memory.stat", "memory/memory.stat")
	return nil
}

// liveInRoom sets up envd if a room has built the root directory.
func (g *Guest) liveInRoom(room *tunnel.Room, config json.RawMessage) error {
	g.Config, g.Users, g.Run = config, users(room.Ranged), runDirectory
	return writeNames(room.Hostname, room.Names)
}

// removeAll removes files of the sandbox's image that the saved sandbox had removed.
func removeAll(paths []string) error {
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what the saved sandbox had removed: %w", err)
		}
	}
	return nil
}

// removeNamed removes the files named in r. Each name in r ends with a zero byte. If the first
// process of the container does not run as root, removeNamed runs in a separate process that does.
func removeNamed(r io.Reader) error {
	names, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return removeAll(strings.FieldsFunc(string(names), func(c rune) bool { return c == 0 }))
}

// stdio are the standard input and output of this process.
type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }

// bridgeEnds makes the control connection between the bridge and envd.
func bridgeEnds() (bridge, envd *wire.Conn, err error) {
	bridge, file, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return nil, nil, err
	}
	envd, err = wire.NewConn(file, wire.MaxMessage)
	return bridge, envd, err
}

// bridge acts as the server of a room for envd. It relays the messages between envd and the real
// server.
type bridge struct {
	// join waits for the next server. When the tunnel of a server has ended, lost reports whether
	// another server may follow.
	join   func() (*tunnel.Guest, error)
	lost   func(*tunnel.Guest) bool
	ready  chan struct{}                // closed when envd is ready
	many   bool                         // several servers can be connected at the same time; otherwise only one at a time
	server atomic.Pointer[tunnel.Guest] // the newest connected server
	envd   *wire.Conn
	killed atomic.Int64 // the number of killed processes in the server's last answer

	mu      sync.Mutex
	servers []attended // the connected servers, the newest last; used if many is set
}

// attended is one of several servers that are connected. Each has a log of its own, so that a server
// that reads nothing does not keep lines from the others.
type attended struct {
	server *tunnel.Guest
	log    *Log
}

func newBridge(join func() (*tunnel.Guest, error), lost func(*tunnel.Guest) bool) *bridge {
	return &bridge{join: join, lost: lost, ready: make(chan struct{})}
}

// killsTimeout bounds the time for which the start or the end of a process waits for [bridge.kills].
const killsTimeout = 5 * time.Second

// kills returns the number of processes that were killed for lack of memory. It requests the number
// from the server, which can read the control group of the sandbox. If the server does not answer,
// kills returns the last known number.
func (b *bridge) kills(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, killsTimeout)
	defer cancel()
	n, err := b.server.Load().Kills(ctx)
	if err != nil {
		return int(b.killed.Load())
	}
	b.killed.Store(int64(n))
	return n
}

// arrivals passes the connections of servers to envd, until no further server can come.
func (b *bridge) arrivals(ctx context.Context, g *Guest) error {
	for {
		server := b.server.Load()
		if b.many {
			go b.attend(ctx, g, server)
		} else if err := b.arrivalsFrom(ctx, g, server); !b.lost(server) {
			return err
		}
		if err := b.rejoin(ctx, g); err != nil {
			return err
		}
	}
}

// arrivalsFrom hands the connections of one server to envd until the server is gone.
func (b *bridge) arrivalsFrom(ctx context.Context, g *Guest, server *tunnel.Guest) error {
	for {
		conn, err := server.Accept()
		if err != nil {
			return err
		}
		go b.arrive(ctx, g, conn)
	}
}

// attend serves one of several servers until that server is gone. Afterwards, messages of envd go
// to the newest of the other servers.
func (b *bridge) attend(ctx context.Context, g *Guest, server *tunnel.Guest) {
	_ = b.arrivalsFrom(ctx, g, server)
	select { // from then on, the server is among those that are connected
	case <-b.ready:
	case <-ctx.Done():
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = slices.DeleteFunc(b.servers, func(a attended) bool {
		if a.server == server {
			close(a.log.lines)
		}
		return a.server == server
	})
	if n := len(b.servers); n > 0 {
		b.server.CompareAndSwap(server, b.servers[n-1].server)
	}
}

// welcome informs a server that the sandbox can be used. It sends lines of the log only afterwards,
// because the server expects nothing else before.
func (b *bridge) welcome(server *tunnel.Guest) error {
	if err := server.Ready(); err != nil || !b.many {
		return b.tell(server, err)
	}
	log := newLog()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = append(b.servers, attended{server, log})
	go log.send(server.Log)
	return nil
}

// log sends a line of envd's log to each server that is connected.
func (b *bridge) log(line json.RawMessage) error {
	if !b.many {
		server := b.server.Load()
		return b.tell(server, server.Log(line))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.servers {
		_, _ = a.log.Write(line) // never fails
	}
	return nil
}

// rejoin waits for the next server. It then gives the sandbox the identity that this server expects,
// because a restored sandbox has another id than the saved sandbox.
func (b *bridge) rejoin(ctx context.Context, g *Guest) error {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	server, err := b.join()
	if err != nil {
		return err
	}
	b.server.Store(server)
	if room := server.Hello.Room; room != nil {
		err = writeNames(room.Hostname, room.Names)
	}
	if err == nil {
		err = g.becomes(server.Hello.Config)
	}
	if err != nil {
		return fmt.Errorf("go on with another server: %w", err)
	}
	return b.welcome(server)
}

// tell returns the error of sending a message to a server. err is the original error. If another server
// may follow this server, the message is lost, and tell returns nil.
func (b *bridge) tell(server *tunnel.Guest, err error) error {
	if err != nil && b.lost(server) {
		return nil
	}
	return err
}

// arrive passes one connection to envd. The first byte that arrive sends back over the connection
// is the answer of envd.
func (b *bridge) arrive(ctx context.Context, g *Guest, conn *tunnel.Arrival) {
	port, err := conn.Port()
	if err != nil {
		_ = conn.Close()
		return
	}
	if g.listener(port) == nil {
		g.carry(ctx, port, conn)
		return
	}
	ours, theirs, err := wire.StreamPair()
	if err != nil {
		_ = conn.Close() // most likely out of descriptors
		return
	}
	err = b.envd.SendFiles(wire.Message{Kind: wire.KindDial, Port: port}, wire.Lent(wire.FileStream, theirs))
	theirs.Close()
	if err != nil {
		_ = conn.Close()
		_ = ours.Close()
		return
	}
	link.Join(conn, ours)
}

// requests relays envd's messages until the server is gone. Lines of the log go to each server that is
// connected, other messages to the newest.
func (b *bridge) requests(ctx context.Context) error {
	for {
		m, _, err := b.envd.Receive(0)
		if err != nil {
			return err
		}
		switch m.Kind {
		case wire.KindReady:
			err = b.welcome(b.server.Load())
			close(b.ready) // envd sends it once
		case wire.KindLog:
			err = b.log(m.Spec)
		case wire.KindEgress:
			go b.leave(ctx, m)
		default: // a container has no zygote
			err = b.envd.Send(wire.Message{Kind: wire.KindRefused, ID: m.ID, Error: "a container has no such process"})
		}
		if err != nil {
			return err
		}
	}
}

// leave makes a connection out of the sandbox for envd. An error of Send means that envd is gone.
func (b *bridge) leave(ctx context.Context, m wire.Message) {
	conn, err := b.server.Load().Dial(ctx, m.Host, m.Port)
	if err != nil {
		refused, denied := errors.AsType[*tunnel.RefusedError](err)
		_ = b.envd.Send(wire.Message{Kind: wire.KindRefused, ID: m.ID, Error: err.Error(), Denied: denied && refused.Denied()})
		return
	}
	ours, theirs, err := wire.StreamPair()
	if err != nil {
		_ = conn.Close()
		_ = b.envd.Send(wire.Message{Kind: wire.KindRefused, ID: m.ID, Error: err.Error()})
		return
	}
	err = b.envd.SendFiles(wire.Message{Kind: wire.KindEgressed, ID: m.ID}, wire.Lent(wire.FileStream, theirs))
	theirs.Close()
	if err != nil {
		_ = conn.Close()
		_ = ours.Close()
		return
	}
	link.Join(conn, ours)
}

// containedPlace describes the file system of a container for envd. The image may contain any files,
// and the user of the image may have permission to write to only a few directories.
type containedPlace struct {
	uid, gid   uint32
	name       string // the name of the user in /etc/passwd; "" if the user has no name
	root, home string // the homes of root and of the user
	run        string // the directory of envd's own files
	shell      string
	path       string // the PATH of processes
	asked      string // the requested user of the container; "" for none
}

func findPlace() (*containedPlace, error) {
	p := &containedPlace{uid: uint32(os.Getuid()), gid: uint32(os.Getgid()), shell: "/bin/sh"}
	name, home := accountOf(p.uid)
	p.name = name
	var err error
	if p.home, err = firstWritable(guest.UserHome, home, "/tmp"+guest.UserHome); err != nil {
		return nil, fmt.Errorf("a home directory: %w", err)
	}
	p.root = p.home
	if p.uid == 0 && writable(guest.RootHome) == nil {
		p.root = guest.RootHome
	}
	if p.run, err = firstWritable(runDirectory, "/tmp/.e2b"); err != nil {
		return nil, fmt.Errorf("a directory for envd's files: %w", err)
	}
	if _, err := os.Stat(guest.LoginShell); err == nil {
		p.shell = guest.LoginShell
	}
	p.path = cmp.Or(os.Getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	return p, os.Setenv("PATH", p.path)
}

// mayBeOthers reports whether envd is root and has the right to start processes of every other
// user.
func (p *containedPlace) mayBeOthers() (bool, error) {
	const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	have, err := capability.Effective()
	return p.uid == 0 && have&needed == needed, err
}

// users returns the users of the container. If envd does not run as root, the whole container runs
// as the requested user, and users includes that user.
func (p *containedPlace) users() []guest.User {
	users := []guest.User{
		{Name: "root", UID: p.uid, GID: p.gid, Home: p.root, Shell: p.shell},
		{Name: "user", UID: p.uid, GID: p.gid, Home: p.home, Shell: p.shell},
	}
	names := []string{p.name}
	if p.uid != 0 {
		names = append(names, p.asked)
	}
	for _, name := range names {
		if name != "" && !slices.ContainsFunc(users, func(u guest.User) bool { return u.Name == name }) {
			users = append(users, guest.User{Name: name, UID: p.uid, GID: p.gid, Home: p.home, Shell: p.shell})
		}
	}
	return users
}

// config returns the configuration of envd. It replaces the environment, working directory and
// Python of the server's machine by the environment, working directory and Python of the image.
func (p *containedPlace) config(raw json.RawMessage) (json.RawMessage, error) {
	var c guest.Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("configuration of the sandbox: %w", err)
	}
	c.Contained, p.asked = true, c.User
	if path := c.Envs["PATH"]; path != "" && c.Image != "" {
		p.path = path
		if err := os.Setenv("PATH", path); err != nil {
			return nil, err
		}
	}
	c.System, c.Path, c.Python = nil, p.path, []string{"python3"} // without python3, starting it reports that it is missing
	for _, name := range []string{"python3", "python"} {
		if path, err := exec.LookPath(name); err == nil {
			c.Python = []string{path}
			break
		}
	}
	envs := map[string]string{}
	for _, v := range os.Environ() {
		if name, value, ok := strings.Cut(v, "="); ok && name != "" && name != "PATH" && name != "HOME" && name != "HOSTNAME" {
			envs[name] = value
		}
	}
	maps.Copy(envs, c.Envs)
	c.Envs = envs
	if dir, err := os.Getwd(); err == nil && dir != "/" && (c.Workdir == "" || c.Workdir == guest.UserWorkdir) {
		c.Workdir = dir
	}
	return json.Marshal(c)
}

// accountOf returns the account name and the home directory of an id, if the image has an account
// with this id.
func accountOf(uid uint32) (name, home string) {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return "", ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, 1<<20)); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) >= 7 && fields[2] == strconv.FormatUint(uint64(uid), 10) {
			return fields[0], fields[5]
		}
	}
	return "", ""
}

// firstWritable returns the first of the directories that this process can make and write to.
func firstWritable(dirs ...string) (string, error) {
	var errs []error
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) || dir == "/" {
			continue
		}
		err := writable(dir)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

// openFirst opens the first of the named files of the container's control group that exists. It
// returns nil if none of them exists.
func openFirst(names ...string) *os.File {
	for _, name := range names {
		if f, err := os.Open(filepath.Join("/sys/fs/cgroup", name)); err == nil {
			return f
		}
	}
	return nil
}
