//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// job is one run of a package's tests.
type job struct {
	pkg      pkg
	binary   string
	race     bool
	ordinary bool
	// sequential means that this job has the tests of a package that run without the race detector although
	// the others run with it.
	sequential bool
	run, skip  string // the tests to run and to leave out, in the form of the flags of go test; "": all tests, and none
}

// String returns the name of a job for printed text.
func (j job) String() string {
	if j.ordinary {
		return j.pkg.name + " as an ordinary user"
	}
	if j.sequential {
		return j.pkg.name + " without the race detector"
	}
	return j.pkg.name
}

// test is the outcome of a test and its subtests in a run. If a test runs several times because of
// -count, one failure means that the test has failed.
type test struct {
	name    string
	result  string // pass, fail or skip; "": the test never ended
	paused  bool   // the test waits for its turn among parallel tests
	seconds float64
	output  bytes.Buffer
}

// skip is a test, or a subtest, that was left out.
type skip struct{ test, reason string }

// outcome is the outcome of a job.
type outcome struct {
	job   job
	tests []*test // in the order in which they began
	skips []skip
	said  map[string]string // the last log line of each test that has not ended, keyed by test
	rest  bytes.Buffer      // output that belongs to no test
	race  bool              // the output contains a report of the race detector
	// saysFailed means that the binary exited with status 1, because a test failed, or because the
	// code that runs after all tests failed. The field bad describes any other bad end.
	saysFailed bool
	bad        error
	wall       time.Duration
	cpu        time.Duration
}

func (o *outcome) test(name string) *test {
	name, _, _ = strings.Cut(name, "/")
	if i := slices.IndexFunc(o.tests, func(t *test) bool { return t.name == name }); i >= 0 {
		return o.tests[i]
	}
	t := &test{name: name}
	o.tests = append(o.tests, t)
	return t
}

// failed returns the tests that failed.
func (o *outcome) failed() []*test {
	return slices.DeleteFunc(slices.Clone(o.tests), func(t *test) bool { return t.result != "fail" })
}

// count returns the number of tests that ended with the given result.
func (o *outcome) count(result string) (n int) {
	for _, t := range o.tests {
		if t.result == result {
			n++
		}
	}
	return n
}

func (o *outcome) ok() bool { return !o.saysFailed && o.bad == nil && !o.race && len(o.failed()) == 0 }

// event is an event of test2json.
type event struct {
	Action  string
	Test    string
	Elapsed float64
	Output  string
}

var (
	raceReport = []byte("WARNING: DATA RACE")
	// chatter matches lines that test2json needs, but readers do not.
	chatter = regexp.MustCompile(`^=== (PAUSE|CONT|NAME) `)
	// logged matches a line that a test logs. The submatch is the text after the file name and the
	// line number.
	logged = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: (.*)`)
)

// add processes an event. If the event reports the failure of a test, add returns this test, and
// otherwise nil.
func (o *outcome) add(e event) (failed *test) {
	if e.Test == "" {
		if e.Action == "output" {
			o.rest.WriteString(e.Output)
		}
		return nil
	}
	t := o.test(e.Test)
	switch e.Action {
	case "output":
		if !chatter.MatchString(e.Output) {
			t.output.WriteString(e.Output)
		}
		o.listen(e)
	case "skip":
		o.skips = append(o.skips, skip{e.Test, cmp.Or(o.said[e.Test], "it does not say why")})
	}
	t.seconds = max(t.seconds, e.Elapsed) // a test that waits for parallel subtests counts less than they do
	if e.Test != t.name {
		return nil
	}
	switch e.Action {
	case "pause", "cont":
		t.paused = e.Action == "pause"
	case "pass", "skip", "fail":
		if t.result != "fail" {
			t.result = e.Action
		}
		if e.Action == "fail" {
			return t
		}
	}
	return nil
}

// listen keeps the last log line of a test, because this line may be the reason why the test is
// skipped.
func (o *outcome) listen(e event) {
	if o.said == nil {
		o.said = map[string]string{}
	}
	if text := logged.FindStringSubmatch(e.Output); text != nil {
		if !strings.HasPrefix(text[1], "time=") { // a line of a logger, which may be written after the skip
			o.said[e.Test] = text[1]
		}
	} else if more, found := strings.CutPrefix(e.Output, "        "); found {
		o.said[e.Test] += " " + strings.TrimSpace(more)
	}
}

// running returns the tests that have not ended and do not wait for others.
func (o *outcome) running() (names []string) {
	for _, t := range o.tests {
		if t.result == "" && !t.paused {
			names = append(names, t.name)
		}
	}
	return names
}

// starter starts the binaries of tests.
type starter struct {
	self      string // this program, which runs each binary; see reap
	test2json string
	goroot    string
	limit     time.Duration // the time limit of one job
	flags     []string      // the flags of each binary
	account   *account      // the account of the ordinary user; nil if there is none
}

// graceOfLimit is the time between a binary's own time limit and its end by a signal. At its own
// limit, the binary prints the stacks of all goroutines. If all of them are stopped, the signal makes
// the binary print them.
const graceOfLimit = time.Minute

// command returns the command that runs a job. The command is this program. It runs the binary of
// the job, and then ends the binary's remaining processes. When ctx ends, the command is
// interrupted. At the deadline of ctx it prints its stacks, too.
func (s *starter) command(ctx context.Context, j job) *exec.Cmd {
	arguments := append([]string{j.binary, "-test.paniconexit0", "-test.timeout=" + s.limit.String()}, s.flags...)
	if j.run != "" {
		arguments = append(arguments, "-test.run="+j.run)
	}
	if j.skip != "" {
		arguments = append(arguments, "-test.skip="+j.skip)
	}
	var command *exec.Cmd
	if j.ordinary {
		command = s.account.command(ctx, j.pkg, arguments)
	} else {
		command = exec.CommandContext(ctx, arguments[0], arguments[1:]...)
		command.Dir = j.pkg.dir
		command.Env = append(os.Environ(), "PWD="+j.pkg.dir,
			// As in go test: tests find the same Go, with its tools.
			"GOROOT="+s.goroot, "PATH="+s.goroot+"/bin:"+os.Getenv("PATH"),
			// Without this, each process with the race detector sleeps for a second before it ends.
			"GORACE=atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	}
	// This program runs the binary, so that it can end the binary's processes.
	command.Args = append([]string{s.self, reapCommand, command.Path}, command.Args[1:]...)
	command.Path = s.self
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	command.Cancel = func() error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return command.Process.Signal(syscall.SIGQUIT)
		}
		return command.Process.Signal(os.Interrupt)
	}
	command.WaitDelay = graceOfCancelled + graceOfOrphans + time.Minute
	return command
}

// run runs a job, and calls failed for each test as it fails.
func (s *starter) run(ctx context.Context, j job, failed func(*test)) *outcome {
	o := &outcome{job: j}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit+graceOfLimit, fmt.Errorf("it did not end within %v", s.limit))
	defer cancel()
	start := time.Now()
	command := s.command(ctx, j)
	command.Args = append(command.Args, "-test.v=test2json")

	converter := exec.CommandContext(context.WithoutCancel(ctx), s.test2json, "-t") // it ends with its input
	inGroup(converter)
	input, err := converter.StdinPipe()
	if err != nil {
		o.bad = err
		return o
	}
	events, err := converter.StdoutPipe()
	if err == nil {
		err = converter.Start()
	}
	if err != nil {
		o.bad = fmt.Errorf("start test2json: %w", err)
		return o
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for decoder := json.NewDecoder(events); ; {
			var e event
			if decoder.Decode(&e) != nil {
				return // a fault of the converter shows when it ends
			}
			if t := o.add(e); t != nil {
				failed(t)
			}
		}
	})
	races := &finder{Writer: input, text: raceReport}
	command.Stdout, command.Stderr = races, races
	err = command.Run()
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil:
		o.bad = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		o.saysFailed = true
	default:
		o.bad = err
	}
	input.Close()
	reading.Wait()
	if err := converter.Wait(); err != nil {
		o.bad = errors.Join(o.bad, fmt.Errorf("test2json: %w", err))
	}
	o.race = races.found
	o.wall, o.cpu = time.Since(start), processorTime(command)+processorTime(converter)
	return o
}

// finder passes on all writes, and records whether they contained a text.
type finder struct {
	io.Writer
	text  []byte
	end   []byte // the last bytes of the earlier writes, in which the text may have begun
	found bool
}

func (f *finder) Write(p []byte) (int, error) {
	if !f.found {
		all := append(f.end, p...)
		f.found = bytes.Contains(all, f.text)
		f.end = bytes.Clone(all[max(0, len(all)-len(f.text)+1):])
	}
	return f.Writer.Write(p)
}
