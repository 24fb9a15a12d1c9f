//go:build linux

package room

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestUsage checks that a sandbox's usage is measured from outside at every level, whether
// or not control groups count it.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, newRoomOn(t, level), engine.SandboxOptions{})
			// The sum of the processes is measured here although there may be groups.
			processes, ok := s.usage(nil)
			if !ok || processes.Memory == 0 {
				t.Errorf("got %+v, %t of its processes, want memory", processes, ok)
			}
			before, ok := s.Usage()
			if !ok || before.Memory == 0 || before.Disk > before.DiskTotal || before.DiskTotal == 0 {
				t.Fatalf("got %+v, %t, want memory and a disk", before, ok)
			}
			background(t, s, "while :; do :; done")
			patience.Until(t, "it has used the processor", func() bool {
				now, ok := s.Usage()
				return ok && now.CPU > before.CPU+100*time.Millisecond
			})
			patience.Until(t, "its processes have used the processor", func() bool {
				now, ok := s.usage(nil)
				return ok && now.CPU > processes.CPU+100*time.Millisecond
			})
			if level == engine.Full {
				sh(t, s, "head -c 8M /dev/zero >/tmp/file")
				if now, _ := s.Usage(); now.Disk < before.Disk+8<<20 || now.DiskTotal != before.DiskTotal {
					t.Errorf("the disk has %+v with 8 MiB more, before %+v", now, before)
				}
			}
			must.Do(t, s.Close())
			if now, ok := s.Usage(); ok {
				t.Errorf("got %+v of a sandbox that has ended, want nothing", now)
			}
		})
	}
}

// TestTell checks that envd's log arrives, also if it is written before envd is ready, and
// that lines over the limit are dropped and counted.
func TestTell(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var told []string
	s := newSandbox(t, newRoomWith(t, Options{Binary: withDetector}), engine.SandboxOptions{Tell: func(line []byte) {
		var said struct{ Msg string }
		if err := json.Unmarshal(line, &said); err != nil {
			t.Errorf("it said %q: %v", line, err)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, said.Msg)
	}})
	heard := func(match func(string) bool) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.ContainsFunc(told, match)
		}
	}
	patience.Until(t, "it said that it starts", heard(func(m string) bool { return m == "starting" }))
	call(t, s, "/log", testRequest{Command: strings.Repeat("x", 20<<10)})
	call(t, s, "/log", testRequest{Command: "after"})
	patience.Until(t, "it said something", heard(func(m string) bool { return m == "after" }))
	if want := "1 lines of this log were dropped"; !heard(func(m string) bool { return strings.HasPrefix(m, want) })() {
		t.Errorf("it said %.200q, want %q", fmt.Sprint(told), want)
	}
}

// TestUsageWhileClosing checks that a sandbox can end while its usage is read, through the
// descriptors of its processes.
func TestUsageWhileClosing(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoom(t), engine.SandboxOptions{})
	measured := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		first := sync.OnceFunc(func() { close(measured) })
		for ok := true; ok; first() {
			_, ok = s.usage(nil)
		}
	})
	<-measured
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	work.Wait()
}
