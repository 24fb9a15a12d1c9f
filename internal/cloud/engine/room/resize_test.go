//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// countResources prints the processors, the mebibytes of memory and the mebibytes of disk that programs count.
const countResources = `echo $(nproc) $(getconf _NPROCESSORS_ONLN) $(grep -c ^processor /proc/cpuinfo) \
$(awk '/MemTotal/{print $2/1024}' /proc/meminfo) $(df -m / | awk 'END{print $2}')`

// resize resizes a held sandbox.
func resize(t *testing.T, s *Sandbox, l engine.Limits) error {
	t.Helper()
	must.Do(t, s.Hold(t.Context()))
	err := s.Resize(t.Context(), l)
	must.Do(t, s.Thaw(t.Context()))
	return err
}

// TestResize checks that programs count the new resources, that the kernel enforces them, that a limit
// below the use changes nothing, and that concurrent resizes leave one of them.
func TestResize(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	small := engine.Limits{CPUs: 1, MemoryBytes: 256 << 20, DiskBytes: 64 << 20}
	s := newSandbox(t, r, engine.SandboxOptions{Limits: small})
	if why := r.Report().Promises[engine.Resizes]; why != "" {
		err := resize(t, s, engine.Limits{MemoryBytes: 512 << 20})
		if !errors.Is(err, &engine.LackError{Feature: engine.Resizes}) || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want %s lacking: %s", err, engine.Resizes, why)
		}
		return
	}
	check := func(what string, l engine.Limits) {
		t.Helper()
		n := int(l.CPUs)
		want := fmt.Sprintf("%d %d %d %d %d\n", n, n, n, l.MemoryBytes>>20, l.DiskBytes>>20)
		for _, user := range []string{"root", "user"} {
			if got := call(t, s, "/run", testRequest{Command: countResources, User: user}); got.Output != want {
				t.Errorf("%s: %s counts %+v, want %q", what, user, got, want)
			}
		}
		r.roster.mu.Lock()
		reserved := 0
		for _, on := range r.roster.processors.on {
			reserved += on
		}
		for _, other := range r.roster.sandboxes {
			reserved -= len(other.share.cpus)
		}
		r.roster.mu.Unlock()
		if reserved != 0 {
			t.Errorf("%s: %d more processors are reserved than sandboxes have", what, reserved)
		}
	}
	check("at first", small)
	wide := engine.Limits{CPUs: float64(min(2, runtime.NumCPU())), MemoryBytes: 512 << 20, DiskBytes: 200 << 20}
	must.Do(t, resize(t, s, wide))
	check("more", wide)
	// Neither would fit before.
	sh(t, s, "head -c 120M /dev/zero >/tmp/file")
	if got := sh(t, s, "head -c 300M /dev/zero | tail -c 250M | wc -c"); got.Output != "262144000\n" {
		t.Errorf("250 MiB of memory beside 120 MiB of files: got %+v", got)
	}
	for _, tt := range []struct {
		name, resource string
		limits         engine.Limits
	}{
		{"disk below its use", "disk", engine.Limits{CPUs: 1, MemoryBytes: 300 << 20, DiskBytes: 100 << 20}},
		{"memory below its use", "memory", engine.Limits{CPUs: 1, MemoryBytes: 100 << 20, DiskBytes: 150 << 20}},
	} {
		err := resize(t, s, tt.limits)
		used, ok := errors.AsType[*engine.InUseError](err)
		if !ok || used.Resource != tt.resource || used.Used < 120<<20 || used.Used > 200<<20 {
			t.Errorf("%s: got %v, want %s in use", tt.name, err, tt.resource)
		}
		check(tt.name, wide)
	}
	if err := resize(t, s, engine.Limits{CPUs: 1, MemoryBytes: 1 << 20, DiskBytes: 150 << 20}); !errors.Is(err, engine.ErrLimits) {
		t.Errorf("too little memory: got %v, want %v", err, engine.ErrLimits)
	}
	// The processors are the last limit. If they cannot be changed, the others are put back.
	quota := s.share.group.CPU
	s.share.group.CPU.Dir = filepath.Join(t.TempDir(), "gone")
	if err := resize(t, s, engine.Limits{CPUs: 1, MemoryBytes: 300 << 20, DiskBytes: 150 << 20}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the group of the processors: got %v, want %v", err, os.ErrNotExist)
	}
	s.share.group.CPU = quota
	check("put back", wide)

	sh(t, s, "rm /tmp/file")
	must.Do(t, s.Hold(t.Context()))
	var both sync.WaitGroup
	for _, l := range []engine.Limits{small, wide} {
		both.Go(func() { must.Is(t, s.Resize(t.Context(), l), nil) })
	}
	both.Wait()
	must.Do(t, s.Thaw(t.Context()))
	check("one of two", s.share.limits)
	must.Do(t, resize(t, s, small))
	check("less", small)
	if got := call(t, s, "/run", testRequest{Command: "head -c 400M /dev/zero | tail -c 350M | wc -c"}); got.Output == "367001600\n" {
		t.Error("a program used 350 MiB of 256")
	}
	check("without memory for a program", small)
	must.Do(t, s.Close())
	if err := s.Resize(t.Context(), wide); !errors.Is(err, engine.ErrGone) {
		t.Errorf("after the end: got %v, want %v", err, engine.ErrGone)
	}
}
