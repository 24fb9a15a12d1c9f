package agent

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestGuardLists checks the lists of a guard, so that they do not change by mistake: no module or
// function leaves a list, or joins one of those that allow. The tests of single rules go through
// the lists.
func TestGuardLists(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		got  []string
		want string
	}{
		"every guard allows": {GuardModules(), "collections datetime itertools math queue random re stat statistics time unicodedata"},
		"dangerous modules": {DangerousModules(), "IPython __main__ _ctypes _frozen_importlib _frozen_importlib_external _imp _io _pickle " +
			"_posixsubprocess _sitebuiltins _socket builtins code ctypes gc imp importlib inspect io " +
			"ipykernel multiprocessing nt os pathlib pickle pkgutil posix pty pydoc runpy shutil site socket subprocess sys zipimport"},
		"dangerous functions": {DangerousFunctions(), "breakpoint compile eval exec globals help locals open vars"},
		"data analysis":       {DataAnalysis.Modules(), "numpy.* pandas.* statistics math collections"},
		"text processing":     {TextProcessing.Modules(), "re string textwrap collections"},
		"science":             {Science.Modules(), "numpy.* scipy.* statistics math"},
		"utilities":           {Utilities.Modules(), "json datetime collections itertools functools"},
	} {
		if diff := cmp.Diff(strings.Fields(test.want), test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := slices.Sorted(maps.Keys(presets)); len(got) != 4 {
		t.Errorf("the presets are %q, want the four that are tested here", got)
	}
	// A caller's changes to a list do not change the next guard.
	for _, list := range []func() []string{GuardModules, DangerousModules, DangerousFunctions, Science.Modules} {
		clear(list())
		if slices.Contains(list(), "") {
			t.Error("a caller can change the list of every guard")
		}
	}
}

// TestGuardConfig checks all that the guard in the kernel receives.
func TestGuardConfig(t *testing.T) {
	t.Parallel()
	without := func(name string) []string {
		return slices.DeleteFunc(DangerousFunctions(), func(s string) bool { return s == name })
	}
	none := []string{}
	for _, tt := range []struct {
		guard    *Guard
		packages []string
		want     *guardConfig
	}{
		{nil, []string{"pip"}, nil},
		{&Guard{}, nil, &guardConfig{Allow: GuardModules(), Optional: none, Distributions: none, Deny: none, Named: DangerousModules(), Functions: DangerousFunctions(), Turns: DefaultMaxIterations}},
		{&Guard{MaxIterations: -1}, nil, &guardConfig{Allow: GuardModules(), Optional: none, Distributions: none, Deny: none, Named: DangerousModules(), Functions: DangerousFunctions()}},
		{
			&Guard{
				Allow: []string{"numpy.*"}, Presets: []Preset{Utilities, TextProcessing}, Deny: []string{"math"}, Functions: []string{"open", "open"},
				Processes: true, Network: true, MaxIterations: 1, MaxOperations: 7,
			},
			[]string{"Pip>1", "six"},
			&guardConfig{
				Allow: append(GuardModules(), "numpy.*"), Optional: append(Utilities.Modules(), TextProcessing.Modules()...), Distributions: []string{"pip", "six"},
				Deny: []string{"math"}, Named: DangerousModules(), Functions: without("open"), Processes: true, Network: true, Turns: 1, Operations: 7,
			},
		},
	} {
		got, err := tt.guard.config(tt.packages)
		must.Do(t, err)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v with %q (-want +got):\n%s", tt.guard, tt.packages, diff)
		}
	}
}

// TestTextsOfTheGuard checks the texts of violations and of errors.
func TestTextsOfTheGuard(t *testing.T) {
	t.Parallel()
	v := Violation{Message: "No", Suggestion: "Ask"}
	for want, got := range map[string]string{
		"No. Ask":                     v.String(),
		"No (line 1). Ask":            Violation{Line: 1, Message: "No", Suggestion: "Ask"}.String(),
		"agent: guard: no":            (&GuardError{Reason: "no"}).Error(),
		`agent: Guard.Deny "a b": no`: (&GuardError{"Deny", "a b", "no"}).Error(),
		`agent: Guard.Deny "` + strings.Repeat("x", 64) + `…": no`: (&GuardError{"Deny", strings.Repeat("x", 65), "no"}).Error(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestBoundsOfReports checks how many modules and violations of a report are kept, and how much of their texts.
func TestBoundsOfReports(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxGuardText+1)
	short := long[:maxGuardText] + "…"
	report := guardReport{Imports: slices.Repeat([]string{long}, maxImports+1), Violations: slices.Repeat([]Violation{{Rule(long), long, 1, long, long}}, maxViolations+1)}
	report.bound(nil)
	want := guardReport{slices.Repeat([]Violation{{Rule(short), short, 1, short, short}}, maxViolations), slices.Repeat([]string{short}, maxImports)}
	if len(report.Imports) != maxImports || len(report.Violations) != maxViolations {
		t.Errorf("got %d modules and %d violations, want %d and %d", len(report.Imports), len(report.Violations), maxImports, maxViolations)
	}
	if !slices.Equal(report.Imports, want.Imports) || !slices.Equal(report.Violations, want.Violations) {
		t.Error("the texts were not shortened")
	}
}

// TestReportsOfSteps checks the parts that a step receives from the guard's report, and the errors of a kernel without it.
func TestReportsOfSteps(t *testing.T) {
	t.Parallel()
	violation := func(name string) map[string]any {
		return map[string]any{"rule": "import", "name": name, "line": 3, "message": "No " + name, "suggestion": "Ask"}
	}
	report := func(violations ...any) map[string]any {
		return map[string]any{"violations": violations, "imports": []any{"math"}}
	}
	many := make([]any, maxViolations)
	for i := range many {
		many[i] = violation("os")
	}
	raised := func(name, value string) *sandbox.ExecutionError {
		return &sandbox.ExecutionError{Name: name, Value: value}
	}
	failed := jupyter.ExecuteReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: "E", Value: "no"}}
	for name, tt := range map[string]struct {
		reply   jupyter.ExecuteReply
		plan    []any
		error   *sandbox.ExecutionError
		want    error
		refused string // name of the violation
		kept    int
	}{
		"no violation":          {replyOf(t, map[string]any{guardKey: report()}), nil, nil, nil, "", 0},
		"a violation":           {replyOf(t, map[string]any{guardKey: report(violation("os"))}), nil, nil, nil, "", 1},
		"the second ended it":   {failed, []any{map[string]any{valueKey: report(violation("os"), violation("sys"))}}, raised(guardName, "No sys (line 3). Ask"), nil, "sys", 2},
		"the first ended it":    {failed, []any{map[string]any{valueKey: report(violation("os"), violation("sys"))}}, raised(guardName, "No os (line 3). Ask"), nil, "os", 2},
		"another exception":     {failed, []any{map[string]any{valueKey: report(violation("os"))}}, raised("ValueError", "No os (line 3). Ask"), nil, "", 1},
		"another violation":     {failed, []any{map[string]any{valueKey: report(violation("os"))}}, raised(guardName, "No sys (line 3). Ask"), nil, "", 1},
		"one beyond the bound":  {failed, []any{map[string]any{valueKey: report(slices.Concat(many, []any{violation("sys")})...)}}, raised(guardName, "No sys (line 3). Ask"), nil, "", maxViolations},
		"the last within it":    {failed, []any{map[string]any{valueKey: report(slices.Concat(many[1:], []any{violation("sys")})...)}}, raised(guardName, "No sys (line 3). Ask"), nil, "sys", maxViolations},
		"no guard":              {replyOf(t, map[string]any{guardKey: errGuardMissing}), nil, nil, sandbox.ErrKernelDied, "", 0},
		"no guard any longer":   {failed, []any{errGuardMissing}, raised("E", "no"), sandbox.ErrKernelDied, "", 0},
		"a guard that raises":   {replyOf(t, map[string]any{guardKey: errRaised}), nil, nil, errGuardOff, "", 0},
		"a malformed report":    {replyOf(t, map[string]any{guardKey: 5}), nil, nil, errGuardOff, "", 0},
		"a kernel that is gone": {failed, []any{errGone}, raised("E", "no"), errGone, "", 0},
	} {
		h := &plannedHost{t: t, plan: tt.plan}
		step := &Step{Execution: sandbox.Execution{Error: tt.error}}
		err := (&runContext{}).report(t.Context(), h, tt.reply, step, nil)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || errors.Is(err, errGuardOff) != errors.Is(tt.want, errGuardOff) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		if len(step.Violations) != tt.kept || err == nil && cmp.Diff([]string{"math"}, step.Imports) != "" || len(h.plan) > 0 {
			t.Errorf("%s: got %d violations, imports %q and %d answers left, want %d violations", name, len(step.Violations), step.Imports, len(h.plan), tt.kept)
		}
		refused := ""
		if step.Refused != nil {
			refused = step.Refused.Name
			if step.Error.Line != 3 {
				t.Errorf("%s: the exception is in line %d, want 3", name, step.Error.Line)
			}
		}
		if refused != tt.refused {
			t.Errorf("%s: got the refusal of %q, want of %q", name, refused, tt.refused)
		}
	}
}
