package ci

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readOutputs reads the lines of GITHUB_OUTPUT as the runner does.
func readOutputs(text string) map[string]string {
	outputs := map[string]string{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		name, value, isPlain := strings.Cut(lines[i], "=")
		if key, end, ok := strings.Cut(lines[i], "<<"); ok && (!isPlain || len(key) < len(name)) {
			var values []string
			for i++; i < len(lines) && lines[i] != end; i++ {
				values = append(values, lines[i])
			}
			outputs[key] = strings.Join(values, "\n")
			continue
		}
		if isPlain {
			outputs[name] = value
		}
	}
	return outputs
}

func TestOutputSetsNothingElse(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"i1", "", "a=b", "a<<b", "i1\nother=1", "i1\nEOF\nother=1", "i1\r\nother<<x\n1\nx"} {
		want := map[string]string{"before": "1", "id": value, "after": "2"}
		if diff := cmp.Diff(want, readOutputs("before=1\n"+Output("id", value)+"after=2\n")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
	}
}

// TestPlainOutput checks that a value of one line is set without a delimiter, and another with one.
func TestPlainOutput(t *testing.T) {
	t.Parallel()
	if got, want := Output("id", "i1"), "id=i1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, value := range []string{"a\n", "a\rb"} {
		if got := Output("id", value); !strings.HasPrefix(got, "id<<") {
			t.Errorf("%q: got %q, want a delimiter", value, got)
		}
	}
}

// TestOutputNames checks the characters that names can have, by the edges of their ranges.
func TestOutputNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"az": true, "AZ": true, "a09": true, "a/": false, "a:": false, "a@": false, "a[": false, "a`": false, "a{": false,
		"id": true, "_a-1": true, "": false, "1": false, "-a": false, "a b": false, "a=b": false, "a\n": false, "é": false, "a<<b": false,
	} {
		if got := IsOutputName(name); got != want {
			t.Errorf("%q is an output's name: %v, want %v", name, got, want)
		}
	}
}
