//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

const serverVariable = "E2BCTL_E2E_SERVER"

// serve runs a cloud, prints its address and key to standard output, and waits
// to be killed.
func serve() {
	cloud, err := local.Start(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stdout, cloud.URL(), string(cloud.APIKey()))
	_, _ = io.Copy(io.Discard, os.Stdin) // ends if the test dies
	_ = cloud.Close()
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
	server := exec.CommandContext(t.Context(), os.Args[0])
	server.Env = append(os.Environ(), serverVariable+"=1", "XDG_CACHE_HOME="+cache, "E2BCTL_PYTHON="+python.Path)
	server.Stderr = t.Output()
	if _, err := server.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	url, key, found := strings.Cut(strings.TrimSpace(line), " ")
	if !found {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no cloud: %v", err)
		}
		t.Skipf("no cloud: %v", err)
	}
	sb, err := sandbox.Create(t.Context(), sandbox.WithAPIKey(api.Key(key)), sandbox.WithAPIURL(url), sandbox.WithSandboxURL(url))
	if err != nil {
		t.Fatal(err)
	}
	evaluate(t, sb, "x = 1")
	run(t, sb, "setsid nohup sleep 4321 >/dev/null 2>&1 & echo")
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
	family := descendants(t, server.Process.Pid)
	if len(family) < 5 {
		t.Errorf("only %d processes are seen, want at least 5", len(family))
	}
	groups := cgroups(family)

	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for range 2 {
		err := <-ended
		if _, ok := errors.AsType[*api.Error](err); !ok && !errors.Is(err, sandbox.ErrKernelLost) && !strings.Contains(err.Error(), "stream broke") {
			t.Errorf("the call in flight: %v", err)
		}
	}
	if took := time.Since(killed); took > 30*time.Second {
		t.Errorf("the calls in flight ended after %v, want at most %v", took, 30*time.Second)
	}
	if _, err := sb.Commands.Run(t.Context(), "true", nil); err == nil {
		t.Error("a command ran")
	} else if e, ok := errors.AsType[*api.Error](err); !ok || e.StatusCode != 0 {
		t.Errorf("the next command: %v, want an *api.Error and status 0", err)
	}
	closing := time.Now()
	if err := sb.Close(); err == nil {
		t.Error("Close says that the sandbox is gone, which it cannot know")
	}
	if took := time.Since(closing); took > 30*time.Second {
		t.Errorf("Close took %v, want at most %v", took, 30*time.Second)
	}

	eventually(t, "the end of its processes", func() bool { return len(living(family)) == 0 })
	eventually(t, "the end of its directory", func() bool {
		left, err := filepath.Glob(filepath.Join(cache, "e2bctl", "run", "cloud-*"))
		return err == nil && len(left) == 0
	})
	eventually(t, "the end of its cgroups", func() bool {
		for _, group := range groups {
			if _, err := os.Stat(group); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
		return true
	})
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(cache)) {
		t.Errorf("mounts are left: %v", err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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

// cgroups returns the directories of the processes' cgroups, except those that
// the test itself is in.
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
