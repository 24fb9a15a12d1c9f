package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// TestTextsOfATool checks the texts that models and people get: without characters that hide a part of them, and as Python.
func TestTextsOfATool(t *testing.T) {
	t.Parallel()
	tool, err := NewTool("greet", " a\u200bb\u00a0c\rd\x1b[1m \\ \"\"\"\n\tend ", func(context.Context, struct {
		Name string `py:"name" doc:"whom"`
	}) (string, error) {
		return "", nil
	})
	must.Do(t, err)
	const visible = "ab cd[1m \\ \"\"\"\n\tend"
	for what, texts := range map[string][2]string{
		"name": {"greet", tool.Name()}, "description": {visible, tool.Description()},
		"docstring": {visible + "\n\nArgs:\n    name (str): whom\n\nReturns:\n    str", tool.Doc()},
		"stub": {
			"def greet(name: str) -> str:\n    \"\"\"ab cd[1m \\\\ \\\"\\\"\\\"\n    \tend\n    \n    Args:\n        name (str): whom\n    \n    Returns:\n        str\n    \"\"\"\n", tool.Prompt(),
		},
	} {
		if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
			t.Errorf("the %s (-want +got):\n%s", what, diff)
		}
	}
}

// TestJSONOfValues checks which values of a result have JSON.
func TestJSONOfValues(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		value any
		want  string // "": it has none
	}{
		{nil, `null`}, {true, `true`}, {int64(1), `1`}, {big.NewInt(7), `7`}, {"s", `"s"`}, {[]byte("a"), `"YQ=="`}, {day, `"2026-11-28T08:00:00Z"`}, {1.5, `1.5`},
		{math.NaN(), ""}, {math.Inf(1), ""}, {math.Inf(-1), ""}, {state.Path{Path: "/a"}, `"/a"`}, {[]any{int64(1), "b"}, `[1,"b"]`}, {state.Tuple{int64(1)}, `[1]`},
		{[]any{math.NaN()}, ""}, {state.Tuple{math.NaN()}, ""}, {map[string]any{"a": []any{}}, `{"a":[]}`}, {map[string]any{"a": math.NaN()}, ""},
		{state.Instance{Value: int64(2)}, `2`}, {state.Dict{{Key: "a", Value: int64(1)}}, `{"a":1}`}, {state.Dict{{Key: int64(1), Value: int64(1)}}, ""},
		{state.Dict{{Key: "a", Value: math.NaN()}}, ""}, {complex(1, 2), ""},
	} {
		object, err := jsonOf(test.value)
		if (err == nil) != (test.want != "") {
			t.Errorf("%T %v: got error %v, want %q", test.value, test.value, err, test.want)
			continue
		}
		if text, failed := json.Marshal(object); err == nil && (failed != nil || string(text) != test.want) {
			t.Errorf("%T %v: got %s and error %v, want %s", test.value, test.value, text, failed, test.want)
		}
	}
}

// TestPartsOfFrames checks that a frame with bytes beside its values is read as a whole, and only if they have their hash.
func TestPartsOfFrames(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("x"), 1<<20)
	sum := sha256.Sum256(large)
	for what, test := range map[string]struct {
		hash  string
		size  int // of the blob
		wrong bool
	}{
		"its hash": {hex.EncodeToString(sum[:]), len(large), false}, "another hash": {strings.Repeat("0", 64), len(large), true}, "no hash": {"", len(large), true}, "too long": {hex.EncodeToString(sum[:]), len(large) + 1, true},
	} {
		head := fmt.Sprintf(`{"values":[],"blobs":[[%q,%d]]}`+"\n", test.hash, test.size)
		err := readFrame(strings.NewReader(head+string(large)), len(head), len(head)+len(large), func(string, state.Value) error { return nil })
		if (err != nil) != test.wrong || err != nil && !errors.Is(err, errFrame) {
			t.Errorf("%s: got error %v, want one of the frame: %v", what, err, test.wrong)
		}
	}
	for what, size := range map[string][2]int{"a head that is too large": {maxFrameHead + 1, maxFrameHead + 1}, "a frame that is too large": {1, 2*state.DefaultMaxBytes + 1}, "a head beyond its frame": {2, 1}} {
		if _, ok := errors.AsType[*state.LimitError](readFrame(strings.NewReader(""), size[0], size[1], nil)); !ok {
			t.Errorf("%s: got no error of a limit", what)
		}
	}
}

// TestBoundsOfToolboxes checks the longest arguments of a call, what a failed conversion names, and that a panic is an error.
func TestBoundsOfToolboxes(t *testing.T) {
	t.Parallel()
	tool, err := NewTool("tool", "", func(_ context.Context, p struct {
		Data []byte        `py:"data,omitempty"`
		Wait time.Duration `py:"wait,omitempty"`
		Dies bool          `py:"dies,omitempty"`
	}) (any, error) {
		if p.Dies {
			panic("the reason")
		}
		return math.NaN(), nil
	})
	must.Do(t, err)
	if _, err := NewToolbox(tool, tool); err == nil {
		t.Error("two tools of a name were taken")
	}
	if _, err := NewToolbox(Tool{}); err == nil {
		t.Error("a tool that is none was taken")
	}
	box, err := NewToolbox(tool)
	must.Do(t, err)
	for arguments, want := range map[string]string{
		"":     `NaN`,
		`{}`:   `NaN`,
		`null`: "TypeError: tool: wrong arguments: they have to be a JSON object", `[]`: "TypeError: tool: wrong arguments: they have to be a JSON object", `{"a":1}`: `TypeError: tool: wrong arguments: there is no parameter "a"`,
		`{"data":"%"}`: "TypeError: tool: wrong arguments: data: read base64: ", `{"wait":"1h"}`: "TypeError: tool: wrong arguments: wait: ", `{"dies":true}`: "",
		`{"data":"` + strings.Repeat(" ", maxExchange-10) + `"}`: fmt.Sprintf("LimitError: the arguments of tool have more than %d bytes", maxExchange),
	} {
		result, err := box.Call(t.Context(), "tool", json.RawMessage(arguments))
		name := arguments[:min(len(arguments), 20)]
		switch failed, ok := errors.AsType[*ToolError](err); {
		case want == "NaN":
			if err != nil || !strings.Contains(strings.ToLower(string(result)), "nan") {
				t.Errorf("%s: got %s and error %v", name, result, err)
			}
		case !ok || !strings.HasPrefix(failed.Type+": "+failed.Message, want):
			t.Errorf("%s (%d bytes): got %s and error %v, want %s", name, len(arguments), result, err, want)
		}
	}
}

// TestResultsOfAStep checks how each kind of result appears in the text for a model.
func TestResultsOfAStep(t *testing.T) {
	t.Parallel()
	result := func(main bool, data map[string]json.RawMessage) *Step {
		return &Step{Execution: sandbox.Execution{Results: []sandbox.Result{{Main: main, Data: data}}}}
	}
	for want, step := range map[string]*Step{
		"(no output)\n": {},
		"Displayed:\n(image/png, image/svg+xml)\n":                          result(false, map[string]json.RawMessage{"image/svg+xml": []byte(`"<svg/>"`), "image/png": []byte(`""`)}),
		"Displayed:\n(left out)\n":                                          result(false, nil),
		"Value of the last expression:\n'a'\n":                              result(true, map[string]json.RawMessage{"text/plain": []byte(`"'a'"`)}),
		"Interrupted:\nThe code took longer than 2s, which is the limit.\n": {overran: 2 * time.Second},
		"Printed:\nout\nPrinted to stderr:\nerr\n":                          {Execution: sandbox.Execution{Stdout: "out\n\n", Stderr: "err"}},
	} {
		if got := step.Observation(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestAnswersOfOtherKernels checks that an answer without the document of the run's modules is an error.
func TestAnswersOfOtherKernels(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"status":"ok","user_expressions":{"k":{"status":"ok","data":{"text/plain":"x"}}}}`:    "is it a Python kernel?",
		`{"status":"ok","user_expressions":{"k":{"status":"error","ename":"E","evalue":"no"}}}`: "the kernel answered E: no",
		`{"status":"error","ename":"E","evalue":"no"}`:                                          "the kernel answered E: no",
	} {
		var reply jupyter.ExecuteReply
		must.Do(t, json.Unmarshal([]byte(answer), &reply))
		if text, err := expressionValue(reply, "k"); text != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q and error %v, want %s", answer, text, err, want)
		}
	}
}
