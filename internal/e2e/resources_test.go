//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// seenResources returns the processors and the memory that programs see, and the size of the disk.
const seenResources = `import os, shutil
memory = next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal:"))
os.cpu_count(), len(os.sched_getaffinity(0)), int(memory) >> 10, shutil.disk_usage("/").total >> 20`

// TestResources checks that programs see the resources that clients and templates ask for, that info
// shows and the kernel enforces them, and that impossible ones are refused.
func TestResources(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithResources(local.Resources{CPUs: 2, MemoryBytes: 1 << 30, DiskBytes: 128 << 20}), local.WithMaxCPUs(2), local.WithMaxMemoryBytes(2<<30))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	small := sandbox.Resources{CPUs: 1, MemoryBytes: 300 << 20, DiskBytes: 400 << 20}

	create := func(opts ...sandbox.CreateOption) *sandbox.Sandbox {
		t.Helper()
		sb, err := client.Create(t.Context(), opts...)
		must.Do(t, err)
		t.Cleanup(func() { sb.Close() })
		return sb
	}
	missing := ""
	for _, p := range cloud.Report().Promises {
		switch p.Feature {
		case "memory limit", "processor limit", "disk limit":
			missing += p.Missing
		}
	}
	if missing != "" {
		if _, err := client.Create(t.Context(), sandbox.WithResources(small)); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "resources.") {
			t.Errorf("got %v, want %v with the name of the resource", err, errors.ErrUnsupported)
		}
		if err := create().Resize(t.Context(), small); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "resize of a running sandbox") {
			t.Errorf("a resize: got %v, want %v with its name", err, errors.ErrUnsupported)
		}
		t.Log("nothing else can be tried, because this machine enforces no limits: " + missing)
		return
	}

	// check checks that programs of a sandbox see these resources, and that info shows them.
	check := func(what string, sb *sandbox.Sandbox, cpus int, memoryMB, diskMB int64) {
		t.Helper()
		info, err := sb.Info(t.Context())
		must.Do(t, err)
		if info.CPUs != cpus || info.MemoryBytes != memoryMB<<20 || info.DiskBytes != diskMB<<20 {
			t.Errorf("%s: info has %d processors, %d and %d bytes, want %d, %d MiB and %d MiB", what, info.CPUs, info.MemoryBytes, info.DiskBytes, cpus, memoryMB, diskMB)
		}
		want := fmt.Sprintf("(%d, %d, %d, %d)", cpus, cpus, memoryMB, diskMB)
		if got := sandboxtest.Eval(t, sb, seenResources); got != want {
			t.Errorf("%s: programs see %q, want %q", what, got, want)
		}
		if got := sandboxtest.Run(t, sb, "nproc"); got != strconv.Itoa(cpus) {
			t.Errorf("%s: nproc prints %q, want %d", what, got, cpus)
		}
	}
	one := create(sandbox.WithResources(small))
	check("of its own", one, 1, 300, 400)
	const tooMuch = "head -c 500m /dev/zero | tail -c 400m | wc -c"
	if ran, err := one.Commands.Run(t.Context(), tooMuch, nil); err == nil && strings.TrimSpace(ran.Stdout) == "419430400" {
		t.Errorf("a program used 400 MiB of 300: %+v", ran)
	}
	check("without memory for a program", one, 1, 300, 400)
	other := create()
	check("of the cloud", other, 2, 1024, 128)
	if got := strings.TrimSpace(sandboxtest.Run(t, other, tooMuch)); got != "419430400" {
		t.Errorf("a program that needs 400 MiB of 1024 printed %q", got)
	}

	// Forks and snapshots of a sandbox have its resources.
	forks, err := one.Fork(t.Context(), nil)
	must.Do(t, err)
	for _, f := range forks {
		must.Do(t, f.Err)
		t.Cleanup(func() { f.Sandbox.Close() })
		check("a fork", f.Sandbox, 1, 300, 400)
	}
	snapshot, err := one.Snapshot(t.Context(), nil)
	must.Do(t, err)
	check("of a snapshot", create(sandbox.WithTemplate(snapshot.ID)), 1, 300, 400)
	check("of a snapshot, with resources of its own", create(sandbox.WithTemplate(snapshot.ID), sandbox.WithResources(sandbox.Resources{CPUs: 2})), 2, 300, 400)
	must.Do(t, one.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}))
	must.Do(t, one.Resume(t.Context(), nil))
	check("after a pause", one, 1, 300, 400)

	// A resize changes the resources of the running sandbox, which the others keep.
	sandboxtest.Eval(t, one, "held = b'x' * (350 << 10)")
	must.Do(t, one.Resize(t.Context(), sandbox.Resources{CPUs: 2, MemoryBytes: 1 << 30}))
	check("resized", one, 2, 1024, 400)
	if got := strings.TrimSpace(sandboxtest.Run(t, one, tooMuch)); got != "419430400" {
		t.Errorf("a program that needs 400 MiB after a resize to 1024 printed %q", got)
	}
	if got := sandboxtest.Eval(t, one, "len(held)"); got != strconv.Itoa(350<<10) {
		t.Errorf("after the resize, the variable has %s bytes", got)
	}
	if samples, err := one.Metrics(t.Context(), nil); err != nil || len(samples) == 0 || samples[len(samples)-1].CPUs != 2 || samples[len(samples)-1].MemoryTotalBytes != 1<<30 {
		t.Errorf("after the resize: got the metrics %+v, %v", samples, err)
	}
	resized, err := one.Fork(t.Context(), nil)
	must.Do(t, err)
	must.Do(t, resized[0].Err)
	t.Cleanup(func() { resized[0].Sandbox.Close() })
	check("a fork of the resized", resized[0].Sandbox, 2, 1024, 400)
	check("the fork before", forks[0].Sandbox, 1, 300, 400)
	sandboxtest.Run(t, one, "head -c 100M /dev/zero > file")
	for want, r := range map[string]sandbox.Resources{"of memory, files in memory included": {MemoryBytes: 64 << 20}, "of disk": {DiskBytes: 64 << 20}} {
		if err := one.Resize(t.Context(), r); !errors.Is(err, api.ErrConflict) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "67108864") {
			t.Errorf("a resize below the use: got %v, want %v with %q and both numbers", err, api.ErrConflict, want)
		}
	}
	check("after refused resizes", one, 2, 1024, 400)
	must.Do(t, one.Pause(t.Context(), nil))
	if err := one.Resize(t.Context(), small); !errors.Is(err, sandbox.ErrGone) || !strings.Contains(err.Error(), "paused") {
		t.Errorf("a resize of a paused sandbox: got %v, want %v with its state", err, sandbox.ErrGone)
	}
	must.Do(t, one.Resume(t.Context(), nil))
	check("after a pause with memory", one, 2, 1024, 400)

	// Templates.
	build := func(name string, cpus int, memory int64) (sandbox.CreateOption, string) {
		t.Helper()
		var log strings.Builder
		built, err := template.Build(t.Context(), client.Templates, name, template.FromBase().Run("nproc", nil), &template.BuildParams{
			CPUs: cpus, MemoryBytes: memory, Log: func(e api.BuildLogEntry) { log.WriteString(e.Message + "\n") },
		})
		must.Do(t, err)
		return sandbox.WithTemplate(built.TemplateID), log.String()
	}
	from, _ := build("narrow", 1, 256<<20)
	check("of a template", create(from), 1, 256, 128)
	from, log := build("unchosen", 2, 1<<30)
	check("of an official client's template", create(from), 2, 1024, 128)
	if strings.Contains(log, "processors") {
		t.Errorf("the log of a build that chose no resources has some: %s", log)
	}
	from, log = build("wide", 32, 100<<30)
	check("of a template above the bounds", create(from), 2, 2048, 128)
	if !strings.Contains(log, "the most here") {
		t.Errorf("the log does not say that the template's resources are lowered: %s", log)
	}
	if _, err := template.Build(t.Context(), client.Templates, "64", template.FromBase(), &template.BuildParams{CPUs: 64}); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("a template of 64 processors: got %v, want %v", err, api.ErrInvalidArgument)
	}

	// Impossible resources are refused.
	for want, r := range map[string]sandbox.Resources{
		"--max-cpus": {CPUs: 2.5}, "--max-memory": {MemoryBytes: 4 << 30}, "16777216 are the least": {MemoryBytes: 1 << 20},
		"0.01 are the least": {CPUs: 0.001}, "1048576 are the least": {DiskBytes: 1}, "not negative": {CPUs: -1},
	} {
		_, err := client.Create(t.Context(), sandbox.WithResources(r))
		for what, err := range map[string]error{"a creation": err, "a resize": one.Resize(t.Context(), r)} {
			if !errors.Is(err, api.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %+v: got %v, want %v with %q", what, r, err, api.ErrInvalidArgument, want)
			}
		}
	}
}
