//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// newStress makes a stress that begins with the content of a directory, and chooses
// some of the tests of the package of faults.
func newStress(t *testing.T, st *starter, j job, dir string, w *strings.Builder, names ...string) (*stress, []stressed) {
	t.Helper()
	s := &stress{starter: st, dir: dir, w: w}
	must.Do(t, s.load())
	all, err := s.testsOf(t.Context(), j)
	must.Do(t, err)
	var tests []stressed
	for _, test := range all {
		for _, name := range names {
			if test.test == name {
				tests = append(tests, test)
			}
		}
	}
	if len(tests) != len(names) {
		t.Fatalf("got the tests %v, want %v", all, names)
	}
	s.resume(tests, []pkg{j.pkg})
	return s, tests
}

// TestStress checks that a second stress run continues where the first one ended, and remembers
// its failures.
func TestStress(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "")
	dir := t.TempDir()
	var out strings.Builder
	s, tests := newStress(t, st, j, dir, &out, "TestPasses", "TestFailsSometimes")
	for range 3 {
		next, _ := s.next(tests)
		must.Do(t, s.once(t.Context(), next))
	}
	if err := s.conclude(tests); !errors.Is(err, errRed) && s.tallies[tests[1].key].Failed > 0 {
		t.Errorf("got %v, want %v", err, errRed)
	}
	wantText(t, out.String(), "2 tests ran 3 times; 17 runs are left: make stress goes on there\n")

	// A run that is cut off does not count.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	must.Do(t, s.once(gone, tests[0]))

	out.Reset()
	s, tests = newStress(t, st, j, dir, &out, "TestPasses", "TestFailsSometimes")
	must.Do(t, s.repeat(t.Context(), tests, 1))
	if err := s.conclude(tests); !errors.Is(err, errRed) {
		t.Errorf("got %v, want %v", err, errRed)
	}
	wantText(t, out.String(), "internal/testrun/testdata/faults.TestFailsSometimes: failed 5 of 10 times (50 %)\n", "2 tests ran 20 times; 0 runs are left\n")
	logs, err := filepath.Glob(filepath.Join(dir, "stress", "internal_testrun_testdata_faults.TestFailsSometimes.*.log"))
	if err != nil || len(logs) != 5 {
		t.Fatalf("got the logs %v, %v, want 5", logs, err)
	}
	text, err := os.ReadFile(logs[0])
	must.Do(t, err)
	wantText(t, string(text), "every second time")

	// No runs are left, and it stays red until the binary is another.
	out.Reset()
	s, tests = newStress(t, st, j, dir, &out, "TestPasses", "TestFailsSometimes")
	must.Do(t, s.repeat(t.Context(), tests, 1))
	if err := s.conclude(tests); !errors.Is(err, errRed) {
		t.Errorf("got %v, want %v", err, errRed)
	}
	wantText(t, out.String(), "2 tests ran 20 times; 0 runs are left\n")
	other := j
	other.binary = filepath.Join(t.TempDir(), "other")
	binary, err := os.ReadFile(j.binary)
	must.Do(t, err)
	must.Do(t, os.WriteFile(other.binary, append(binary, 0), 0o700))
	out.Reset()
	s, tests = newStress(t, st, other, dir, &out, "TestPasses", "TestFailsSometimes")
	if err := s.conclude(tests); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	wantText(t, out.String(), "2 tests ran 0 times; 20 runs are left")
	if len(s.tallies) != 2 {
		t.Errorf("got the tallies %v, want those of the other binary", s.tallies)
	}
}

// TestStressEnds checks that running tests end when a slice is over, and at an
// interrupt.
func TestStressEnds(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "")
	var out strings.Builder
	s, tests := newStress(t, st, j, t.TempDir(), &out, "TestTakesLong")
	over, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.repeat(over, tests, 2); err != nil {
		t.Errorf("got %v, want no error where only the time is over", err)
	}
	if err := s.conclude(tests); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	wantText(t, out.String(), "1 tests ran 0 times; 10 runs are left")
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.repeat(interrupted, tests, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestStressLock(t *testing.T) {
	t.Parallel()
	s := &stress{dir: t.TempDir()}
	unlock, err := s.lock()
	must.Do(t, err)
	if again, err := s.lock(); err == nil {
		again()
		t.Error("got the lock twice")
	}
	unlock()
	unlock, err = s.lock()
	must.Do(t, err)
	unlock()
}
