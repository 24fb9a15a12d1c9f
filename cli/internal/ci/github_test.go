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

func TestOutputNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"id": true, "_a-1": true, "": false, "1": false, "-a": false, "a b": false, "a=b": false, "a\n": false, "é": false, "a<<b": false} {
		if got := IsOutputName(name); got != want {
			t.Errorf("%q is an output's name: %v, want %v", name, got, want)
		}
	}
}
