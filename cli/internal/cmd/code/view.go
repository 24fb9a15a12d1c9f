package code

import (
	"encoding/json"

	"github.com/e2bctl/e2bctl/sandbox"
)

// executionView is the JSON of an execution.
type executionView struct {
	SandboxID string       `json:"sandboxID"`
	Results   []resultView `json:"results"`
	Stdout    string       `json:"stdout"`
	Stderr    string       `json:"stderr"`
	Error     *errorView   `json:"error"`
	Truncated bool         `json:"truncated,omitempty"` // the middle of stdout or stderr is missing
}

type resultView struct {
	IsMainResult bool                       `json:"isMainResult"`
	Data         map[string]json.RawMessage `json:"data"`
}

type errorView struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
	Line      int    `json:"line,omitempty"`
}

func executionViewOf(id string, e *sandbox.Execution) executionView {
	view := executionView{
		SandboxID: id, Results: make([]resultView, len(e.Results)), Stdout: e.Stdout, Stderr: e.Stderr,
		Truncated: e.StdoutDropped+e.StderrDropped > 0,
	}
	for i, r := range e.Results {
		view.Results[i] = resultView{IsMainResult: r.Main, Data: r.Data}
	}
	if e.Error != nil {
		view.Error = &errorView{Name: e.Error.Name, Value: e.Error.Value, Traceback: e.Error.Traceback, Line: e.Error.Line}
	}
	return view
}
