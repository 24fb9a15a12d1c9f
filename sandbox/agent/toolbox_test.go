package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/state"
)

type parcel struct {
	At    time.Time           `py:"at,omitempty"`
	Wait  time.Duration       `py:"wait,omitempty"`
	Data  []byte              `py:"data,omitempty"`
	Tags  map[string]struct{} `py:"tags,omitempty"`
	Parts []struct {
		Blobs map[string][]byte `py:"blobs"`
	} `py:"parts,omitempty"`
	Big  *big.Int `py:"big"`
	Rate float64  `py:"rate,omitempty"`
}

func TestToolboxConverts(t *testing.T) {
	t.Parallel()
	var got parcel
	send, err := NewTool("send", "", func(_ context.Context, p parcel) (any, error) { got = p; return p.Data, nil })
	must.Do(t, err)
	taken := any("nothing")
	take, err := NewTool("take", "", func(_ context.Context, p struct{ X any }) (int, error) { taken = p.X; return 1, nil })
	must.Do(t, err)
	box, err := NewToolbox(send, take)
	must.Do(t, err)
	result, err := box.Call(t.Context(), "send", json.RawMessage(`{"at":"2026-11-28T08:00:00Z","wait":"PT1H0.5S","data":"YWI=","tags":["x","y"],
		"parts":[{"blobs":{"a":"Yw=="}}],"big":123456789012345678901234567890,"rate":2}`))
	must.Do(t, err)
	if string(result) != `"YWI="` {
		t.Errorf("result %s", result)
	}
	if !got.At.Equal(time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)) || got.Wait != time.Hour+time.Second/2 || string(got.Data) != "ab" {
		t.Errorf("got %v, %v, %q", got.At, got.Wait, got.Data)
	}
	if tags := slices.Sorted(maps.Keys(got.Tags)); !slices.Equal(tags, []string{"x", "y"}) || string(got.Parts[0].Blobs["a"]) != "c" {
		t.Errorf("got %v, %v", tags, got.Parts)
	}
	if got.Big.String() != "123456789012345678901234567890" || got.Rate != 2 {
		t.Errorf("got %v, %v", got.Big, got.Rate)
	}
	// An optional parameter that is null is missing. A required one that is null is None.
	_, err = box.Call(t.Context(), "send", json.RawMessage(`{"parts":null,"big":null,"rate":null}`))
	must.Do(t, err)
	if got.Parts != nil || got.Big != nil || got.Rate != 0 {
		t.Errorf("got %v, %v, %v, want none of them", got.Parts, got.Big, got.Rate)
	}
	if _, err := box.Call(t.Context(), "take", json.RawMessage(`{"X":null}`)); err != nil || taken != nil {
		t.Errorf("got %v, error %v, want None", taken, err)
	}
	for arguments, want := range map[string]string{
		`{"data":"%"}`:                    "TypeError: send: wrong arguments: data: read base64: illegal base64",
		`{"wait":"1h"}`:                   `TypeError: send: wrong arguments: wait: "1h" is not a duration`,
		`{"wait":"PTx"}`:                  `TypeError: send: wrong arguments: wait: "PTx" is not a duration`,
		`{"tags":["x","x"]}`:              `TypeError: send: wrong arguments: state: ["tags"]: a set that has "x" twice`,
		`{"at":"now"}`:                    `TypeError: send: wrong arguments: ["at"]`,
		`{"parts":[{"blobs":{"a":"%"}}]}`: `TypeError: send: wrong arguments: parts: [0]: blobs: a: read base64`,
		`{`:                               "TypeError: send: wrong arguments: state: read JSON",
		`null`:                            "TypeError: send: wrong arguments: they have to be a JSON object",
	} {
		_, err := box.Call(t.Context(), "send", json.RawMessage(arguments))
		failed, ok := errors.AsType[*ToolError](err)
		if !ok || !strings.HasPrefix(failed.Type+": "+failed.Message, want) {
			t.Errorf("%s: %v, want %s", arguments, err, want)
		}
	}
	if _, err := box.Call(t.Context(), "other", nil); err == nil || err.Error() != `there is no tool "other"` {
		t.Errorf("a tool that is not there: %v", err)
	}
}

// TestToolboxOfSchemas checks that arguments have the names of the schema. Only one of these is
// also the name of its parameter.
func TestToolboxOfSchemas(t *testing.T) {
	t.Parallel()
	var got string
	tool, err := ToolFromSchema("issues", "", json.RawMessage(issues), func(_ context.Context, arguments json.RawMessage) (any, error) {
		got = string(arguments)
		return json.RawMessage(`[1.5, {"a": null}]`), nil
	})
	must.Do(t, err)
	box, err := NewToolbox(tool)
	must.Do(t, err)
	result, err := box.Call(t.Context(), "issues", json.RawMessage(`{"repo":"r","per-page":9007199254740993,"from":null,"2fa":true}`))
	if want := `{"2fa":true,"from":null,"per-page":9007199254740993,"repo":"r"}`; err != nil || got != want || string(result) != `[1.5,{"a":null}]` {
		t.Errorf("called with %s, %s, %v, want %s", got, result, err, want)
	}
	if _, err := box.Call(t.Context(), "issues", json.RawMessage(`{"repo":"r","per_page":1}`)); err == nil || !strings.Contains(err.Error(), `there is no parameter "per_page"`) {
		t.Errorf("the parameter's name: %v", err)
	}
}

// TestToolboxLimits checks that limits hold across concurrent calls, and that a call which ignores
// its context is not waited for.
func TestToolboxLimits(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}, 2), make(chan struct{})
	stuck := MustTool("stuck", "", func(context.Context, struct{}) (int, error) {
		begun <- struct{}{}
		<-release
		return 1, nil
	}, WithToolLimits(ToolLimits{MaxConcurrency: 1, MaxCalls: 2}))
	box, err := NewToolbox(stuck)
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := box.Call(ctx, "stuck", nil)
			ends <- err
		}()
	}
	patience.Receive(t, "the call that may begin", begun)
	patience.Until(t, "the call that waits", func() bool {
		bound := box.caller.tools["stuck"]
		bound.mu.Lock()
		defer bound.mu.Unlock()
		return bound.calls == 2
	})
	if _, err := box.Call(t.Context(), "stuck", nil); err == nil || !strings.Contains(err.Error(), "it was called 2 times") {
		t.Errorf("a third call: %v", err)
	}
	cancel()
	for range 2 {
		if err := patience.Receive(t, "the end of a call", ends); err == nil || !strings.Contains(err.Error(), "context canceled") {
			t.Errorf("a call that was given up: %v", err)
		}
	}
	close(release)
	box.caller.work.Wait()
	if len(begun) > 0 {
		t.Error("two calls were made at once")
	}
}

// TestToolboxNamesTheReason checks that the error of a tool that ends because its context was
// cancelled names the reason, whoever cancelled it.
func TestToolboxNamesTheReason(t *testing.T) {
	t.Parallel()
	var stop context.CancelCauseFunc
	box, err := NewToolbox(MustTool("stops", "", func(ctx context.Context, _ struct{}) (int, error) {
		stop(errors.New("enough"))
		return 0, fmt.Errorf("query: %w", ctx.Err())
	}))
	must.Do(t, err)
	for range 100 { // the caller sees the end of its context first, or that of the function
		ctx, cancel := context.WithCancelCause(t.Context())
		stop = cancel
		_, err := box.Call(ctx, "stops", nil)
		cancel(nil)
		if seen, ok := errors.AsType[*ToolError](err); !ok || seen.Message != "stops: enough" {
			t.Fatalf("got %v, want the reason, which is enough", err)
		}
	}
}

// TestToolboxResults checks the JSON of results, and the description of a call for the function that approves it.
func TestToolboxResults(t *testing.T) {
	t.Parallel()
	var result any
	var asked []ToolCall
	box, err := NewToolbox(MustTool("give", "", func(context.Context, struct{ X *int }) (any, error) { return result, nil },
		WithApproval(func(_ context.Context, call ToolCall) error { asked = append(asked, call); return nil })))
	must.Do(t, err)
	for _, tt := range []struct {
		result any
		want   string
	}{{"<a> & b", `"<a> & b"`}, {state.Set{int64(1)}, `"{1}"`}, {nil, "null"}, {[]any{map[string]any{"a": state.Tuple{int64(1), "<"}}}, `[{"a":[1,"<"]}]`}} {
		result = tt.result
		got, err := box.Call(t.Context(), "give", json.RawMessage(`{"X":5}`))
		if must.Do(t, err); string(got) != tt.want {
			t.Errorf("%v: got %s, want %s", tt.result, got, tt.want)
		}
	}
	if len(asked) != 4 {
		t.Fatalf("the approval was asked for %d times, want 4", len(asked))
	}
	call := asked[3]
	if got := string(call.Arguments.Bytes()); call.Tool != "give" || call.Run != "" || call.Step != 0 || got != `{"v":1,"value":{"X":5}}` {
		t.Errorf("got %+v with %s, want the tool and its arguments alone", call, got)
	}
}

// TestOwnErrorAfterTheEnd checks that a tool that fails for another reason than the end of its context is said to have
// failed for this reason.
func TestOwnErrorAfterTheEnd(t *testing.T) {
	t.Parallel()
	var stop context.CancelCauseFunc
	box, err := NewToolbox(MustTool("fail", "", func(context.Context, struct{}) (int, error) {
		stop(errors.New("enough"))
		return 0, errors.New("no luck")
	}))
	must.Do(t, err)
	patience.Until(t, "the caller sees the end of the function first", func() bool {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		stop = cancel
		_, err := box.Call(ctx, "fail", nil)
		box.caller.work.Wait()
		seen, _ := errors.AsType[*ToolError](err)
		if seen == nil || seen.Message != "fail: no luck" && seen.Message != "fail: enough" {
			t.Fatalf("got %v, want one of the two reasons", err)
		}
		return seen.Message == "fail: no luck"
	})
}
