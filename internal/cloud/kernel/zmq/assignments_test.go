//go:build linux

package zmq

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// Variables of one execution are set before it, and get their values back or go after it.
func TestAssignments(t *testing.T) {
	t.Parallel()
	env, environ := map[string]string{"NEW": "1", "OLD": "it's"}, map[string]string{"OLD": "2", "OTHER": "3"}
	for language, want := range map[string][2]string{
		"Bash":       {"export NEW=1\nexport OLD='it'\\''s'", "unset NEW\nexport OLD=2"},
		"typescript": {"process.env[\"NEW\"] = \"1\"\nprocess.env[\"OLD\"] = \"it's\"", "delete process.env[\"NEW\"]\nprocess.env[\"OLD\"] = \"2\""},
		"r":          {"Sys.setenv(NEW = \"1\")\nSys.setenv(OLD = \"it's\")", "Sys.unsetenv(\"NEW\")\nSys.setenv(OLD = \"2\")"},
	} {
		before, after, err := assignments(language, env, environ)
		must.Do(t, err)
		if got := [2]string{before, after}; got != want {
			t.Errorf("%s: got %q, want %q", language, got, want)
		}
	}
	for language, name := range map[string]string{"cobol": "A", "bash": "A B", "r": "1A", "java": ""} {
		if _, _, err := assignments(language, map[string]string{name: "x"}, nil); err == nil {
			t.Errorf("%q in %s: no error", name, language)
		}
	}
	if before, after, err := assignments("cobol", nil, environ); before != "" || after != "" || err != nil {
		t.Errorf("no variables: got %q, %q, %v", before, after, err)
	}
}
