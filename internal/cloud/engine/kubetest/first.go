//go:build linux

package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// first is the first process of a cluster. It makes the mounts and the network, forwards
// connections to the API server, and carries out orders until the test program or the keeper ends.
func first(programs string) error {
	control, err := net.FileConn(os.NewFile(controlFile, "control"))
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(listenerFile, "listener"))
	if err != nil {
		return err
	}
	for _, fd := range []int{controlFile, listenerFile, aliveFile} {
		unix.CloseOnExec(fd) // programs of the cluster do not hold them
	}
	ctx := context.Background()
	ended := make(chan error, 3)
	go func() { ended <- child.Reap(ctx) }()
	if err := errors.Join(mountAll(programs), makeNetwork(ctx)); err != nil {
		return err
	}
	go func() { ended <- forward(ctx, listener) }()
	go func() {
		_, err := io.Copy(io.Discard, os.NewFile(aliveFile, "alive"))
		ended <- err
	}()
	go func() { ended <- newProcesses().serve(ctx, control) }()
	return <-ended
}

// mountAll mounts private directories for the files that the programs of the cluster write. The
// programs can only read all other files of this machine. programs is the directory of the programs
// that were built.
func mountAll(programs string) error {
	readOnly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE}
	writable := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	steps := []func() error{
		func() error { return unix.MountSetattr(-1, "/", unix.AT_RECURSIVE, &readOnly) },
		func() error { return unix.MountSetattr(-1, "/sys/fs/cgroup", unix.AT_RECURSIVE, &writable) },
		func() error { return unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755,size=4g") },
		func() error { return bind(programs, programsDir) },
		func() error { return unix.Mount("proc", "/proc", "proc", 0, "") },
	}
	for _, dir := range []string{"/var/lib", "/var/log", "/tmp"} {
		steps = append(steps, func() error { return bind(filepath.Join("/run", strings.ReplaceAll(dir, "/", "-")), dir) })
	}
	for _, dir := range []string{configuration, logs, imagesDir} {
		steps = append(steps, func() error { return os.MkdirAll(dir, 0o755) })
	}
	// The kubelet wants these values, which are the whole machine's. It finds them in files.
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join("/run", "sysctl-"+filepath.Base(name))
		steps = append(steps, func() error { return os.WriteFile(file, []byte(value+"\n"), 0o600) },
			func() error { return unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, "") })
	}
	for i, step := range append(steps, share) {
		if err := step(); err != nil {
			return fmt.Errorf("step %d of the mounts: %w", i, err)
		}
	}
	return nil
}

// share makes the mounts of the kubelet visible in pods, because the kubelet requires this.
func share() error { return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "") }

// bind bind-mounts the path from at the path to. One of the two paths is in /run; bind creates that
// path.
func bind(from, to string) error {
	for _, dir := range []string{from, to} {
		if strings.HasPrefix(dir, "/run/") {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// makeNetwork gives the node an address that pods can reach. The address is on a pair of links in
// place of a network card, because not every kernel has dummy links.
func makeNetwork(ctx context.Context) error {
	for _, words := range []string{
		"link set lo up", "link add node0 type veth peer name outside0", "addr add " + NodeAddress + nodePrefix + " dev node0",
		"link set node0 up", "link set outside0 up",
	} {
		cmd := exec.CommandContext(ctx, "ip", strings.Fields(words)...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		err := child.Start(cmd)
		if err == nil {
			err = child.Wait(cmd)
		}
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", words, err, said.Bytes())
		}
	}
	return nil
}

// forward connects clients on this machine's loopback interface to the API server.
func forward(ctx context.Context, listener net.Listener) error {
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(NodeAddress, APIPort))
			if err == nil { // it runs
				link.Join(client, server)
			}
		}()
	}
}

// processes contains the running programs of a cluster.
type processes struct {
	mu      sync.Mutex
	running map[string]*process
	ended   error // error of a program that ended by itself
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func newProcesses() *processes { return &processes{running: map[string]*process{}} }

// serve carries out orders until the connection ends.
func (p *processes) serve(ctx context.Context, control net.Conn) error {
	decoder, encoder := json.NewDecoder(control), json.NewEncoder(control)
	for {
		var o order
		if err := decoder.Decode(&o); err != nil {
			return nil //nolint:nilerr // the test program has ended
		}
		var err error
		switch {
		case o.Start != "":
			err = p.start(ctx, o)
		case o.Stop != "":
			p.stop(o.Stop)
		}
		p.mu.Lock()
		if err == nil {
			err = p.ended
		}
		p.mu.Unlock()
		var a answer
		if err != nil {
			a.Error = err.Error()
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

// start starts a program. The output of the program goes to a file in the directory logs.
func (p *processes) start(ctx context.Context, o order) error {
	log, err := os.OpenFile(filepath.Join(logs, o.Start), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, o.Args[0], o.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = []string{"PATH=" + searchPath, "HOME=/run"} // no proxy of this machine
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := child.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", o.Start, err)
	}
	started := &process{cmd, make(chan struct{})}
	p.running[o.Start] = started
	go func() {
		err := child.Wait(cmd)
		p.mu.Lock()
		if p.running[o.Start] == started && p.ended == nil {
			p.ended = fmt.Errorf("%s has ended: %w", o.Start, err)
			if err == nil {
				p.ended = fmt.Errorf("%s has ended", o.Start)
			}
		}
		p.mu.Unlock()
		close(started.ended)
	}()
	return nil
}

// stop kills a program and waits for its end.
func (p *processes) stop(name string) {
	p.mu.Lock()
	running := p.running[name]
	delete(p.running, name)
	p.mu.Unlock()
	if running != nil {
		_ = running.cmd.Process.Kill() // it may have ended
		<-running.ended
	}
}
