//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// The variables that make this program a server, name its state directory, bound its volumes, and have it
// keep sandboxes and kernels ready. A server keeps none for most tests: they cost more than the tests.
const (
	serverVariable  = "E2BCTL_E2E_SERVER"
	warmVariable    = "E2BCTL_E2E_WARM"
	stateVariable   = "E2BCTL_E2E_STATE"
	boundedVariable = "E2BCTL_E2E_BOUNDED_VOLUMES"
)

// volumeSize is the size of bounded volumes.
const volumeSize = 16 << 20

// serve runs a cloud, prints its address and key to standard output, and waits
// to be killed.
func serve() {
	var opts []local.Option
	if os.Getenv(warmVariable) == "" {
		opts = append(opts, local.WithWarm(0))
	}
	if dir := os.Getenv(stateVariable); dir != "" {
		opts = append(opts, local.WithStateDir(dir))
	}
	if os.Getenv(boundedVariable) != "" {
		opts = append(opts, local.WithMaxVolumeBytes(volumeSize))
	}
	cloud, err := local.Start(context.Background(), opts...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, cloud.URL(), string(cloud.APIKey()))
	_, _ = io.Copy(io.Discard, os.Stdin) // ends if the test dies or closes it
	if err := cloud.Close(); err != nil {
		log.Fatal(err)
	}
}

// server is a cloud in a process of its own.
type server struct {
	command *exec.Cmd
	stdin   io.Closer
	url     string
	key     api.Key
}

// startServer starts this program as a server. It ends with the test at the latest.
func startServer(t *testing.T, env ...string) *server {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(append(os.Environ(), serverVariable+"=1"), env...)
	command.Stderr = t.Output()
	stdin, err := command.StdinPipe()
	must.Do(t, err)
	stdout, err := command.StdoutPipe()
	must.Do(t, err)
	must.Do(t, command.Start())
	s := &server{command: command, stdin: stdin}
	t.Cleanup(func() {
		if command.ProcessState == nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	url, key, found := strings.Cut(strings.TrimSpace(line), " ")
	if !found {
		pinned.Skip(t, "no cloud: %v", err)
	}
	s.url, s.key = url, api.Key(key)
	return s
}

func (s *server) pid() int { return s.command.Process.Pid }

func (s *server) option() sandbox.ClientOption {
	return sandbox.WithOptions(sandbox.WithAPIKey(s.key), sandbox.WithAPIURL(s.url), sandbox.WithSandboxURL(s.url))
}

// kill kills the server like a crash.
func (s *server) kill(t *testing.T) {
	t.Helper()
	must.Do(t, s.command.Process.Kill())
	_ = s.command.Wait() // it was killed
}

// stop ends the server like a program that returns from main.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.stdin.Close(), s.command.Wait()); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// TestServerKilled kills the process of the cloud while a client in another
// process is working.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	python, err := local.FindPython(t.Context())
	switch {
	case err != nil && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	cache := t.TempDir()
	server := startServer(t, warmVariable+"=1", "XDG_CACHE_HOME="+cache, "E2BCTL_PYTHON="+python.Path)
	sb, err := sandbox.Create(t.Context(), server.option())
	must.Do(t, err)
	sandboxtest.Eval(t, sb, "x = 1")
	sandboxtest.Run(t, sb, "setsid nohup sleep 4321 >/dev/null 2>&1 & echo")
	begun, ended := make(chan struct{}, 2), make(chan error, 2)
	go func() {
		_, err := sb.Commands.Run(t.Context(), "echo; sleep 1000", &sandbox.CommandParams{Stdout: whenWritten{func() { begun <- struct{}{} }}})
		ended <- err
	}()
	go func() {
		_, err := sb.RunCode(t.Context(), "print(flush=True)\nwhile True: pass", &sandbox.RunCodeParams{Stdout: whenWritten{func() { begun <- struct{}{} }}})
		ended <- err
	}()
	<-begun
	<-begun
	family := descendants(t, server.pid())
	if len(family) < 5 {
		t.Errorf("only %d processes are seen, want at least 5", len(family))
	}
	groups := cgroups(family)

	server.kill(t)
	for range 2 {
		err := patience.Receive(t, "the end of a call in flight", ended)
		if _, ok := errors.AsType[*api.Error](err); !ok && !errors.Is(err, sandbox.ErrKernelLost) && !strings.Contains(err.Error(), "stream broke") {
			t.Errorf("the call in flight: %v", err)
		}
	}
	if _, err := sb.Commands.Run(t.Context(), "true", nil); err == nil {
		t.Error("a command ran")
	} else if e, ok := errors.AsType[*api.Error](err); !ok || e.StatusCode != 0 {
		t.Errorf("the next command: %v, want an *api.Error and status 0", err)
	}
	if err := sb.Close(); err == nil {
		t.Error("Close says that the sandbox is gone, which it cannot know")
	}

	wantNothingOf(t, family, groups, cache)
}

// started identifies a process by its id and start time: an id alone is reused.
type started struct {
	pid   int
	start string
}

// descendants returns the processes below pid, without pid itself.
func descendants(t *testing.T, pid int) []started {
	t.Helper()
	children := map[int][]started{}
	entries, err := os.ReadDir("/proc")
	must.Do(t, err)
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		if parent, start, _ := status(pid); start != "" {
			children[parent] = append(children[parent], started{pid, start})
		}
	}
	var found []started
	for next := []int{pid}; len(next) > 0; {
		below := children[next[0]]
		next = next[1:]
		for _, child := range below {
			next = append(next, child.pid)
		}
		found = append(found, below...)
	}
	return found
}

// status reads the parent, start time and state of a process; start is empty
// when there is no such process.
func status(pid int) (parent int, start, state string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", ""
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	_, _ = fmt.Sscan(fields[1], &parent)
	return parent, fields[19], fields[0]
}

// living returns the processes that still run. A zombie that the test's init
// has not reaped does not count.
func living(all []started) (left []started) {
	for _, p := range all {
		if _, start, state := status(p.pid); start == p.start && state != "Z" {
			left = append(left, p)
		}
	}
	return left
}

// cgroups returns the directories of the processes' cgroups, without those of the
// test itself.
func cgroups(all []started) (directories []string) {
	own, _ := os.ReadFile("/proc/self/cgroup")
	for _, p := range all {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			path, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
			if unified && !bytes.Contains(own, []byte("0::"+path+"\n")) {
				directories = append(directories, filepath.Join("/sys/fs/cgroup", path))
			}
		}
	}
	return directories
}
