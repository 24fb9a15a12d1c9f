package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
