//go:build linux

package kubetest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

const namespace = "sandboxes"

func sandboxPath(name string) string {
	return strings.TrimSuffix("/apis/agents.x-k8s.io/v1beta1/namespaces/"+namespace+"/sandboxes/"+name, "/")
}

func podPath(name string) string { return "/api/v1/namespaces/" + namespace + "/pods/" + name }

// createSandbox creates a sandbox whose home is a volume. Its program counts its starts there.
func createSandbox(t *testing.T, c *Cluster, name, image string) {
	t.Helper()
	type object = map[string]any
	must.Do(t, c.Call(t.Context(), http.MethodPost, sandboxPath(""), object{
		"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": object{"name": name},
		"spec": object{
			"podTemplate": object{"spec": object{
				"terminationGracePeriodSeconds": 1,
				"containers": []object{{
					"name": "sandbox", "image": image,
					"command":        []string{"/bin/busybox", "sh", "-c", "test -x " + ProgramPath + " && echo start >>/home/starts; exec sleep 1000000"},
					"readinessProbe": object{"exec": object{"command": []string{"/bin/busybox", "grep", "-c", "start", "/home/starts"}}, "periodSeconds": 1},
					"volumeMounts":   []object{{"name": "home", "mountPath": "/home"}},
				}},
			}},
			"volumeClaimTemplates": []object{{
				"metadata": object{"name": "home"},
				"spec":     object{"accessModes": []string{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "1Mi"}}},
			}},
		},
	}, nil))
}

// timed logs how long f takes.
func timed(t *testing.T, what string, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	t.Logf("%s after %.2f s", what, time.Since(begin).Seconds())
}

func setMode(t *testing.T, c *Cluster, name, mode string) {
	t.Helper()
	must.Do(t, c.Call(t.Context(), http.MethodPatch, sandboxPath(name), map[string]any{"spec": map[string]any{"operatingMode": mode}}, nil))
}

func ready(o Object) bool { return o.Has("Ready") }

// starts returns how often the program of the only sandbox with a volume has started.
func starts(t *testing.T, c *Cluster) int {
	t.Helper()
	homes, err := filepath.Glob(c.path("/tmp/hostpath_pv/*/starts"))
	must.Do(t, err)
	if len(homes) != 1 {
		t.Fatalf("the volumes with a file of the sandbox are %q, want one", homes)
	}
	text, err := os.ReadFile(homes[0])
	must.Do(t, err)
	return strings.Count(string(text), "start")
}

// A sandbox runs, is suspended and resumed with its volume, survives what happens to the API server
// and the controller, and is gone when it is deleted. Nothing of the cluster is left at the end.
func TestSandbox(t *testing.T) {
	Need(t)
	before := footprint(t)
	var was traces
	t.Cleanup(func() { was.checkGone(t, before) }) // after the cluster's own end
	c := Start(t)
	was = tracesOf(t, c)

	timed(t, "an image was added", func() { c.AddImage(t, Program) })
	timed(t, "a sandbox was ready", func() {
		createSandbox(t, c, "one", Program)
		c.Await(t, "the sandbox is ready", sandboxPath("one"), ready)
	})
	first := c.Await(t, "its pod runs", podPath("one"), ready)

	timed(t, "it was suspended", func() {
		setMode(t, c, "one", "Suspended")
		c.AwaitGone(t, podPath("one"))
	})
	timed(t, "it was ready again", func() {
		setMode(t, c, "one", "Running")
		c.Await(t, "the sandbox is ready again", podPath("one"), ready)
	})
	second := c.Await(t, "the sandbox says so", sandboxPath("one"), ready)
	if n := starts(t, c); n != 2 || first.Metadata.UID == second.Metadata.UID {
		t.Errorf("after a suspension its volume has %d starts, want 2", n)
	}

	timed(t, "the API server was ready again", func() { c.RestartAPIServer(t) })
	c.KillController(t)
	must.Do(t, c.Call(t.Context(), http.MethodDelete, podPath("one"), nil, nil))
	c.AwaitGone(t, podPath("one"))
	c.StartController(t)
	timed(t, "a lost pod was replaced", func() {
		c.Await(t, "the pod runs again", podPath("one"), ready)
	})

	createSandbox(t, c, "missing", "e2bctl.test/missing:1")
	c.Await(t, "its pod waits", podPath("missing"), func(o Object) bool { return o.Status.Phase == "Pending" })
	patience.Until(t, "an event says that there is no such image", func() bool {
		return slices.ContainsFunc(c.Events(t), func(e string) bool {
			return strings.Contains(e, "e2bctl.test/missing:1") && strings.HasPrefix(e, "Failed: ")
		})
	})

	timed(t, "its pod was gone", func() {
		must.Do(t, c.Call(t.Context(), http.MethodDelete, sandboxPath("one"), nil, nil))
		c.AwaitGone(t, sandboxPath("one"))
		c.AwaitGone(t, podPath("one"))
	})
}

// TestKilled checks that nothing is left of a cluster whose test program is killed. It starts itself
// as that program.
func TestKilled(t *testing.T) {
	Need(t)
	if os.Getenv(holding) != "" {
		hold(t)
		return
	}
	before := footprint(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestKilled$", "-test.v")
	cmd.Env = append(os.Environ(), holding+"=1")
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	defer stdin.Close()
	output, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	var was traces
	var said strings.Builder
	for lines := bufio.NewScanner(output); was.Group == "" && lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if text, ok := strings.CutPrefix(lines.Text(), holding); ok {
			must.Do(t, json.Unmarshal([]byte(text), &was))
		}
	}
	if was.Group == "" {
		t.Fatalf("no cluster: %v\n%s", cmd.Wait(), said.String())
	}
	must.Do(t, cmd.Process.Kill())
	begin := time.Now()
	_ = cmd.Wait() // it was killed
	was.checkGone(t, before)
	t.Logf("all was gone %.2f s after the kill", time.Since(begin).Seconds())
}

const holding = "E2BCTL_TEST_KUBERNETES_HOLD"

// hold holds a cluster with a sandbox until TestKilled kills this program.
func hold(t *testing.T) {
	t.Helper()
	c := Start(t)
	c.AddImage(t, Program)
	createSandbox(t, c, "one", Program)
	c.Await(t, "the sandbox is ready", sandboxPath("one"), ready)
	text, err := json.Marshal(tracesOf(t, c))
	must.Do(t, err)
	fmt.Fprintf(os.Stdout, "\n%s%s\n", holding, text)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until TestKilled ends
}

// traces identify what belongs to a cluster.
type traces struct {
	Group      string
	Namespaces []string // of its first process, in the form of /proc/PID/ns
	Processes  []int    // the keeper and the first process
}

func tracesOf(t *testing.T, c *Cluster) traces {
	t.Helper()
	found := traces{Group: c.group, Processes: []int{c.keeper.Process.Pid, c.first}}
	for _, kind := range []string{"pid", "mnt", "net"} {
		link, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(c.first), "ns", kind))
		must.Do(t, err)
		found.Namespaces = append(found.Namespaces, link)
	}
	if n := len(found.members()); n < 8 {
		t.Errorf("%d processes are in the namespaces of the cluster; it has more programs", n)
	}
	if n := len(found.groups()); n == 0 {
		t.Error("the cluster has no control group")
	}
	return found
}

// members returns the processes that are in a namespace of the cluster.
func (w traces) members() (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		for _, kind := range []string{"pid", "mnt", "net"} {
			link, err := os.Readlink(filepath.Join(dir, "ns", kind))
			if err == nil && slices.Contains(w.Namespaces, link) {
				found = append(found, dir)
				break
			}
		}
	}
	return found
}

// groups returns the control groups of the cluster that exist.
func (w traces) groups() (found []string) {
	for _, dir := range groups(w.Group) {
		if _, err := os.Stat(dir); err == nil {
			found = append(found, dir)
		}
	}
	return found
}

// checkGone waits until nothing of the cluster is left. It fails the test if this machine has a
// link, mount or file of a cluster that it did not have before.
func (w traces) checkGone(t *testing.T, before map[string]bool) {
	t.Helper()
	if w.Group == "" {
		return // the cluster did not start, so that the test has failed
	}
	patience.Until(t, "the cluster's processes and control groups are gone", func() bool {
		for _, pid := range w.Processes {
			if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); err == nil {
				return false
			}
		}
		return len(w.members()) == 0 && len(w.groups()) == 0
	})
	for trace := range footprint(t) {
		if !before[trace] {
			t.Errorf("left over: %s", trace)
		}
	}
}

var (
	links = regexp.MustCompile(`^(node|outside|pods|veth)`)
	ours  = regexp.MustCompile(`kube|/(containerd|etcd|cni|netns)|hostpath_pv`)
)

// footprint returns the links, mounts and files of this machine that a cluster could leave behind.
func footprint(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	interfaces, err := net.Interfaces()
	must.Do(t, err)
	for _, l := range interfaces {
		if links.MatchString(l.Name) {
			found["link "+l.Name] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must.Do(t, err)
	for line := range strings.Lines(string(mounts)) {
		if ours.MatchString(line) {
			found["mount "+line] = true
		}
	}
	for _, dir := range []string{"/run", "/var/lib", "/var/log", "/tmp", "/etc", "/opt", "/usr/libexec"} {
		entries, err := os.ReadDir(dir)
		if !errors.Is(err, fs.ErrNotExist) {
			must.Do(t, err)
		}
		for _, e := range entries {
			if ours.MatchString("/" + e.Name()) {
				found["file "+filepath.Join(dir, e.Name())] = true
			}
		}
	}
	return found
}
