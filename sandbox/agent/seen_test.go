package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// TestErrorsSeen checks the parts of an error that code sees: its kind, its text up to a bound,
// and whether the same call may succeed later.
func TestErrorsSeen(t *testing.T) {
	t.Parallel()
	redact, err := newRedactor([]string{"hunter22"})
	must.Do(t, err)
	wrapped := func(err error) error { return fmt.Errorf("call: %w", err) }
	for _, tt := range []struct {
		err  error
		want ToolError
	}{
		{&argumentError{errors.New("x")}, ToolError{"TypeError", "wrong arguments: x", false}},
		{wrapped(&argumentError{errors.New("x")}), ToolError{"TypeError", "call: wrong arguments: x", false}},
		{&argumentError{&state.DecodeError{Path: `["a"]`, Reason: "it is odd"}}, ToolError{"TypeError", `wrong arguments: ["a"]: it is odd`, false}},
		{&argumentError{&state.DecodeError{Reason: "it is odd"}}, ToolError{"TypeError", "wrong arguments: state: decode value (byte 0): it is odd", false}},
		{&ToolError{Type: "Busy", Message: "x", Retryable: true}, ToolError{"Busy", "x", true}},
		{wrapped(&ToolError{Type: "Busy", Message: "x"}), ToolError{"Busy", "call: x", false}},
		{&ToolError{Message: "x", Retryable: true}, ToolError{"agent.ToolError", "x", true}},
		{&ToolError{Message: "x"}, ToolError{"agent.ToolError", "x", false}},
		{wrapped(ErrBudget), ToolError{"BudgetError", "call: " + ErrBudget.Error(), false}},
		{wrapped(context.DeadlineExceeded), ToolError{"TimeoutError", "call: context deadline exceeded", false}},
		{wrapped(context.Canceled), ToolError{"CancelledError", "call: context canceled", false}},
		{fmt.Errorf("%w: %w", ErrBudget, context.Canceled), ToolError{"BudgetError", ErrBudget.Error() + ": context canceled", false}},
		{wrapped(api.ErrRetryable), ToolError{"errors.errorString", "call: " + api.ErrRetryable.Error(), true}},
		{errors.New("it is hunter22"), ToolError{"errors.errorString", "it is [redacted]", false}},
		{&ToolError{Type: "hunter22", Message: "x"}, ToolError{"[redacted]", "x", false}},
	} {
		if got := errorSeen(redact, tt.err); got.Type != tt.want.Type || got.Message != tt.want.Message || got.Retryable != tt.want.Retryable {
			t.Errorf("%v: got %+v, want %+v", tt.err, got, tt.want)
		}
	}
	for n, want := range map[int]string{maxToolError: strings.Repeat("x", maxToolError), maxToolError + 1: strings.Repeat("x", maxToolError) + "…"} {
		if got := errorSeen(redact, errors.New(strings.Repeat("x", n))).Message; got != want {
			t.Errorf("a text of %d bytes: got %d, want %d", n, len(got), len(want))
		}
	}
}

// Arguments are those of the parameters: each that is required, and no other.
func TestArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	type in struct {
		A int  `py:"a"`
		B *int `py:"b"`
	}
	tool := MustTool("f", "", func(context.Context, in) (struct{}, error) { return struct{}{}, nil })
	for given, want := range map[string]string{
		`{"a":1}`: "", `{"a":1,"b":2}`: "", `{"a":1,"b":null}`: "",
		`{}`: `"a" is missing`, `{"b":2}`: `"a" is missing`, `{"a":1,"c":3}`: `there is no parameter "c"`, `[1]`: "wrong arguments", `1`: "wrong arguments",
		`{"a":{"$":"opaque","type":"m.T","repr":"<T>","reason":"it is large"}}`:    `"a", a m.T, cannot be sent: it is large: convert`,
		`{"a":{"$":"opaque","type":"m.T","repr":"<T>","reason":""}}`:               `"a", a m.T, cannot be sent: convert`,
		`{"$":"opaque","type":"m.T","repr":"<T>","reason":""}`:                     "the value cannot be sent: convert",
		`{"a":[{"$":"opaque","type":"m.T","repr":"<T>","reason":"it is nested"}]}`: "an argument cannot be sent: convert",
	} {
		arguments, err := state.Parse([]byte(`{"v":1,"value":`+given+`}`), state.Bounds{})
		must.Do(t, err)
		err = tool.check(arguments)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", given, err, want)
		}
		if _, typed := errors.AsType[*argumentError](err); err != nil && !typed {
			t.Errorf("%s: got %T, want what becomes a TypeError", given, err)
		}
	}
}

// The schema that a tool returns is the caller's.
func TestSchemaIsACopy(t *testing.T) {
	t.Parallel()
	given := []byte(`{"type":"object","properties":{"a":{"type":"string"}}}`)
	fromSchema, err := ToolFromSchema("g", "", given, func(context.Context, json.RawMessage) (any, error) { return nil, nil })
	must.Do(t, err)
	for _, tool := range []Tool{fromSchema, MustTool("f", "", func(context.Context, struct{ A int }) (int, error) { return 0, nil })} {
		first := tool.Schema()
		before := string(first)
		clear(first)
		clear(given)
		if diff := cmp.Diff(before, string(tool.Schema())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tool.Name(), diff)
		}
	}
}

// Each name in a run means one thing.
func TestNamesOfARun(t *testing.T) {
	t.Parallel()
	f := MustTool("f", "", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	g := MustTool("g", "", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	with := func(name string) *state.State {
		st := state.New()
		must.Do(t, st.Set(name, 1))
		return st
	}
	for want, p := range map[string]Params{
		"":                              {Tools: []Tool{f, g}, State: with("x")},
		"was not made by":               {Tools: []Tool{f, {}}},
		`the tool "f" has the name of`:  {Tools: []Tool{f, g, f}},
		`the variable "g" of the state`: {Tools: []Tool{f, g}, State: with("g")},
		`the function that gives the final answer`: {State: with(finalAnswer)},
	} {
		if err := checkNames(&p); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A step says how much it has printed, and keeps as much as its run allows.
func TestOutputLimits(t *testing.T) {
	t.Parallel()
	for asked, want := range map[int64]int{0: sandbox.DefaultMaxOutputBytes, -1: 0, 1: 1, 100: 100} {
		s := &Step{maxOutput: asked}
		if got := s.outputLimit(); got != want {
			t.Errorf("%d: got %d, want %d", asked, got, want)
		}
	}
	for _, tt := range []struct {
		limit, dropped, want int64
	}{{100, 0, 4}, {100, 1, 101}, {101, 1, 101}, {100, 900, 1000}} {
		s := &Step{maxOutput: tt.limit}
		if got := s.printed("text", tt.dropped); got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
	for restarted, want := range map[bool]string{true: "Restarted:\nThe Python process", false: "(no output)\n"} {
		if got := (&Step{Restarted: restarted}).Observation(); !strings.HasPrefix(got, want) {
			t.Errorf("restarted %v: got %q, want %q", restarted, got, want)
		}
	}
}
