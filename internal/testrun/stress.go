//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// rounds is the number of runs of each test, over all calls of make stress.
	rounds = 10
	// busy is the number of processes that only compute, for each processor. It is also the number of
	// tests that run at the same time, for each processor.
	busy = 8
)

// tally contains the results of one test of one binary. When the binary changes, a new tally
// begins.
type tally struct {
	Package string `json:"package"`
	Runs    int    `json:"runs"`
	Failed  int    `json:"failed"`
}

// stress repeats tests under load. It stores its results, so that a later call of make stress
// continues.
type stress struct {
	starter *starter
	dir     string // the directory for tallies and logs
	w       io.Writer

	mu      sync.Mutex
	tallies map[string]*tally // the tallies, keyed by the binary's hash together with the name of the test
	// the number of runs of each test that this program has begun, with the keys of tallies
	begun map[string]int
}

// stressed is a test to repeat.
type stressed struct {
	job  job
	test string
	key  string
}

func (t stressed) String() string { return failure{job: t.job, test: t.test}.String() }

// runStress repeats the tests of the packages in o. If o contains no packages, it repeats the tests
// of the packages in p.stressed. The repetitions end when the duration slice is over. If a test ever
// failed, the error is errRed.
func runStress(ctx context.Context, w io.Writer, p plan, o options, slice time.Duration) error {
	packages, err := stressPackages(ctx, p, o)
	if err != nil {
		return err
	}
	st, err := newStarter(ctx, o)
	if err != nil {
		return err
	}
	s := &stress{starter: st, dir: o.keep, w: w}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.load(); err != nil {
		return err
	}
	tests, err := s.list(ctx, p, o, packages)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n := busy * runtime.NumCPU()
	stop, err := startLoad(ctx, []string{self, spinCommand}, n)
	if err != nil {
		return fmt.Errorf("start what keeps the machine busy: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	err = s.repeat(within, tests, n)
	stop()
	return errors.Join(err, s.conclude(tests))
}

// stressPackages returns the packages to repeat.
func stressPackages(ctx context.Context, p plan, o options) ([]pkg, error) {
	all, err := listPackages(ctx, []string{"./..."})
	if err != nil {
		return nil, err
	}
	if err := p.check(all); err != nil {
		return nil, err
	}
	if len(o.patterns) > 0 {
		return listPackages(ctx, o.patterns)
	}
	return slices.DeleteFunc(all, func(k pkg) bool { return !covers(p.stressed, k.name) }), nil
}

// lock prevents a second program from using the tallies.
func (s *stress) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "stress.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another make stress is at work in %s: %w", s.dir, err)
	}
	return func() { file.Close() }, nil
}

func (s *stress) talliesFile() string { return filepath.Join(s.dir, "stress.json") }

func (s *stress) load() error {
	s.tallies, s.begun = map[string]*tally{}, map[string]int{}
	text, err := os.ReadFile(s.talliesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(err, json.Unmarshal(text, &s.tallies)); err != nil {
		return fmt.Errorf("the tallies of earlier times: %w: remove %s to begin anew", err, s.talliesFile())
	}
	return nil
}

// save writes the tallies to their file. The file is complete even if this process is killed.
func (s *stress) save() error {
	text, err := json.Marshal(s.tallies)
	if err != nil {
		return err
	}
	next := s.talliesFile() + ".new"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, s.talliesFile())
}

// list builds the packages and returns their tests.
func (s *stress) list(ctx context.Context, p plan, o options, packages []pkg) (tests []stressed, err error) {
	compiler, err := hasCompiler(s.w, o.ci)
	if err != nil {
		return nil, err
	}
	for _, race := range []bool{false, true} {
		kind := slices.DeleteFunc(slices.Clone(packages), func(k pkg) bool { return race != (compiler && !covers(p.plain, k.name)) })
		dir := filepath.Join(o.dir, "plain")
		if race {
			dir = filepath.Join(o.dir, "race")
		}
		binaries, _, err := build(ctx, s.w, dir, race, kind)
		if err != nil {
			return nil, err
		}
		for _, k := range kind {
			found, err := s.testsOf(ctx, job{pkg: k, binary: binaries[k.name], race: race})
			if err != nil {
				return nil, err
			}
			tests = append(tests, found...)
		}
	}
	s.resume(tests, packages)
	return tests, nil
}

// resume continues the stored tallies of the current binaries, and forgets the tallies of earlier
// binaries.
func (s *stress) resume(tests []stressed, packages []pkg) {
	current := map[string]bool{}
	for _, t := range tests {
		current[t.key] = true
		if s.tallies[t.key] == nil {
			s.tallies[t.key] = &tally{Package: t.job.pkg.name}
		}
		s.begun[t.key] = s.tallies[t.key].Runs
	}
	for key, old := range s.tallies {
		if !current[key] && slices.ContainsFunc(packages, func(k pkg) bool { return k.name == old.Package }) {
			delete(s.tallies, key)
		}
	}
}

// testsOf returns the tests of a job's binary. It runs the binary to list them.
func (s *stress) testsOf(ctx context.Context, j job) (tests []stressed, err error) {
	text, err := os.ReadFile(j.binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	list := *s.starter
	list.flags = []string{"-test.list=^Test"}
	out, err := list.command(ctx, j).Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", j, err)
	}
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			one := j
			one.run = "^" + name + "$"
			tests = append(tests, stressed{one, name, hex.EncodeToString(sum[:]) + " " + name})
		}
	}
	return tests, nil
}

// repeat runs the tests until each has run often enough, or until ctx ends. As the next test, it
// always runs one of the tests that have the fewest runs. If a run is cut off because ctx ends, the
// run does not count.
func (s *stress) repeat(ctx context.Context, tests []stressed, atOnce int) error {
	var failed error
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for {
				t, more := s.next(tests)
				if !more || ctx.Err() != nil {
					return
				}
				if err := s.once(ctx, t); err != nil {
					s.mu.Lock()
					failed = err
					s.mu.Unlock()
					return
				}
			}
		})
	}
	workers.Wait()
	if errors.Is(ctx.Err(), context.Canceled) {
		failed = errors.Join(failed, context.Cause(ctx))
	}
	return failed
}

// next chooses a test to run.
func (s *stress) next(tests []stressed) (stressed, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(tests) == 0 {
		return stressed{}, false
	}
	t := slices.MinFunc(tests, func(a, b stressed) int { return cmp.Compare(s.begun[a.key], s.begun[b.key]) })
	s.begun[t.key]++
	return t, s.begun[t.key] <= rounds
}

// once runs a test once and records the result.
func (s *stress) once(ctx context.Context, t stressed) error {
	command := s.starter.command(ctx, t.job)
	command.Args = append(command.Args, "-test.count=1", "-test.v")
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	if ctx.Err() != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tallies[t.key]
	of.Runs++
	if err != nil || bytes.Contains(out.Bytes(), raceReport) {
		of.Failed++
		log := filepath.Join(s.dir, "stress", fmt.Sprintf("%s.%s.%d.log", strings.ReplaceAll(t.job.pkg.name, "/", "_"), t.test, of.Runs))
		fmt.Fprintf(s.w, "%s failed: %v: %s\n", t, err, log)
		fmt.Fprintf(&out, "\n%v\n", err)
		if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), os.WriteFile(log, out.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	return s.save()
}

// conclude prints the rates of failures, including the results of earlier calls, and the number of
// remaining runs.
func (s *stress) conclude(tests []stressed) error {
	left, done := 0, 0
	var err error
	for _, t := range tests {
		of := s.tallies[t.key]
		done += of.Runs
		left += max(0, rounds-of.Runs)
		if of.Failed > 0 {
			fmt.Fprintf(s.w, "%s: failed %d of %d times (%d %%)\n", t, of.Failed, of.Runs, 100*of.Failed/of.Runs)
			err = errRed
		}
	}
	fmt.Fprintf(s.w, "%d tests ran %d times; %d runs are left", len(tests), done, left)
	if left > 0 {
		fmt.Fprint(s.w, ": make stress goes on there")
	}
	fmt.Fprintln(s.w)
	return err
}
