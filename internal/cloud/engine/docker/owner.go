package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// Labels of containers.
const (
	labelInstance = "e2bctl.instance" // the engine that made the container
	labelSandbox  = "e2bctl.sandbox"  // the id of the sandbox
	labelServer   = "e2bctl.server"   // the process of the server, in the form that self returns
)

// newInstance returns a random label for an engine.
func newInstance() string { return rand.Text() }

// self identifies this process among all that use the daemon.
func self() string { return fmt.Sprintf("%s %s %d", machine(), startOf(os.Getpid()), os.Getpid()) }

// machine identifies the namespace of process ids of this process. It is the namespace of this
// machine, or of the server's container.
func machine() string {
	host, _ := os.Hostname()                         // "" is a name too
	namespace, _ := os.Readlink("/proc/self/ns/pid") // only Linux has it
	return strings.ReplaceAll(host+"/"+namespace, " ", "_")
}

// startOf returns the start time of a process, or "-" if /proc does not have it.
func startOf(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "-"
	}
	// start is the index of the start time in the fields behind the name; the name may have spaces
	// and brackets.
	const start = 19
	if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(fields) > start {
		return fields[start]
	}
	return "-"
}

// isDead reports whether the process that a label names has certainly ended.
func isDead(server string) bool {
	fields := strings.Fields(server)
	if len(fields) != 3 || fields[0] != machine() {
		return false
	}
	pid, err := strconv.Atoi(fields[2])
	if err != nil || pid < 1 {
		return false
	}
	process, err := os.FindProcess(pid)
	if err != nil { // on Windows it has ended; another user's process may not be opened
		return !errors.Is(err, fs.ErrPermission)
	}
	defer func() { _ = process.Release() }()
	return errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) || startOf(pid) != fields[1]
}

// removeTimeout bounds a removal.
const removeTimeout = 30 * time.Second

// sweep removes containers of other engines: ended containers of servers on any machine, and all
// containers of dead servers on this machine. A container of a dead server on another machine ends
// by itself.
func (e *Engine) sweep(ctx context.Context) error {
	all, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labelInstance)})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range all.Items {
		ended := c.State == container.StateExited || c.State == container.StateDead
		if c.Labels[labelInstance] == e.instance || !ended && !isDead(c.Labels[labelServer]) {
			continue
		}
		e.options.Logger.InfoContext(ctx, "removing the container of a server that has ended", "sandbox", c.Labels[labelSandbox], "container", c.ID, "state", c.State)
		errs = append(errs, e.remove(ctx, c.ID))
	}
	return errors.Join(errs...)
}

// Number of attempts of a removal, and the pause between them. A removal fails while the container is
// ending by itself.
const (
	removeAttempts = 20
	removePause    = 100 * time.Millisecond
)

// remove ends and removes a container, and returns when it is gone.
func (e *Engine) remove(ctx context.Context, id string) error {
	var err error
	for range removeAttempts {
		_, err = e.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case errdefs.IsConflict(err): // it is being removed
			if _, err = e.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{}); errdefs.IsNotFound(err) {
				return nil
			}
			if err == nil {
				err = errors.New("it is still there")
			}
		}
		if client.IsErrConnectionFailed(err) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove the container %.12s: %w", id, context.Cause(ctx))
		case <-time.After(removePause):
		}
	}
	return fmt.Errorf("remove the container %.12s: %w", id, err)
}

// leave remembers a container that could not be removed, for example because the daemon did not
// answer.
func (e *Engine) leave(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leftovers[id] = struct{}{}
}

// removeLeftovers tries again to remove the containers that leave has remembered.
func (e *Engine) removeLeftovers(ctx context.Context) error {
	e.mu.Lock()
	left := make([]string, 0, len(e.leftovers))
	for id := range e.leftovers {
		left = append(left, id)
	}
	e.mu.Unlock()
	var errs []error
	for _, id := range left {
		if err := e.remove(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		e.mu.Lock()
		delete(e.leftovers, id)
		e.mu.Unlock()
	}
	return errors.Join(errs...)
}
