package agent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/state"
)

// Toolbox calls tools for callers other than the code of a run, such as the clients of a server
// (package agentmcp). Like a run, it enforces the limits of its tools, and calls the functions that
// were set with [WithApproval]. The limits apply to all calls of the Toolbox together. A Toolbox is
// safe for concurrent use and need not be closed.
type Toolbox struct{ caller caller }

// NewToolbox returns a Toolbox of tools. It returns an error if two tools have the same name,
// or if a tool was not made by [NewTool], [ToolFromSchema] or [NewManaged].
func NewToolbox(tools ...Tool) (*Toolbox, error) {
	if err := checkNames(&Params{Tools: tools}); err != nil {
		return nil, fmt.Errorf("agent: make a toolbox: %w", err)
	}
	b := &Toolbox{}
	b.caller.init(tools)
	b.caller.trace = (*Trace)(nil).tool
	b.caller.panicked = func(ctx context.Context, call ToolCall, value any, stack []byte) {
		slog.ErrorContext(ctx, "a tool panicked", "tool", call.Tool, "panic", clip.Text(fmt.Sprint(value), maxPanic), "stack", clip.Text(string(stack), maxPanic))
	}
	return b, nil
}

// Call calls the tool with the given name. arguments must be a JSON object that matches
// [Tool.Schema]. Nil means an empty object. Values of types that JSON lacks must have the form that
// the schema describes: bytes in base64, times in RFC 3339, durations such as "PT1H30M". The result
// is JSON. A result without a JSON form, such as a set, becomes a string with its Python form. A
// function of [WithApproval] receives a [ToolCall] with an empty Run and Step 0.
//
// An error is a [*ToolError] with the content that the code of a run would receive. When ctx ends,
// the context of the tool's function also ends, and Call returns without waiting for the function.
// If the function panics, Call returns an error without the value of the panic. The value is logged
// to [slog.Default] at level error.
func (b *Toolbox) Call(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	result, err := b.call(ctx, name, arguments)
	if err != nil {
		seen := errorSeen(nil, err)
		return nil, &seen
	}
	return result, nil
}

func (b *Toolbox) call(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	t := b.caller.tools[name]
	if t == nil {
		return nil, &ToolError{Type: "NameError", Message: fmt.Sprintf("there is no tool %q", clip.Text(name, maxToolName))}
	}
	if len(arguments) > maxExchange {
		return nil, errToolLimit("the arguments of %s have more than %d bytes", name, maxExchange)
	}
	given, err := t.argumentsOf(arguments)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, &argumentError{err})
	}
	v, err := b.caller.call(ctx, t, ToolCall{Tool: name, Arguments: given}, len(given.Bytes()))
	if err != nil {
		return nil, err
	}
	return resultJSON(v)
}

// resultJSON returns a tool's result as JSON.
func resultJSON(v state.Value) (json.RawMessage, error) {
	var natural any
	if err := v.Decode(&natural); err != nil {
		return nil, err
	}
	object, err := jsonOf(natural)
	if err != nil {
		object = v.String()
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // models read it
	if err := encoder.Encode(object); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// argumentsOf returns the arguments in the JSON object text, keyed by parameter name.
func (t Tool) argumentsOf(text json.RawMessage) (state.Value, error) {
	given := map[string]any{}
	if len(text) > 0 {
		v, err := state.FromJSON(text)
		if err != nil {
			return state.Value{}, err
		}
		if v.Kind() != state.KindDict {
			return state.Value{}, errors.New("they have to be a JSON object")
		}
		if err := v.Decode(&given); err != nil {
			return state.Value{}, err
		}
	}
	arguments := map[string]any{}
	for _, p := range t.parameters {
		value, ok := given[p.property]
		delete(given, p.property)
		if !ok || value == nil && !p.required && t.schema == nil {
			continue
		}
		value, err := fromJSON(p.schema, value)
		if err != nil {
			return state.Value{}, fmt.Errorf("%s: %w", p.property, err)
		}
		arguments[p.name] = value
	}
	for name := range given {
		return state.Value{}, fmt.Errorf("there is no parameter %.64q", name)
	}
	return state.NewValue(arguments)
}

// fromJSON converts strings and lists in value to types that JSON lacks. The schema was made from a
// Go type. fromJSON converts a string to bytes or a duration, or a list to a set, if the schema
// describes such a type.
func fromJSON(schema map[string]any, value any) (any, error) {
	switch value := value.(type) {
	case string:
		switch {
		case schema["contentEncoding"] == "base64":
			data, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return nil, fmt.Errorf("read base64: %w", err)
			}
			return data, nil
		case schema["format"] == "duration":
			return durationOf(value)
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		list := make([]any, len(value))
		for i, item := range value {
			var err error
			if list[i], err = fromJSON(items, item); err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
		}
		if schema["uniqueItems"] == true {
			return state.Set(list), nil
		}
		return list, nil
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		others, _ := schema["additionalProperties"].(map[string]any)
		object := make(map[string]any, len(value))
		for name, field := range value {
			inner, ok := properties[name].(map[string]any)
			if !ok {
				inner = others
			}
			var err error
			if object[name], err = fromJSON(inner, field); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		return object, nil
	}
	return value, nil
}

// durationOf parses a duration of ISO 8601 in hours, minutes and seconds.
func durationOf(text string) (time.Duration, error) {
	units, ok := strings.CutPrefix(text, "PT")
	d, err := time.ParseDuration(strings.ToLower(units))
	if !ok || err != nil {
		return 0, fmt.Errorf(`%.64q is not a duration in hours, minutes and seconds, such as "PT1H30M"`, text)
	}
	return d, nil
}
