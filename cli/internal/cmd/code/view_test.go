package code

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/sandbox"
)

// TestExecutionView checks that the JSON of an execution has all that is known of it.
func TestExecutionView(t *testing.T) {
	t.Parallel()
	data := map[string]json.RawMessage{"text/plain": json.RawMessage(`"a"`)}
	want := executionView{
		SandboxID: "i1", Results: []resultView{{IsMainResult: true, Data: data}, {Data: data}}, Stdout: "out", Stderr: "err",
		Error: &errorView{Name: "E", Value: "no", Traceback: "E: no", Line: 3},
	}
	execution := sandbox.Execution{
		Results: []sandbox.Result{{Main: true, Data: data}, {Data: data}}, Stdout: "out", Stderr: "err",
		Error: &sandbox.ExecutionError{Name: "E", Value: "no", Traceback: "E: no", Line: 3},
	}
	for dropped, truncated := range map[[2]int64]bool{{0, 0}: false, {1, 0}: true, {0, 1}: true} {
		execution.StdoutDropped, execution.StderrDropped, want.Truncated = dropped[0], dropped[1], truncated
		if diff := cmp.Diff(want, executionViewOf("i1", &execution)); diff != "" {
			t.Errorf("%v bytes dropped (-want +got):\n%s", dropped, diff)
		}
	}
	if diff := cmp.Diff(executionView{Results: []resultView{}}, executionViewOf("", &sandbox.Execution{})); diff != "" {
		t.Errorf("nothing (-want +got):\n%s", diff)
	}
}
