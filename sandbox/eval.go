package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/state"
)

// MaxEvalBytes limits the size of the value that [Eval] decodes, in the encoding of package
// state. For larger values, write a file, or use package agent.
const MaxEvalBytes = 16 << 20

// Eval evaluates one Python expression in the sandbox's default context and returns its value
// as a T, decoded by the rules of package state. Eval supports sets, times, arrays, data frames and
// integers of any size. [Execution.Decode] does not, because it uses JSON and text.
//
//	rows, err := sandbox.Eval[int](ctx, sb, "len(df)")
//
// If the expression raises an exception, the error is an [*ExecutionError]. A statement, a magic
// or await causes a SyntaxError, which is also an [*ExecutionError]. If the value is not a T, has
// no Go form, or has more than [MaxEvalBytes] bytes, the error is a [*state.DecodeError]. A T of
// [state.Opaque] or any can also receive a value without a Go form. If Eval returns an error, the
// result is the zero value of T.
//
// The output of the expression is dropped. Eval does not increase the execution count, does not
// enter the history, and does not set "_".
//
// Like [Sandbox.RunCode], Eval waits until no other code runs in the code context, interrupts the
// code when ctx ends, resumes a paused sandbox, and returns the errors of RunCode. Without the
// kernel's websocket the error is [ErrNeedsWebsocket]. The first call places Python modules in the
// kernel's memory. Calls may be concurrent.
func Eval[T any](ctx context.Context, sb *Sandbox, expression string) (T, error) {
	var value, none T
	doc, err := sb.eval(ctx, expression)
	if err != nil {
		return none, err
	}
	if err := state.Unmarshal(doc, &value); err != nil {
		return none, fmt.Errorf("sandbox: evaluate an expression in %s: %w", sb.ID(), err)
	}
	return value, nil
}

// eval returns the value of an expression, encoded as a document of package state.
func (sb *Sandbox) eval(ctx context.Context, expression string) ([]byte, error) {
	if !utf8.ValidString(expression) {
		return nil, fmt.Errorf("sandbox: evaluate an expression: %w: it is not UTF-8", api.ErrInvalidArgument)
	}
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	call := pyshim.Call("evaluate", expression, MaxEvalBytes)
	doc, err := sb.evalCall(ctx, call)
	if failed, ok := errors.AsType[*ExecutionError](err); ok && pyshim.NotInstalled(failed.Name, failed.Value) {
		if _, err := sb.silent(ctx, jupyter.ExecuteRequest{Code: pyshim.Install()}); err != nil {
			return nil, err
		}
		doc, err = sb.evalCall(ctx, call)
	}
	return doc, err
}

// evalCall evaluates a Python expression whose value is a document of package state.
func (sb *Sandbox) evalCall(ctx context.Context, expression string) ([]byte, error) {
	const key = "value"
	reply, err := sb.silent(ctx, jupyter.ExecuteRequest{UserExpressions: map[string]string{key: expression}})
	if err != nil {
		return nil, err
	}
	value := reply.UserExpressions[key]
	if value.Status != "ok" {
		return nil, newExecutionError(value.Name, value.Value, strings.Join(value.Traceback, "\n"))
	}
	var text string
	if err := json.Unmarshal(value.Data[pyshim.MIME], &text); err != nil {
		return nil, fmt.Errorf("sandbox: evaluate an expression in %s: the kernel's answer has no %s: %w", sb.ID(), pyshim.MIME, err)
	}
	return []byte(text), nil
}

// silent runs a request in the default context without increasing the execution count. Its
// error reports whether the context has lost its variables.
func (sb *Sandbox) silent(ctx context.Context, request jupyter.ExecuteRequest) (jupyter.ExecuteReply, error) {
	request.Silent = true
	_, err := sb.code.websocket(ctx, "")
	var reply jupyter.ExecuteReply
	if err == nil {
		reply, err = sb.code.kernels.Execute(ctx, kernelconn.Call{Request: request})
	}
	switch {
	case err != nil:
		return reply, sb.failed(ctx, "evaluate an expression", err)
	case reply.Status != "ok":
		return reply, newExecutionError(reply.Name, reply.Value, strings.Join(reply.Traceback, "\n"))
	}
	return reply, nil
}
