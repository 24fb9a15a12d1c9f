//go:build linux

package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
)

// Names under which a test program starts itself again, as two processes of a cluster. One is the
// keeper, which removes the cluster's control groups at the end. The other is the first process of
// the cluster's process namespace. The first process ends when its connection to the test program
// ends. When the first process ends, the kernel ends all other processes in that namespace. When the
// last process in the namespace has ended, the mounts and the network are gone.
const (
	keeperName = "e2bctl-kubetest-keeper"
	firstName  = "e2bctl-kubetest-first"
)

// Files that both processes inherit.
const (
	controlFile  = 3 + iota // connection to the test program
	listenerFile            // listener on loopback, for the API server
	aliveFile               // pipe that ends when the keeper ends; only the first process inherits it
)

func init() {
	var role func() error
	switch os.Args[0] {
	case keeperName:
		role = func() error { return keep(os.Args[1], os.Args[2]) }
	case firstName:
		role = func() error { return first(os.Args[1]) }
	default:
		return
	}
	if err := role(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1) //nolint:forbidigo // this process is not the test program
	}
	os.Exit(0) //nolint:forbidigo // this process is not the test program
}

// groups returns the directories of a control group: one in each hierarchy of version 1 or 2.
func groups(name string) []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{filepath.Join("/sys/fs/cgroup", name)}
	}
	hierarchies, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs") // the pattern is valid
	var dirs []string
	for _, h := range hierarchies {
		dirs = append(dirs, filepath.Join(filepath.Dir(h), name))
	}
	return dirs
}

// keep starts the first process and prints its process id. When the first process has ended, keep
// removes the control groups.
func keep(group, programs string) (err error) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // the test program may end before it has read the id
	ctx := context.Background()
	defer func() { err = errors.Join(err, cgroup.Remove(ctx, groups(group))) }()
	for _, dir := range groups(group) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	alive, ends, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ends.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", programs)
	cmd.Args[0] = firstName
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(controlFile, "control"), os.NewFile(listenerFile, "listener"), alive}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	err = cmd.Start()
	for _, f := range cmd.ExtraFiles {
		f.Close() // a copy here would keep the connections open
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, cmd.Process.Pid)
	return cmd.Wait()
}

// order is a request to the first process: to start a program, to end a program, or to do nothing.
// The first process answers whether all programs that it started still run.
type order struct {
	Start, Stop string
	Args        []string
}

type answer struct{ Error string }

// spawner is a connection to the first process. It sends one order at a time, and waits for the
// answer before the next order.
type spawner struct {
	conn    net.Conn
	encoder *json.Encoder
	decoder *json.Decoder
}

func newSpawner(conn net.Conn) *spawner {
	return &spawner{conn, json.NewEncoder(conn), json.NewDecoder(conn)}
}

func (s *spawner) send(o order) error {
	if err := s.encoder.Encode(o); err != nil {
		return err
	}
	var a answer
	if err := s.decoder.Decode(&a); err != nil {
		return fmt.Errorf("the first process of the cluster has ended: %w", err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}
