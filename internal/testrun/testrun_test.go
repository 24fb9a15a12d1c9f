//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == spinCommand {
		spin(os.Stdin)
		return
	}
	if len(os.Args) > 2 && os.Args[1] == reapCommand {
		os.Exit(reap(os.Stderr, os.Args[2:], 50*time.Millisecond)) //nolint:forbidigo // this is the main function
	}
	code := m.Run()
	if fixture.dir != "" {
		code = max(code, removed(fixture.dir))
	}
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		code = 1
	}
	os.Exit(code) //nolint:forbidigo // this is the main function
}

func removed(dir string) (code int) {
	if err := os.RemoveAll(dir); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

// fixture is the package of faults, which is built once.
var fixture struct {
	once, raceOnce sync.Once
	dir            string
	starter        starter
	pkg            pkg
	plain, race    string
	err, raceErr   error
}

// faults returns a starter, and a job of the package of faults. A test that was flaky
// is remembered in a directory of the test.
func faults(t *testing.T, run string) (*starter, job) {
	t.Helper()
	fixture.once.Do(func() {
		fixture.err = buildFaults(context.Background())
	})
	must.Do(t, fixture.err)
	s := fixture.starter
	s.flags = append(s.flags, "-dir="+t.TempDir())
	return &s, job{pkg: fixture.pkg, binary: fixture.plain, run: run}
}

func buildFaults(ctx context.Context) error {
	s, err := newStarter(ctx, options{limit: time.Minute, count: 1})
	if err != nil {
		return err
	}
	fixture.starter = *s
	packages, err := listPackages(ctx, []string{"./testdata/faults"})
	if err != nil {
		return err
	}
	fixture.pkg = packages[0]
	if fixture.dir, err = os.MkdirTemp("", "testrun"); err != nil {
		return err
	}
	binaries, _, err := build(ctx, os.Stderr, fixture.dir, false, packages)
	fixture.plain = binaries[fixture.pkg.name]
	return err
}

// raceFaults is faults with the race detector. CI must have the tools for it.
func raceFaults(t *testing.T, run string) (*starter, job) {
	t.Helper()
	s, j := faults(t, run)
	if compiler, err := hasCompiler(io.Discard, os.Getenv("CI") == "true"); err != nil {
		t.Fatal(err)
	} else if !compiler {
		t.Skip("no C compiler")
	}
	fixture.raceOnce.Do(func() {
		var binaries map[string]string
		binaries, _, fixture.raceErr = build(context.Background(), os.Stderr, filepath.Join(fixture.dir, "race"), true, []pkg{fixture.pkg})
		fixture.race = binaries[fixture.pkg.name]
	})
	must.Do(t, fixture.raceErr)
	j.binary, j.race = fixture.race, true
	return s, j
}

// execute runs jobs as a suite with CI set, and returns its output.
func execute(t *testing.T, s *suite, jobs ...job) (string, error) {
	t.Helper()
	var out strings.Builder
	s.report = &report{w: &out}
	s.atOnce = 2
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	err := s.execute(t.Context(), time.Now(), func(ctx context.Context, ready chan<- []job) error {
		ready <- jobs
		return nil
	})
	return out.String(), err
}

// wantText fails a test if a text lacks one of others.
func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(got, text) {
			t.Errorf("got\n%s\nwant %q in it", got, text)
		}
	}
}

func TestPassing(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "^Test(Passes|Skips)")
	out, err := execute(t, &suite{starter: st}, j)
	if err != nil {
		t.Errorf("got %v, want no error", err)
	}
	wantText(t, out, "ok  ", " internal/testrun/testdata/faults\n",
		"skipped internal/testrun/testdata/faults: TestSkips/one TestSkips/two: the moon is not full: wait for it\n",
		"skipped internal/testrun/testdata/faults: TestSkipsSilently: it does not say why\n", "passed 2, failed 0 (flaky 0), skipped 1, in ")
	if strings.Contains(out, "all is well") {
		t.Errorf("got the output of a test that passed:\n%s", out)
	}
}

// TestRed has each fault that stays red at once, and each that stays red after repeats.
func TestRed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, run, test, reason, output string
		repeated                        int
	}{
		{"it fails always", "^TestFails$", ".TestFails", "failed again, alone", "it always does", 2},
		{"a name of what is never repeated", "^TestKey$", ".TestKey", "a test of this is never repeated", "a key shows", 0},
		{"a panic", "^TestPanics$", "", "a panic", "no way out", 0},
		{"a panic of another goroutine", "^TestPanicsElsewhere$", "", "a panic", "no way out", 0},
		{"a goroutine is left", "^TestLeaks$", "", "goroutines were left", "goleak: Errors on successful test run", 0},
		{"a test finds a goroutine", "^TestFindsLeak$", ".TestFindsLeak", "goroutines were left", "found unexpected goroutines", 0},
		{"exit 1", "^TestExitsOne$", "", "it ended while tests were running: [TestExitsOne]", "=== RUN   TestExitsOne", 0},
		{"exit 3", "^TestExitsThree$", "", "it ended badly: exit status 3", "=== RUN   TestExitsThree", 0},
		{"exit 0", "^TestExitsZero$", "", "a panic", "unexpected call to os.Exit(0)", 0},
		{"exit 1 after a failure", "^TestFails(AndExits)?$", ".TestFails", "it ended while tests were running: [TestFailsAndExits]", "it always does", 0},
		{"six fail", "^TestFails($|O|T|F)", ".TestFailsThree", "not repeated: 6 tests failed", "three", 0},
		{"a race in the repeat", "^TestThenRaces$", ".TestThenRaces", "repeated alone: the race detector found something", "the first time there is no race", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st, j := faults(t, tt.run)
			out, err := execute(t, &suite{starter: st, plan: plan{onceWords: []string{"Key"}}}, j)
			if !errors.Is(err, errRed) {
				t.Errorf("got %v, want %v", err, errRed)
			}
			wantText(t, out, "FAIL internal/testrun/testdata/faults"+tt.test+": "+tt.reason, tt.output)
			if got := strings.Count(out, "\nrepeating "); got != tt.repeated {
				t.Errorf("got\n%s\nwith %d repeats, want %d", out, got, tt.repeated)
			}
			if strings.Contains(out, "FLAKY") {
				t.Errorf("got\n%s\nwant nothing that is flaky", out)
			}
		})
	}
}

func TestOncePackage(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "^TestFlaky$")
	out, err := execute(t, &suite{starter: st, plan: plan{once: []string{"internal/testrun/..."}}}, j)
	if !errors.Is(err, errRed) {
		t.Errorf("got %v, want %v", err, errRed)
	}
	wantText(t, out, "FAIL internal/testrun/testdata/faults.TestFlaky: a test of this is never repeated")
}

func TestRace(t *testing.T) {
	t.Parallel()
	st, j := raceFaults(t, "^TestRaces$")
	out, err := execute(t, &suite{starter: st}, j)
	if !errors.Is(err, errRed) {
		t.Errorf("got %v, want %v", err, errRed)
	}
	wantText(t, out, "FAIL internal/testrun/testdata/faults: the race detector found something", "WARNING: DATA RACE")
}

// TestRaceOfPassed is a race for which no test fails: another process printed it.
func TestRaceOfPassed(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "^TestPasses$")
	o := st.run(t.Context(), j, func(*test) {})
	o.race = true
	if got := (plan{}).judge(o); len(got) != 1 || got[0].reason != "the race detector found something" {
		t.Errorf("got %v, want one failure, of a race", got)
	}
}

func TestFinder(t *testing.T) {
	t.Parallel()
	for _, writes := range [][]string{{"a race b"}, {"a ra", "ce b"}, {"r", "a", "c", "e"}, {"xxxxxxxxr", "ace"}} {
		f := &finder{Writer: io.Discard, text: []byte("race")}
		for _, text := range writes {
			io.WriteString(f, text)
		}
		if !f.found {
			t.Errorf("%q: got nothing, want race", writes)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "^TestTakesLong$")
	st.limit = 100 * time.Millisecond
	out, err := execute(t, &suite{starter: st}, j)
	if !errors.Is(err, errRed) {
		t.Errorf("got %v, want %v", err, errRed)
	}
	wantText(t, out, "FAIL internal/testrun/testdata/faults: a panic", "test timed out after 100ms")
}

// TestFlaky is a test that passes alone, its output in full, and the judgement of the
// next run.
func TestFlaky(t *testing.T) {
	t.Parallel()
	root, keep := repository(t), t.TempDir()
	again := func(o options) (string, error) {
		st, j := faults(t, "^TestFlaky$")
		o.root, o.keep, o.patterns, o.count = root, keep, []string{"./..."}, 1
		return execute(t, &suite{starter: st, options: o}, j)
	}
	const line = "FLAKY internal/testrun/testdata/faults.TestFlaky: passed alone, at repeat 1\n"
	for range 2 { // a developer's run has no memory
		out, err := again(options{})
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		wantText(t, out, line, "=== internal/testrun/testdata/faults.TestFlaky: passed alone", "failed 1 (flaky 1)")
		if got := strings.Count(out, "the first time is the worst"); got != 2 {
			t.Errorf("got\n%s\nwith the output %d times, want it as it failed and at the end", out, got)
		}
	}
	ci := options{ci: true}
	out, err := again(ci)
	if err != nil {
		t.Errorf("the first time: got %v, want no error", err)
	}
	wantText(t, out, line)
	short := ci
	short.short = true
	if _, err := again(short); err != nil {
		t.Errorf("in a run of a part: got %v, want no error", err)
	}

	out, err = again(ci)
	if !errors.Is(err, errRed) {
		t.Errorf("the second time: got %v, want %v", err, errRed)
	}
	wantText(t, out, "FAIL internal/testrun/testdata/faults.TestFlaky: flaky again: ")

	commit(t, root, "Mend another\n\nMends: internal/testrun/testdata/faults.TestOther")
	if _, err = again(ci); !errors.Is(err, errRed) {
		t.Errorf("after another's mend: got %v, want %v", err, errRed)
	}
	commit(t, root, "Mend it\n\nMends: internal/testrun/testdata/faults.TestFlaky")
	if _, err = again(ci); err != nil {
		t.Errorf("after the mend: got %v, want no error", err)
	}
	if _, err = again(ci); !errors.Is(err, errRed) {
		t.Errorf("flaky after the mend: got %v, want %v", err, errRed)
	}
}

// TestShallow is a ledger with a commit that the clone does not have.
func TestShallow(t *testing.T) {
	t.Parallel()
	root := repository(t)
	l := ledger{path: filepath.Join(t.TempDir(), "new", "flaky.jsonl"), root: root}
	unknown := flake{Package: "p", Test: "TestX", Commit: "0123456789012345678901234567890123456789"}
	if got, err := l.mended(t.Context(), unknown); got || err != nil {
		t.Errorf("got %v, %v, want false", got, err)
	}
	commit(t, root, "Mend it\n\nMends: p.TestX\nMends: p.TestY")
	if got, err := l.mended(t.Context(), unknown); !got || err != nil {
		t.Errorf("got %v, %v, want true", got, err)
	}
	// A line that was cut off does not count.
	must.Do(t, l.add(unknown))
	text, err := os.ReadFile(l.path)
	must.Do(t, err)
	must.Do(t, os.WriteFile(l.path, append(text, text[:10]...), 0o600))
	if got, err := l.read(); err != nil || len(got) != 1 || got[0] != unknown {
		t.Errorf("got %v, %v, want %v", got, err, unknown)
	}
}

// repository makes a repository with a commit.
func repository(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	if out, err := exec.Command("git", "-C", root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	commit(t, root, "Begin")
	return root
}

func commit(t *testing.T, root, message string) {
	t.Helper()
	command := exec.Command("git", "-C", root, "-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false",
		"commit", "-q", "--no-verify", "--allow-empty", "-m", message)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestInterrupted is a run that ends early, with all of its processes.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "^TestHangs$")
	var out strings.Builder
	s := &suite{starter: st, report: &report{w: &out}, options: options{atOnce: 1, dir: t.TempDir()}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- s.execute(ctx, time.Now(), func(_ context.Context, ready chan<- []job) error {
			ready <- []job{j, j}
			return nil
		})
	}()
	pidFile := filepath.Join(strings.TrimPrefix(st.flags[0], "-dir="), "pid")
	patience.Until(t, "the test runs", func() bool {
		_, err := os.Stat(pidFile)
		return err == nil
	})
	cancel()
	if err := patience.Receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	wantText(t, out.String(), "stopped after ", "internal/testrun/testdata/faults: TestHangs\n")
	text, err := os.ReadFile(pidFile)
	must.Do(t, err)
	pid, err := strconv.Atoi(string(text))
	must.Do(t, err)
	patience.Until(t, "the process that the test started is gone", func() bool { return gone(pid) })
}

// ending is a context whose deadline passes when it is cancelled.
type ending struct {
	context.Context //nolint:containedctx // it is one
}

func (e ending) Err() error {
	if e.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// TestHangs is a binary that does not end at its own limit. It prints the stacks of its goroutines.
func TestHangs(t *testing.T) {
	t.Parallel()
	st, j := faults(t, "^TestHangs$")
	ctx, end := context.WithCancel(t.Context())
	var out strings.Builder
	command := st.command(ending{ctx}, j)
	command.Stdout, command.Stderr = &out, &out
	must.Do(t, command.Start())
	patience.Until(t, "the test runs", func() bool {
		_, err := os.Stat(filepath.Join(strings.TrimPrefix(st.flags[0], "-dir="), "pid"))
		return err == nil
	})
	end()
	if err := command.Wait(); err == nil {
		t.Error("got no error of a binary that was ended")
	}
	wantText(t, out.String(), "SIGQUIT", "faults.TestHangs(")
}

// TestOrphans are processes that a binary leaves in groups of their own, at its limit and
// at its end.
func TestOrphans(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		limit time.Duration
		said  string
	}{
		{"TestHangsWithHelper", 2 * time.Second, "test timed out"},
		{"TestLeavesHelper", time.Minute, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			st, j := faults(t, "^"+test.name+"$")
			st.limit = test.limit
			var out strings.Builder
			command := st.command(t.Context(), j)
			command.Stdout, command.Stderr = &out, &out
			if err := command.Run(); (err == nil) != (test.said == "") {
				t.Errorf("got %v, want an error: %v", err, test.said != "")
			}
			wantText(t, out.String(), test.said, "left processes, which are ended: faults")
			text, err := os.ReadFile(filepath.Join(strings.TrimPrefix(st.flags[0], "-dir="), "pid"))
			must.Do(t, err)
			pid, err := strconv.Atoi(string(text))
			must.Do(t, err)
			if !gone(pid) {
				t.Errorf("the helper %d runs still", pid)
			}
		})
	}
}

// gone reports whether a process has ended, reaped or not.
func gone(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

// TestBuildFails is a run of code that does not compile.
func TestBuildFails(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	packages, err := listPackages(t.Context(), []string{"./testdata/broken"})
	must.Do(t, err)
	s := &suite{report: &report{w: &out}, starter: &starter{}, options: options{atOnce: 1, dir: t.TempDir()}}
	err = s.execute(t.Context(), time.Now(), func(ctx context.Context, ready chan<- []job) error { return s.prepare(ctx, packages, ready) })
	if err == nil || !strings.Contains(err.Error(), "build the tests") {
		t.Errorf("got %v, want an error of the build", err)
	}
	wantText(t, out.String(), "undefined: nothingOfThatName")
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	ready := make(chan []job)
	names := func(all ...string) (jobs []job) {
		for _, name := range all {
			jobs = append(jobs, job{pkg: pkg{name: name}})
		}
		return jobs
	}
	var ran []string
	began := make(chan struct{}, 10)
	next := make(chan struct{})
	go func() {
		defer close(ready)
		ready <- names("b", "c", "long")
		<-began
		ready <- names("d", "longer") // while the first runs
		close(next)
	}()
	p := plan{longest: []string{"longer", "long"}}
	schedule(t.Context(), 1, func(j job) int { return p.rank(j.pkg.name) }, ready, func(j job) {
		began <- struct{}{}
		<-next
		ran = append(ran, j.pkg.name)
	})
	if want := []string{"long", "longer", "b", "c", "d"}; !slices.Equal(ran, want) {
		t.Errorf("got %v, want %v", ran, want)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := printTimes(io.Discard, filepath.Join(dir, timesFile)); err == nil || !strings.Contains(err.Error(), "there was no run") {
		t.Errorf("got %v, want that there was no run", err)
	}
	st, j := faults(t, "^Test(Passes|TakesTime)$")
	if _, err := execute(t, &suite{starter: st, options: options{dir: dir, patterns: []string{"./here"}}}, j); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	must.Do(t, printTimes(&out, filepath.Join(dir, timesFile)))
	wantText(t, out.String(), "the run of [./here] that ended on ", "  internal/testrun/testdata/faults\n", "  internal/testrun/testdata/faults.TestPasses\n")
	// The slowest is the first, and its subtests count.
	_, tests, _ := strings.Cut(out.String(), "wall s  tests\n")
	var seconds float64
	var name string
	if _, err := fmt.Sscan(tests, &seconds, &name); err != nil || seconds == 0 || !strings.HasSuffix(name, ".TestTakesTime") {
		t.Errorf("got %v s of %s and %v, want TestTakesTime first:\n%s", seconds, name, err, tests)
	}
}

// TestSpin is the load of make stress, which ends when the program that started it ends.
func TestSpin(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Args[0], spinCommand)
	input, err := command.StdinPipe()
	must.Do(t, err)
	must.Do(t, command.Start())
	if err := command.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("got %v, want that it runs", err)
	}
	input.Close()
	if err := command.Wait(); err != nil {
		t.Errorf("got %v, want a good end", err)
	}
	stop, err := startLoad(t.Context(), []string{os.Args[0], spinCommand}, 2)
	must.Do(t, err)
	stop()
}
