//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// thisModule returns the packages of this module, and all names of their tests.
func thisModule(t *testing.T) (packages []pkg, names []string) {
	t.Helper()
	packages, err := listPackages(t.Context(), []string{"github.com/e2bctl/e2bctl/..."})
	must.Do(t, err)
	for _, p := range packages {
		tests, err := testsOf(p.dir)
		must.Do(t, err)
		for _, more := range tests {
			names = append(names, more...)
		}
	}
	return packages, names
}

func TestPlan(t *testing.T) {
	t.Parallel()
	packages, names := thisModule(t)
	if err := module.check(packages); err != nil {
		t.Error(err)
	}
	repeated := 0
	for _, p := range packages {
		if _, some := module.ordinary[p.name]; !some {
			continue
		}
		tests, err := module.ordinaryTests(p)
		must.Do(t, err)
		if tests == nil {
			all, err := testsOf(p.dir)
			must.Do(t, err)
			for _, more := range all {
				tests = append(tests, more...)
			}
		}
		repeated += len(tests)
	}
	if repeated > 500 {
		t.Errorf("%d tests run as an ordinary user, too, want at most 500: choose those that touch accounts and isolation", repeated)
	}
	t.Logf("%d of %d tests run as an ordinary user, too", repeated, len(names))
}

// TestOnce compares the words with the names of all tests.
func TestOnce(t *testing.T) {
	t.Parallel()
	_, names := thisModule(t)

	for _, name := range []string{
		"TestNoKey", "TestKeyNeverShows", "TestAttack", "TestEscape", "TestEscapeFromKernel", "TestSecretsStayOutside", "TestEgress",
		"TestGVisorEscape", "TestNoCredentialInTheSandboxes", "TestPrivateTraffic", "TestAsk", "TestProxyOfTheHost", "TestImageUsers",
		"TestImageOutside", "TestWithoutNamespaces", "TestRestoreHostile", "TestBuildingNeedsToken", "TestAuthorityRefused",
		"TestDeniedNamesStayHere", "TestHijackedEnvd", "TestGuardInASandbox", "TestUserMap", "TestUninherited", "TestBombs",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no test %s: name another one of its kind here", name)
		}
		if !module.isOnce("sandbox", name) {
			t.Errorf("%s may be repeated, want never", name)
		}
	}
	for _, name := range []string{"TestManyTasks", "TestBigFile", "TestPauseAndResume", "TestKeepalive"} {
		if module.isOnce("sandbox", name) {
			t.Errorf("%s is never repeated, want that it may be", name)
		}
	}
	if !module.isOnce("internal/cloud/engine/room/seccomp", "TestBigFile") {
		t.Error("a test of seccomp may be repeated, want never")
	}
}

func TestPlanCheck(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs(".")
	must.Do(t, err)
	packages := []pkg{{name: "a/b", dir: here}, {name: "c", dir: here}}
	for _, tt := range []struct {
		name string
		plan plan
		want string // in the error
	}{
		{"nothing", plan{}, "<nil>"},
		{"a package", plan{plain: []string{"a/b"}, longest: []string{"c"}}, "<nil>"},
		{"what is below", plan{once: []string{"a/..."}}, "<nil>"},
		{"no such package", plan{plain: []string{"a"}}, "plain of internal/testrun has a,"},
		{"nothing below", plan{stressed: []string{"d/..."}}, "stressed of internal/testrun has d/...,"},
		{"all of a package", plan{ordinary: map[string][]string{"c": nil}}, "<nil>"},
		{"a file and a test", plan{ordinary: map[string][]string{"c": {"stress_test.go", "TestPlanCheck"}}}, "<nil>"},
		{"no such package for the ordinary user", plan{ordinary: map[string][]string{"d": nil}}, "ordinary of internal/testrun has d,"},
		{"a sequential file", plan{sequential: map[string][]string{"c": {"stress_test.go"}}}, "<nil>"},
		{"no such sequential package", plan{sequential: map[string][]string{"d": {"TestPlan"}}}, "sequential of internal/testrun has d,"},
		{"no such sequential test", plan{sequential: map[string][]string{"c": {"TestNone"}}}, "sequential of internal/testrun has TestNone of c,"},
		{"sequential in a plain package", plan{plain: []string{"c"}, sequential: map[string][]string{"c": {"TestPlan"}}}, "plain and sequential of internal/testrun both have c"},
		{"no such file", plan{ordinary: map[string][]string{"c": {"none_test.go"}}}, "has none_test.go of c,"},
		{"no such test", plan{ordinary: map[string][]string{"c": {"TestNone"}}}, "has TestNone of c,"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(tt.plan.check(packages)); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSequential runs a package with a test that has a race, in its list of sequential tests: each test runs
// once, and only this one without the race detector. With -allrace, the detector finds the race.
func TestSequential(t *testing.T) {
	t.Parallel()
	if compiler, err := hasCompiler(io.Discard, os.Getenv("CI") == "true"); err != nil {
		t.Fatal(err)
	} else if !compiler {
		t.Skip("no C compiler")
	}
	st, j := faults(t, "^Test(Passes|Races)$")
	for _, allRace := range []bool{false, true} {
		s := &suite{
			report: &report{w: io.Discard}, starter: st, plan: plan{sequential: map[string][]string{j.pkg.name: {"TestRaces"}}},
			options: options{atOnce: 1, dir: t.TempDir(), run: j.run, allRace: allRace},
		}
		err := s.execute(t.Context(), time.Now(), func(ctx context.Context, ready chan<- []job) error { return s.prepare(ctx, []pkg{j.pkg}, ready) })
		var ran []string
		for _, o := range s.outcomes {
			for _, test := range o.tests {
				ran = append(ran, fmt.Sprintf("%s of %s, %v", test.name, o.job, o.job.race))
			}
		}
		want := []string{"TestPasses of " + j.pkg.name + ", true", "TestRaces of " + j.pkg.name + " without the race detector, false"}
		if allRace {
			want[1] = "TestRaces of " + j.pkg.name + ", true"
		}
		if slices.Sort(ran); !slices.Equal(ran, want) || errors.Is(err, errRed) != allRace || err != nil && !allRace {
			t.Errorf("with -allrace %v: ran %q and got %v, want %q", allRace, ran, err, want)
		}
	}
}

func TestRunOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tests  []string
		chosen string
		want   string
		some   bool
	}{
		{nil, "", "", true},
		{nil, "TestA/b", "TestA/b", true},
		{[]string{"TestA", "TestB"}, "", "^(TestA|TestB)$", true},
		{[]string{"TestA", "TestB"}, "B", "^(TestB)$", true},
		{[]string{"TestA", "TestB"}, "^TestA$/c/d", "^(TestA)$/c/d", true},
		{[]string{"TestA"}, "TestC", "^()$", false},
	} {
		if got, some, err := runOf(tt.tests, tt.chosen); got != tt.want || some != tt.some || err != nil {
			t.Errorf("runOf(%v, %q): got %q, %v, %v, want %q, %v", tt.tests, tt.chosen, got, some, err, tt.want, tt.some)
		}
	}
}
