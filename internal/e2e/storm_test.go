//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/relaytest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// The variables of make storm: the seed, without which there is no storm, and how long it lasts.
const (
	stormVariable     = "STORM"
	stormTimeVariable = "STORM_TIME"
)

// stormWorkers is the number of sandboxes that are in the storm at once, apart from copies.
const stormWorkers = 4

// TestStorm uses sandboxes at random, under faults at random, and compares the results with the
// expected ones: see box. A call may fail only if a fault acted meanwhile or it was cancelled,
// and an answered call counts regardless of faults. make storm runs this test.
func TestStorm(t *testing.T) {
	if os.Getenv(stormVariable) == "" {
		t.Skip("make storm runs it")
	}
	seed, err := strconv.ParseUint(os.Getenv(stormVariable), 10, 64)
	must.Do(t, err)
	lasts, err := time.ParseDuration(os.Getenv(stormTimeVariable))
	must.Do(t, err)
	s := newStorm(t, seed)
	defer func() {
		t.Logf("seed %d: operations %s; faults %s; violations %d", seed, counted(s.operations), counted(s.faults), s.violations)
	}()
	over, end := context.WithTimeout(t.Context(), lasts)
	defer end()
	var working sync.WaitGroup
	for n := range stormWorkers {
		w := &worker{storm: s, n: n, random: rand.New(rand.NewPCG(seed, uint64(n)+1))}
		working.Go(func() { w.work(over) })
	}
	s.disturb(over, rand.New(rand.NewPCG(seed, 0)))
	working.Wait()
	s.clear()
}

// storm is the shared state of workers and faults.
type storm struct {
	t      *testing.T
	relay  *relaytest.Relay
	client *sandbox.Client
	server *server // used only by the goroutine of the test, like:
	env    []string
	cache  string
	state  string
	disk   bool // the state directory is a small disk of its own

	mu                 sync.Mutex
	operations, faults map[string]int
	violations         int
	episode            int // the number of the fault: odd while one acts
	starts             int // number of starts of the server
}

func newStorm(t *testing.T, seed uint64) *storm {
	t.Helper()
	python, err := local.FindPython(t.Context())
	must.Do(t, err)
	s := &storm{t: t, cache: t.TempDir(), state: filepath.Join(t.TempDir(), "state"), operations: map[string]int{}, faults: map[string]int{}}
	s.disk = smallDisk(t, s.state)
	s.env = []string{warmVariable + "=1", stateVariable + "=" + s.state, "XDG_CACHE_HOME=" + s.cache, "E2BCTL_PYTHON=" + python.Path}
	t.Logf("seed %d; the state directory can be full: %v", seed, s.disk)
	s.server = startServer(t, s.env...)
	s.relay = relaytest.New(t, s.server.url)
	s.client, err = sandbox.NewClient(sandbox.WithAPIKey(s.server.key), sandbox.WithAPIURL(s.relay.URL()), sandbox.WithSandboxURL(s.relay.URL()))
	must.Do(t, err)
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

// now returns the present episode of faults and the present start of the server.
func (s *storm) now() (episode, starts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.episode, s.starts
}

// calm reports whether no fault acts.
func (s *storm) calm() bool {
	episode, _ := s.now()
	return episode%2 == 0
}

// violated reports a violation.
func (s *storm) violated(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations++
	s.t.Errorf("violation: "+format, args...)
}

// clear removes everything, ends the server, and looks for remains.
func (s *storm) clear() {
	t := s.t
	t.Helper()
	for info, err := range s.client.List(t.Context(), nil) {
		if err == nil {
			err = s.client.Kill(t.Context(), info.ID)
		}
		if err != nil && !errors.Is(err, sandbox.ErrGone) {
			s.violated("kill what is left: %v", err)
		}
	}
	for snapshot, err := range s.client.Snapshots.List(t.Context(), nil) {
		if err == nil {
			err = s.client.Snapshots.Delete(t.Context(), snapshot.ID)
		}
		if err != nil {
			s.violated("delete the snapshots: %v", err)
		}
	}
	kept := func() (all []string) {
		for _, dir := range []string{"files", "new", "notes", "trash"} {
			found, err := filepath.Glob(filepath.Join(s.state, dir, "*"))
			must.Do(t, err)
			all = append(all, found...)
		}
		return all
	}
	patience.Until(t, "nothing is kept of what was removed", func() bool { return len(kept()) == 0 })
	family := descendants(t, s.server.pid())
	groups := cgroups(family)
	s.server.stop(t)
	wantNothingOf(t, family, groups, s.cache)
	if all := kept(); len(all) > 0 {
		s.violated("the state directory keeps %v", all)
	}
}

// counted writes how often each action was done.
func counted(counts map[string]int) string {
	sum, each := 0, ""
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		sum += counts[name]
		each += fmt.Sprintf(", %s %d", name, counts[name])
	}
	return fmt.Sprint(sum) + each
}
