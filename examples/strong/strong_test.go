//go:build linux

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv/gvisortest"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(dockertest.Ending{M: m}) }

// TestGVisor runs the whole example, which itself checks that variables and processes
// continue.
func TestGVisor(t *testing.T) {
	runsc, program, dir := gvisortest.Need(t).Path, dockertest.Program(t), t.TempDir()
	t.Setenv("TMPDIR", dir)
	var out strings.Builder
	if err := run(t.Context(), &out, local.WithRunsc(runsc), local.WithBinary(program)); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	at := 0 // in the output
	for _, want := range []string{
		"--- prepared in ",
		"100000 points and 10 steps, which leave an error of 0.813, ",
		"Linux version 4.19.0-gvisor ",
		"Starting gVisor",
		"(-1, 'Function not implemented')",
		"(-1, 'Operation not permitted')",
		"=> 4 attacks, and none reached this: Linux version ",
		"--- paused in ",
		"--- resumed in ",
		"100000 points and 10 steps, ",
		"=> it goes on where it was\n",
		"--- snapshot in ",
		", which keeps the points of x < 0\n49844 points and 10 steps, ",
		", which keeps the points of x >= 0\n50156 points and 10 steps, ",
		"100000 points and 10 steps, ",
		"=> the sandbox itself has all of its points\n",
		"--- 3 forks in ",
		"at a rate of 0.05, 20 steps in ",
		"100000 points and 30 steps, which leave an error of 0.206, ",
		"at a rate of 0.5, 20 steps in ",
		"100000 points and 30 steps, which leave an error of 0.00999, ",
		"at a rate of 1.5, 20 steps in ",
		"100000 points and 30 steps, which leave an error of 5.05e+10, ",
		"100000 points and 10 steps, which leave an error of 0.813, ",
		"=> best is a rate of 0.5, and the sandbox itself has not moved\n",
		"--- paused for another cloud, in ",
		"--- resumed by it, in ",
		"100000 points and 10 steps, which leave an error of 0.813, ",
		"=> it goes on where it was, in another cloud\n",
	} {
		i := strings.Index(out.String()[at:], want)
		if i < 0 {
			t.Fatalf("got %s, want %q after %q", &out, want, out.String()[:at])
		}
		at += i + len(want)
	}
	// Every sandbox has the two processes of the first one.
	processes := map[string]int{}
	for _, of := range regexp.MustCompile(`in process (\d+); asked \d+ times is process (\d+)\n`).FindAllStringSubmatch(out.String(), -1) {
		processes[of[1]+" "+of[2]]++
	}
	if len(processes) != 1 {
		t.Errorf("got the processes %v, want the same ones everywhere", processes)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want that no state is left", left, err)
	}
}
