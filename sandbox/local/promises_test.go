//go:build linux

package local_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// engineCase is a column of the table of engines.md.
type engineCase struct {
	name    string
	options func(t *testing.T) []local.Option
	// needs names the requirement on the machine, in the words of the table, of features that not
	// every machine has.
	needs map[string]string
}

// engineCases are the columns that this machine can have. An engine adds itself here.
func engineCases() []engineCase {
	full := "`full`"
	if os.Geteuid() != 0 {
		full = "`full`, one id"
	}
	room := func(isolation local.Isolation) func(*testing.T) []local.Option {
		return func(*testing.T) []local.Option { return []local.Option{local.WithIsolation(isolation)} }
	}
	const groups = "with control groups"
	limits := map[string]string{"memory limit": groups, "processor limit": groups}
	and := func(more map[string]string) map[string]string {
		all := maps.Clone(limits)
		all["resize of a running sandbox"] = groups
		maps.Copy(all, more)
		return all
	}
	weak := and(map[string]string{"process limit": groups})
	cases := []engineCase{
		{full, room(local.Full), and(map[string]string{"every program reaches the network through the rules": "with nftables"})},
		{"`restricted`", room(local.Restricted), weak},
		{"`none`", room(local.None), weak},
	}
	if !enginetest.Wanted() {
		return cases
	}
	return append(cases,
		engineCase{"`docker`", func(t *testing.T) []local.Option { return dockerOptions(t, local.DockerParams{}) }, and(map[string]string{
			"process limit": groups, "disk limit": "with quotas", "mounts of host directories": "as root, on this machine",
		})},
		engineCase{"`wasm`", wasmOptions, limits},
		engineCase{"`gvisor`", gvisorOptions, and(map[string]string{
			"process limit": groups, "every program reaches the network through the rules": "with nftables", "root and user are two ids": "as root",
		})},
	)
}

// TestPromises tries every feature on each engine: a promised one works, and any other has no
// effect or is refused by name. The results are the table of engines.md.
func TestPromises(t *testing.T) {
	t.Parallel()
	readme := readTable(t)
	for _, engine := range engineCases() {
		t.Run(engine.name, func(t *testing.T) {
			t.Parallel()
			w := tryOut(t, engine)
			report := w.cloud.Report()
			var features []string
			for _, p := range report.Promises {
				features = append(features, p.Feature)
			}
			readme.setRows(t, features)
			for _, p := range report.Promises {
				t.Run(p.Feature, func(t *testing.T) {
					cell := cmp.Or(engine.needs[p.Feature], w.check(t, p))
					readme.set(t, p.Feature, engine.name, cell)
				})
			}
		})
	}
}

// tryOut starts the clouds in which an engine is tried.
func tryOut(t *testing.T, engine engineCase, more ...local.Option) *promised {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	shown := filepath.Join(t.TempDir(), "shown")
	must.Do(t, errors.Join(os.Mkdir(shown, 0o755), os.WriteFile(filepath.Join(shown, "file"), []byte("of the host"), 0o644)))
	options := append(engine.options(t), more...)
	w := &promised{state: state, shown: shown, inside: shell{}, options: options}
	w.cloud = sandboxtest.New(t, append(slices.Clone(options), local.WithStateDir(state), local.WithAllowedMounts(shown))...)
	if w.cloud.Report().Engine == local.EngineWasm {
		w.inside = code{}
	}
	limits := local.Resources{MaxProcesses: 64, DiskBytes: 16 << 20, CPUs: 0.3}
	if w.missing("memory limit") == "" {
		limits.MemoryBytes = 256 << 20
		if w.cloud.Report().Engine == local.EngineWasm {
			limits.MemoryBytes = 512 << 20 // Deno takes most of the rest
		}
	}
	w.small = sandboxtest.New(t, append(slices.Clone(options), local.WithWarm(0), local.WithResources(limits))...)
	return w
}

// promised is an engine whose promises are tried.
type promised struct {
	cloud *sandboxtest.Cloud
	small *sandboxtest.Cloud // with small limits
	state string
	shown string // a directory that is allowed to be mounted
	inside

	options []local.Option // of the engine
}

// inside acts within sandboxes of an engine.
type inside interface {
	// write writes a file, and reports whether it could.
	write(t *testing.T, sb *sandbox.Sandbox, path, text string) bool
	// read returns the text of a file without the space around it.
	read(t *testing.T, sb *sandbox.Sandbox, path string) string
	// remember makes a state that is in memory alone. The function that it returns reports whether
	// a sandbox has that state.
	remember(t *testing.T, sb *sandbox.Sandbox) func(*testing.T, *sandbox.Sandbox) bool
}

// errUntried means that the feature cannot be tried here.
var errUntried = errors.New("not tried")

// refusedByName are the features that are asked for by a call; others are there or not.
var refusedByName = []string{"commands", "terminals", "pause with memory", "snapshots, forks and file pauses", "memory in snapshots, forks and pauses that outlast the cloud", "volumes", "header rules", "mounts of host directories", "services of this machine", "resize of a running sandbox"}

// check tries a feature and returns whether this engine has it, "yes" or "no". If the feature
// cannot be tried here, it returns the promise of the engine.
func (w *promised) check(t *testing.T, p local.Promise) string {
	t.Helper()
	answer := func(has bool) string {
		if has {
			return "yes"
		}
		return "no"
	}
	tries := w.tries()
	switch w.cloud.Report().Engine {
	case local.EngineWasm:
		tries = w.wasmTries()
	case local.EngineGVisor:
		tries = w.gvisorTries()
	}
	try := tries[p.Feature]
	if try == nil {
		return answer(p.Missing == "")
	}
	happened, err := try(t)
	if errors.Is(err, errUntried) {
		return answer(p.Missing == "")
	}
	if happened != (p.Missing == "") || happened && err != nil {
		t.Errorf("it happens: %v, error %v; the engine lacks it because of %q", happened, err, p.Missing)
	}
	if happened || !slices.Contains(refusedByName, p.Feature) {
		return answer(happened)
	}
	if name := fmt.Sprintf("not supported by the %s engine: ", w.cloud.Report().Engine); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), p.Missing) {
		t.Errorf("it is refused with %v, want %q and %q", err, name, p.Missing)
	}
	return answer(happened)
}

// tries returns the trials that show whether a feature works, by feature.
func (w *promised) tries() map[string]func(*testing.T) (bool, error) {
	return map[string]func(*testing.T) (bool, error){
		"commands":                  w.commands,
		"terminals":                 w.terminals,
		"root and user are two ids": w.twoUsers,
		"every program reaches the network through the rules": w.allEgress,
		"memory limit":                     w.memoryLimit,
		"processor limit":                  w.cpuLimit,
		"process limit":                    w.processLimit,
		"disk limit":                       w.diskLimit,
		"pause with memory":                w.pauses,
		"snapshots, forks and file pauses": w.savedFiles,
		"memory in snapshots, forks and pauses that outlast the cloud": w.savedMemory,
		"shared layers":               w.sharedLayers,
		"volumes":                     w.volumes,
		"header rules":                w.headerRules,
		"mounts of host directories":  w.mounts,
		"container images":            w.images,
		"idle limits":                 w.idleLimits,
		"resize of a running sandbox": w.resizes,
		"services of this machine":    w.hostServices,
	}
}

// output runs a command, and returns its stdout even if the command fails.
func output(t *testing.T, sb *sandbox.Sandbox, user, command string) string {
	t.Helper()
	result, err := sb.Commands.Run(t.Context(), command, &sandbox.CommandParams{User: user, Timeout: time.Minute})
	if _, failed := errors.AsType[*sandbox.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return strings.TrimSpace(result.Stdout)
}

// shell acts within sandboxes by commands.
type shell struct{}

func (shell) write(t *testing.T, sb *sandbox.Sandbox, path, text string) bool {
	t.Helper()
	return output(t, sb, "user", "echo "+sandbox.Quote(text)+" >"+sandbox.Quote(path)+" && echo written") == "written"
}

func (shell) read(t *testing.T, sb *sandbox.Sandbox, path string) string {
	t.Helper()
	return output(t, sb, "user", "cat "+sandbox.Quote(path))
}

func (shell) remember(t *testing.T, sb *sandbox.Sandbox) func(*testing.T, *sandbox.Sandbox) bool {
	t.Helper()
	pid := output(t, sb, "user", `(exec setsid sleep 600) >/dev/null 2>&1 & echo $!`)
	return func(t *testing.T, sb *sandbox.Sandbox) bool {
		t.Helper()
		return output(t, sb, "user", "kill -0 "+pid+" && echo lives") == "lives"
	}
}

func (w *promised) commands(t *testing.T) (bool, error) {
	_, err := w.cloud.Create(t).Commands.Run(t.Context(), "true", nil)
	return err == nil, err
}

func (w *promised) terminals(t *testing.T) (bool, error) {
	terminal, err := w.cloud.Create(t).PTY.Open(t.Context(), &sandbox.PTYParams{Command: "test -t 0 && echo is-one"})
	if err != nil {
		return false, err
	}
	defer terminal.Close()
	var text strings.Builder
	part := make([]byte, 256)
	for err == nil {
		var n int
		n, err = terminal.Read(part)
		text.Write(part[:n])
	}
	return strings.Contains(text.String(), "is-one"), nil
}

func (w *promised) twoUsers(t *testing.T) (bool, error) {
	sb := w.cloud.Create(t)
	return output(t, sb, "root", "id -u") != output(t, sb, "user", "id -u"), nil
}

// allEgress connects to an address of the documentation, which a rule denies, without the
// proxy: the cloud then knows of it, before it ends the connection.
func (w *promised) allEgress(t *testing.T) (bool, error) {
	sb := w.cloud.Create(t, sandbox.WithNetwork(sandbox.Network{DenyOut: []string{"192.0.2.0/24"}}))
	output(t, sb, "user", `python3 -c '
import socket
with socket.create_connection(("192.0.2.1", 81), 2) as s:
    s.settimeout(30)
    s.recv(1)' 2>&1`)
	return slices.ContainsFunc(w.cloud.Requests(), func(r local.Request) bool {
		return r.Method == local.MethodEgress && r.Sandbox == sb.ID() && r.Path == "192.0.2.1"
	}), nil
}

// memoryLimit has three processes hold more together than there may be, each of them less.
func (w *promised) memoryLimit(t *testing.T) (bool, error) {
	if missing := w.missing("memory limit"); missing != "" {
		return false, errUntried // it would take the memory of the machine
	}
	const hold = `python3 -c '
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
children = []
for _ in range(3):
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        x = b"x" * (120 << 20)
        os.write(w, b"1")
        os.close(w)
        while True: signal.pause()
    os.close(w)
    os.read(r, 1)
    children.append(child)
held = 0
for child in children:
    os.kill(child, signal.SIGTERM)
    held += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7 # not one that was killed before
print("held", held)'`
	sb, err := sandbox.Create(t.Context(), w.small.Option())
	must.Do(t, err)
	defer func() { _ = sb.Close() }() // it may have died of it
	result, err := sb.Commands.Run(t.Context(), hold, &sandbox.CommandParams{Timeout: time.Minute})
	return err != nil || !strings.Contains(result.Stdout, "held 3"), nil
}

// cpuLimit compares the processor time of a busy process with the time that passes. A
// busy machine gives it less than it may have, so that nothing is shown of one without a limit.
func (w *promised) cpuLimit(t *testing.T) (bool, error) {
	if w.missing("processor limit") != "" {
		return false, errUntried
	}
	return busyShare(t, w.small.Create(t)) < 0.6, nil
}

// resizes lowers the processors of a running sandbox, which cpuLimit tries of a new one.
func (w *promised) resizes(t *testing.T) (bool, error) {
	sb := w.cloud.Create(t)
	if err := sb.Resize(t.Context(), sandbox.Resources{CPUs: 0.3, MemoryBytes: 700 << 20}); err != nil {
		return false, err
	}
	info, err := sb.Info(t.Context())
	return err == nil && info.MemoryBytes == 700<<20 && busyShare(t, sb) < 0.6, err
}

// busyShare returns the part of a processor that a busy process of a sandbox gets.
func busyShare(t *testing.T, sb *sandbox.Sandbox) float64 {
	t.Helper()
	const busy = `python3 -c 'import time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() < begin + 2: pass
print((time.process_time() - used) / (time.monotonic() - begin))'`
	share, err := strconv.ParseFloat(output(t, sb, "user", busy), 64)
	must.Do(t, err)
	return share
}

func (w *promised) processLimit(t *testing.T) (bool, error) {
	got := output(t, w.small.Create(t), "user", `python3 -c '
import subprocess
started = []
try:
    for _ in range(100): started.append(subprocess.Popen(["sleep", "600"]))
except OSError: print("refused")
for p in started: p.kill()' 2>&1`)
	return strings.Contains(got, "refused") || strings.Contains(got, "unavailable"), nil
}

func (w *promised) diskLimit(t *testing.T) (bool, error) {
	return output(t, w.small.Create(t), "user", `cd; head -c 33554432 /dev/zero >big 2>/dev/null || echo full; rm -f big`) == "full", nil
}

func (w *promised) pauses(t *testing.T) (bool, error) {
	sb := w.cloud.Create(t)
	remembered := w.remember(t, sb)
	if err := sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFull}); err != nil {
		return false, err
	}
	if err := sb.Resume(t.Context(), nil); err != nil {
		return false, err
	}
	return remembered(t, sb), nil
}

func (w *promised) savedFiles(t *testing.T) (bool, error) {
	sb := w.cloud.Create(t)
	w.write(t, sb, "file", "mine")
	snapshot, err := sb.Snapshot(t.Context(), nil)
	if err != nil {
		return false, err
	}
	if err := sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}); err != nil {
		return false, err
	}
	if err := sb.Resume(t.Context(), nil); err != nil {
		return false, err
	}
	made := w.cloud.Create(t, sandbox.WithTemplate(snapshot.ID))
	return w.read(t, sb, "file") == "mine" && w.read(t, made, "file") == "mine", nil
}

// savedMemory looks for the memory of a sandbox in one that is made from its snapshot.
func (w *promised) savedMemory(t *testing.T) (bool, error) {
	sb := w.cloud.Create(t)
	remembered := w.remember(t, sb)
	snapshot, err := sb.Snapshot(t.Context(), &sandbox.SnapshotParams{Mode: sandbox.SnapshotFull})
	if err != nil {
		return false, err
	}
	return remembered(t, w.cloud.Create(t, sandbox.WithTemplate(snapshot.ID))), nil
}

// sharedLayers reports whether a snapshot left directories in the state directory, which
// sandboxes share, or a file, which is copied for each sandbox.
func (w *promised) sharedLayers(t *testing.T) (bool, error) {
	if _, err := w.cloud.Create(t).Snapshot(t.Context(), nil); err != nil {
		return false, err // another promise
	}
	shared, err := filepath.Glob(filepath.Join(w.state, "files", "*", "trees"))
	return len(shared) > 0, err
}

func (w *promised) volumes(t *testing.T) (bool, error) {
	client, err := sandbox.NewClient(w.cloud.Option())
	if err != nil {
		return false, err
	}
	defer client.Close()
	if _, err := client.Volumes.Create(t.Context(), "data"); err != nil {
		return false, err
	}
	var all []*sandbox.Sandbox
	for range 2 {
		sb, err := client.Create(t.Context(), sandbox.WithVolume("data", "/data"))
		if err != nil {
			return false, err
		}
		defer sb.Close()
		all = append(all, sb)
	}
	w.write(t, all[0], "/data/file", "shared")
	return w.read(t, all[1], "/data/file") == "shared", nil
}

func (w *promised) headerRules(t *testing.T) (bool, error) {
	rules := sandbox.Network{AllowOut: []string{"a.test"}, DenyOut: []string{sandbox.AllTraffic}, Headers: map[string]map[string]string{"a.test": {"X-Key": "value"}}}
	sb, err := sandbox.Create(t.Context(), w.cloud.Option(), sandbox.WithNetwork(rules))
	if err != nil {
		return false, err
	}
	defer sb.Close()
	return output(t, sb, "user", `grep -c BEGIN /run/e2bctl/authority.pem`) == "1", nil
}

// idleLimits runs silent code for longer than the idle limit of its sandbox, and waits for the end of the
// sandbox. The limit is longer than the second for which a client waits before it asks a new kernel again.
func (w *promised) idleLimits(t *testing.T) (bool, error) {
	sb, err := sandbox.Create(t.Context(), w.cloud.Option(), sandbox.WithExpiry(sandbox.Expiry{Idle: 2 * time.Second}))
	if err != nil {
		return false, err
	}
	defer sb.Close()
	if got := says(t, sb, "import time\ntime.sleep(3)\nprint('lives')"); got != "lives" {
		t.Errorf("got %q, want that running code keeps the sandbox", got)
	}
	idle := false
	patience.Until(t, "the end of a sandbox that nothing uses", func() bool {
		_, err := sb.Info(t.Context())
		gone, ended := errors.AsType[*sandbox.GoneError](err)
		idle = ended && gone.State == sandbox.GoneIdle
		return ended
	})
	return idle, nil
}

// hostServices sends a request to a server of this machine by its name in sandboxes. Python uses the
// proxy of its environment, if there is one.
func (w *promised) hostServices(t *testing.T) (bool, error) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "served") }))
	defer server.Close()
	cloud, err := local.Start(t.Context(), append(slices.Clone(w.options), local.WithWarm(0), local.WithHostService("served:7000", server.Listener.Addr().String()))...)
	if err != nil {
		return false, err
	}
	defer cloud.Close()
	sb, err := sandbox.Create(t.Context(), cloud.Option())
	if err != nil {
		return false, err
	}
	defer sb.Close()
	return says(t, sb, `
import urllib.request
print(urllib.request.urlopen("http://served.host.internal:7000/").read().decode())`) == "served", nil
}

func (w *promised) mounts(t *testing.T) (bool, error) {
	sb, err := sandbox.Create(t.Context(), w.cloud.Option(), sandbox.WithMount(sandbox.Mount{Dir: w.shown, Path: "/shown"}))
	if err != nil {
		return false, err
	}
	defer sb.Close()
	return w.read(t, sb, "/shown/file") == "of the host" && !w.write(t, sb, "/shown/new", "mine"), nil
}

// missing returns why the engine lacks a feature; "" if it does not.
func (w *promised) missing(feature string) string {
	for _, p := range w.cloud.Report().Promises {
		if p.Feature == feature {
			return p.Missing
		}
	}
	return "it is not in the report"
}

func (w *promised) images(t *testing.T) (bool, error) {
	client, err := sandbox.NewClient(w.cloud.Option())
	must.Do(t, err)
	defer client.Close()
	built, err := template.Build(t.Context(), client.Templates, "of-an-image", template.FromImage("scratch", nil), nil)
	if err != nil {
		return false, err
	}
	sb := w.cloud.Create(t, sandbox.WithTemplate(built.Name))
	got, err := sb.Files.Exists(t.Context(), "/usr/bin", nil)
	return !got, err
}
