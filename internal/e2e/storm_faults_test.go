//go:build linux

package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// smallDisk makes dir a disk of its own that can be filled, and reports false if this user cannot.
func smallDisk(t *testing.T, dir string) bool {
	t.Helper()
	must.Do(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256m,mode=0700"); err != nil {
		return false
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return true
}

// disturb causes one fault after another, with calm in between, until the storm is over.
func (s *storm) disturb(over context.Context, random *rand.Rand) {
	for {
		if !pass(over, random, 4*time.Second) {
			return
		}
		name, fault := "cut", s.cut
		switch n := random.IntN(8); {
		case n == 0:
			name, fault = "kill", s.kill
		case n == 1 && s.disk:
			name, fault = "full disk", s.fill
		case n == 2:
			name, fault = "no network", s.shut
		}
		s.mu.Lock()
		s.episode++
		s.faults[name]++
		s.mu.Unlock()
		fault(random)
		patience.Until(s.t, "the service answers again", func() bool {
			for _, err := range s.client.List(s.t.Context(), nil) {
				return err == nil
			}
			return true
		})
		s.mu.Lock()
		s.episode++
		s.mu.Unlock()
	}
}

// pass lets a random time pass, and reports false if the storm is over. What happens in that time
// is unknown, on purpose.
func pass(over context.Context, random *rand.Rand, most time.Duration) bool {
	select {
	case <-time.After(time.Duration(random.Int64N(int64(most)))):
		return true
	case <-over.Done():
		return false
	}
}

// cut ends all connections.
func (s *storm) cut(*rand.Rand) { s.relay.Cut() }

// shut ends all connections, and all new ones for a while.
func (s *storm) shut(random *rand.Rand) {
	s.relay.Shut()
	pass(s.t.Context(), random, 2*time.Second)
	s.relay.Reopen()
}

// kill kills the server, checks that nothing of it is left, and starts the next one.
func (s *storm) kill(random *rand.Rand) {
	family := descendants(s.t, s.server.pid())
	groups := cgroups(family)
	s.server.kill(s.t)
	wantNothingOf(s.t, family, groups, s.cache)
	pass(s.t.Context(), random, time.Second)
	s.server = startServer(s.t, s.env...)
	s.relay.Lead(s.t, s.server.url)
	s.mu.Lock()
	s.starts++
	s.mu.Unlock()
}

// fill leaves no space in the state directory for a while.
func (s *storm) fill(random *rand.Rand) {
	name := filepath.Join(s.state, "filled")
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	must.Do(s.t, err)
	defer file.Close()
	for block := make([]byte, 1<<20); err == nil; {
		_, err = file.Write(block)
	}
	pass(s.t.Context(), random, 2*time.Second)
	must.Do(s.t, os.Remove(name))
}
