package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/state"
)

// Tool is a function of this program that code in a sandbox may call by its name. It runs in
// this program, with this program's rights. Only arguments and results are transferred.
// [NewTool], [ToolFromSchema] and [NewManaged] create tools. See [Params].Tools.
type Tool struct {
	name, doc  string
	parameters []toolParameter
	returns    pythonType
	schema     json.RawMessage // set if the tool was made from a schema
	call       func(context.Context, state.Value) (state.Value, error)
	limits     ToolLimits
	approve    func(context.Context, ToolCall) error
}

// ToolLimits contains the limits of a tool's calls in one run, or in one [Toolbox]. A zero field
// sets no limit.
type ToolLimits struct {
	// MaxCalls limits the number of calls; further calls fail.
	MaxCalls int
	// MaxConcurrency limits the concurrent calls; further calls wait.
	MaxConcurrency int
	// Timeout limits the duration of a call after its approval. The call then fails, even if
	// the function ignores the end of its context.
	Timeout time.Duration
	// MaxArgumentBytes and MaxResultBytes limit the encoded bytes of the arguments and of the
	// result. They are at most 64 MiB.
	MaxArgumentBytes, MaxResultBytes int64
}

// ToolCall describes a tool call. Functions that approve or trace calls receive it.
type ToolCall struct {
	// Run and Step identify the run and the step of the call. They are zero for a call of a
	// [Toolbox].
	Run  string
	Step int
	// Tool is the name of the tool.
	Tool string
	// Arguments is a dict of the arguments, by parameter name.
	Arguments state.Value
}

// ToolError is an error that a tool returns in order to set the attributes of the exception in the
// sandbox. If a tool returns any other error, code receives these attributes: the text, the Go type
// (without the wrapping of fmt.Errorf), and whether the error is [sandbox.ErrRetryable].
type ToolError struct {
	// Type is the kind of error, a name of your choice.
	Type    string
	Message string
	// Retryable reports whether the same call may succeed later.
	Retryable bool
}

func (e *ToolError) Error() string { return e.Message }

// Is reports whether target is [sandbox.ErrRetryable] and e.Retryable is set.
func (e *ToolError) Is(target error) bool { return e.Retryable && target == api.ErrRetryable }

// ToolOption is an option of [NewTool], [ToolFromSchema] and [NewManaged].
type ToolOption func(*Tool)

// WithToolLimits sets the limits of the tool.
func WithToolLimits(l ToolLimits) ToolOption { return func(t *Tool) { t.limits = l } }

// WithApproval sets a function that is called before each call of the tool. If approve returns an
// error, the call is refused, and the code receives the text of the error. approve may take long,
// because the code waits. The context of approve ends with the step. If approve returns after the
// end of the step, the call is not made. approve is called from several goroutines.
func WithApproval(approve func(context.Context, ToolCall) error) ToolOption {
	return func(t *Tool) { t.approve = approve }
}

// NewTool makes a tool from a function. The parameters of the tool are the exported fields of the
// struct In. The tag `py:"name"` sets the name of a parameter. Without this tag, the tag
// `json:"name"` sets it. The tag `doc:"…"` sets the description of the parameter. A parameter is
// optional if its field is a pointer or has the tag `py:",omitempty"`. An optional parameter may be
// missing or None. Its field then has the zero value. Required parameters come first, in the order
// of their fields, and then the optional parameters, in the order of their fields. Package state
// defines how values are converted. If the type of an argument does not match its field, or if
// there are too many or too few arguments, the code receives a TypeError. If Out is struct{}, the
// result is None.
//
// The context of a call ends with the step. fn should then return. Until fn returns, its goroutine
// stays, and the run's Close waits for it. An error of fn becomes an exception in the code. A
// [*ToolError] sets the attributes of this exception. The sandbox receives the text of the error,
// so the text must not contain anything secret (see also Params.Redact). A panic of fn becomes an
// exception that only reports that there was a panic. The value and the stack of the panic are
// written to Params.Audit and, at level error, to the logger of [sandbox.WithLogger]. If no such
// logger is set, or it is disabled for errors, the value and the stack are logged to
// [slog.Default].
//
// NewTool returns an error if name or the name of a parameter is not a valid Python name, if a type
// has no Python form, or if an option is nil. [MustTool] is for tools whose name, types and options
// are fixed in the program's source.
func NewTool[In, Out any](name, doc string, fn func(context.Context, In) (Out, error), opts ...ToolOption) (Tool, error) {
	t, err := newTool(name, doc, opts)
	if err != nil {
		return Tool{}, err
	}
	if t.parameters, err = parametersOf(reflect.TypeFor[In]()); err == nil {
		t.returns, err = returnOf(reflect.TypeFor[Out]())
	}
	if err != nil {
		return Tool{}, fmt.Errorf("agent: the function of the tool %s: %w", name, err)
	}
	nothing := t.returns.annotation == "None"
	t.call = func(ctx context.Context, arguments state.Value) (state.Value, error) {
		var in In
		if err := arguments.Decode(&in); err != nil {
			return state.Value{}, &argumentError{err}
		}
		out, err := fn(ctx, in)
		if err != nil || nothing {
			return state.Value{}, err
		}
		return resultValue(out)
	}
	return t, nil
}

// MustTool is like [NewTool], but panics on an error.
func MustTool[In, Out any](name, doc string, fn func(context.Context, In) (Out, error), opts ...ToolOption) Tool {
	return orPanic(NewTool(name, doc, fn, opts...))
}

func orPanic(t Tool, err error) Tool {
	if err != nil {
		panic(err)
	}
	return t
}

// newTool returns a tool whose function is not set yet.
func newTool(name, doc string, opts []ToolOption) (Tool, error) {
	t := Tool{name: name, doc: strings.TrimSpace(doc)}
	if err := state.CheckName(name); err != nil {
		return Tool{}, fmt.Errorf("agent: the name of a tool: %w", err)
	}
	if name == finalAnswer {
		return Tool{}, errors.New("agent: the name of a tool: every run has a final_answer of its own")
	}
	for i, opt := range opts {
		if opt == nil {
			return Tool{}, fmt.Errorf("agent: the tool %s: option %d is nil: leave it out", name, i+1)
		}
		opt(&t)
	}
	return t, nil
}

// resultValue converts the result of a tool's function to the value that the code receives.
func resultValue(out any) (state.Value, error) {
	var v state.Value
	var err error
	if text, ok := out.(json.RawMessage); ok {
		v, err = state.FromJSON(text)
	} else {
		v, err = state.NewValue(out)
	}
	if err != nil {
		return state.Value{}, &ToolError{Type: "ResultError", Message: "the tool's result has no Python form: " + err.Error()}
	}
	return v, nil
}

// argumentError becomes a TypeError in the code.
type argumentError struct{ err error }

func (e *argumentError) Error() string {
	if wrong, ok := errors.AsType[*state.DecodeError](e.err); ok && wrong.Path != "" { // the reader of the text writes Python
		return fmt.Sprintf("wrong arguments: %.256s: %s", wrong.Path, wrong.Reason)
	}
	return "wrong arguments: " + e.err.Error()
}
func (e *argumentError) Unwrap() error { return e.err }

// Name returns the name by which code calls the tool.
func (t Tool) Name() string { return t.name }

// Signature returns the signature of the tool, such as
// "search(query: str, limit: int = None) -> list[str]".
func (t Tool) Signature() string {
	list := make([]string, len(t.parameters))
	for i, p := range t.parameters {
		list[i] = p.name + ": " + p.annotation
		if !p.required {
			list[i] += " = None"
		}
	}
	return t.name + "(" + strings.Join(list, ", ") + ") -> " + t.returns.annotation
}

// Description returns the text given to NewTool, without surrounding white space and invisible
// characters.
func (t Tool) Description() string { return visible(t.doc) }

// visible returns text without invisible characters. Such characters could hide a part of the text
// from people, or control a terminal. They must be removed because a description may come from
// another program.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r) && r != '\r':
			return ' '
		}
		return -1
	}, text)
}

// Doc returns the docstring: the description, the parameters and the result.
func (t Tool) Doc() string {
	var b strings.Builder
	b.WriteString(t.doc)
	if len(t.parameters) > 0 {
		b.WriteString("\n\nArgs:")
	}
	for _, p := range t.parameters {
		fmt.Fprintf(&b, "\n    %s (%s", p.name, p.detail)
		if !p.required {
			b.WriteString(", optional")
		}
		b.WriteString(")")
		if p.doc != "" {
			b.WriteString(": " + p.doc)
		}
	}
	if t.returns.annotation != "None" {
		b.WriteString("\n\nReturns:\n    " + t.returns.detail)
	}
	return visible(b.String())
}

// Prompt returns the tool as a Python stub, for the prompt of a model.
func (t Tool) Prompt() string {
	doc := strings.ReplaceAll(strings.ReplaceAll(t.Doc(), `\`, `\\`), `"""`, `\"\"\"`)
	return "def " + t.Signature() + ":\n    \"\"\"" + strings.ReplaceAll(doc, "\n", "\n    ") + "\n    \"\"\"\n"
}

// Schema returns the JSON Schema of the arguments.
func (t Tool) Schema() json.RawMessage {
	if t.schema != nil {
		return slices.Clone(t.schema)
	}
	properties, required := map[string]any{}, []string{}
	for _, p := range t.parameters {
		schema := map[string]any{}
		for k, v := range p.schema {
			schema[k] = v
		}
		if p.doc != "" {
			schema["description"] = p.doc
		}
		properties[p.name] = schema
		if p.required {
			required = append(required, p.name)
		}
	}
	text, err := json.Marshal(map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
	if err != nil {
		panic(err) // strings, maps and slices can always be encoded
	}
	return text
}

// spec returns the description of the tool for the kernel.
func (t Tool) spec() map[string]any {
	parameters := make([]map[string]any, len(t.parameters))
	for i, p := range t.parameters {
		parameters[i] = map[string]any{"name": p.name, "type": p.annotation, "required": p.required}
	}
	return map[string]any{
		"name": t.name, "doc": t.Doc(), "signature": t.Signature(), "parameters": parameters, "returns": t.returns.annotation,
	}
}

// check returns an error if the names of the arguments do not match the tool's parameters.
func (t Tool) check(arguments state.Value) error {
	if arguments.Opaque() {
		var natural any
		_ = arguments.Decode(&natural)
		return &argumentError{fmt.Errorf("%s: convert it to str, numbers, lists and dicts", opaqueIn(natural))}
	}
	var given map[string]state.Value
	if err := arguments.Decode(&given); err != nil {
		return &argumentError{err}
	}
	for _, p := range t.parameters {
		if _, ok := given[p.name]; !ok && p.required {
			return &argumentError{fmt.Errorf("%q is missing", p.name)}
		}
		delete(given, p.name)
	}
	for name := range given {
		return &argumentError{fmt.Errorf("there is no parameter %.64q", name)}
	}
	return nil
}

// opaqueIn describes the first argument that has no Go form, and gives the reason. It searches the
// arguments in the order of their names.
func opaqueIn(arguments any) string {
	switch arguments := arguments.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(arguments)) {
			if o, ok := arguments[name].(state.Opaque); ok {
				return fmt.Sprintf("%.64q, a %.100s, %s", name, o.Type, whyOpaque(o))
			}
		}
	case state.Opaque:
		return "the value " + whyOpaque(arguments)
	}
	return "an argument cannot be sent"
}

func whyOpaque(o state.Opaque) string {
	if o.Reason == "" {
		return "cannot be sent"
	}
	return fmt.Sprintf("cannot be sent: %.200s", o.Reason)
}

// errToolLimit returns the error of a call that exceeds a limit.
func errToolLimit(format string, arguments ...any) error {
	return &ToolError{Type: "LimitError", Message: fmt.Sprintf(format, arguments...)}
}

// errorSeen converts an error to the form that code in the sandbox receives.
func errorSeen(redact *redactor, err error) ToolError {
	seen := ToolError{Message: redact.short(err.Error(), maxToolError)}
	if _, ok := errors.AsType[*argumentError](err); ok {
		seen.Type = "TypeError"
		return seen
	}
	if e, ok := errors.AsType[*ToolError](err); ok && e.Type != "" {
		seen.Type, seen.Retryable = redact.short(e.Type, maxToolError), e.Retryable
		return seen
	}
	name := typeOfError(err)
	switch {
	case errors.Is(err, ErrBudget):
		name = "BudgetError"
	case errors.Is(err, context.DeadlineExceeded):
		name = "TimeoutError"
	case errors.Is(err, context.Canceled):
		name = "CancelledError"
	}
	seen.Type, seen.Retryable = name, errors.Is(err, api.ErrRetryable)
	return seen
}

// typeOfError returns the name of an error's Go type, without the wrapping of fmt.Errorf.
func typeOfError(err error) string {
	for reflect.TypeOf(err) == wrapped {
		err = errors.Unwrap(err)
	}
	return strings.TrimPrefix(reflect.TypeOf(err).String(), "*")
}

var wrapped = reflect.TypeOf(fmt.Errorf("%w", io.EOF))

// maxToolError bounds the bytes of an error's text that the code receives.
const maxToolError = 4 << 10
