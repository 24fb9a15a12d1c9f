package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// Keys of the expressions in a request to the kernel. The kernel evaluates the expressions in the
// order of their keys: beginKey, [guardKey], toolsKey.
const (
	beginKey = "begin"
	toolsKey = "tools"
)

// toolsAnswer is the result of a function of the tools module.
type toolsAnswer struct {
	Known   bool     `py:"known"`
	Taken   []string `py:"taken"`
	Placed  bool     `py:"placed"`
	Refused []string `py:"refused"`
}

// toolSpecs returns the description of the tools for the kernel, and a key that identifies this
// description. The kernel keeps the last description under its key.
func (r *Run) toolSpecs() (key, specs string, err error) {
	list := []map[string]any{finalTool.spec()}
	for _, t := range r.params.Tools {
		list = append(list, t.spec())
	}
	text, err := json.Marshal(list)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), string(text), err
}

// prepare sends the run's state, guard and tools to a kernel.
func (r *Run) prepare(ctx context.Context) error {
	key, specs, err := r.toolSpecs()
	if err != nil {
		return err
	}
	if done, err := r.again(ctx, key); done || err != nil {
		return err
	}
	if err := r.context.send(ctx, r.host, r.params.State, r.params.OnConflict); err != nil {
		return err
	}
	if r.guard != nil {
		if err := r.context.arm(ctx, r.host, r.guard); err != nil {
			return err
		}
	}
	if err := r.placeTools(ctx, key, specs); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		r.leave(ctx)
		return err
	}
	return nil
}

// again prepares a kernel with one request. This is possible if the kernel already has the modules,
// the state and the description of the tools from an earlier run. For any other kernel, again
// returns false.
func (r *Run) again(ctx context.Context, key string) (done bool, err error) {
	c := r.context
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == "" || r.params.OnConflict != KeepSandbox || len(c.unsent(r.params.State)) > 0 {
		return false, nil
	}
	expressions := map[string]string{
		beginKey: pyshim.Call("begin"), toolsKey: pyshim.CallTools("begin", key, r.params.Limits.MaxMemoryBytes, ""),
	}
	if r.guard != nil {
		text, err := json.Marshal(r.guard)
		if err != nil {
			return false, err
		}
		expressions[guardKey] = pyshim.CallGuard("arm", string(text))
	}
	reply, err := c.request(ctx, r.host, expressions)
	if err != nil {
		return false, err
	}
	var hello answer
	var tools toolsAnswer
	armed := error(nil)
	if r.guard != nil {
		_, armed = expressionValue(reply, guardKey)
	}
	if answered(reply, beginKey, &hello) != nil || hello.Token != c.token || armed != nil ||
		answered(reply, toolsKey, &tools) != nil || !tools.Known || len(tools.Taken) > 0 {
		// prepare repeats the steps one by one and finds the fault
		_, err := c.request(ctx, r.host, map[string]string{toolsKey: pyshim.CallTools("end")})
		return false, err
	}
	c.directory = hello.Directory
	return true, nil
}

// placeTools makes the tools callable in the kernel, and limits the memory of the kernel.
func (r *Run) placeTools(ctx context.Context, key, specs string) error {
	var answer toolsAnswer
	for _, text := range []string{"", specs} {
		reply, err := r.context.request(ctx, r.host, map[string]string{
			toolsKey: pyshim.CallTools("begin", key, r.params.Limits.MaxMemoryBytes, text),
		})
		if err == nil {
			err = answered(reply, toolsKey, &answer)
		}
		if err != nil {
			return err
		}
		if answer.Known {
			break
		}
	}
	if len(answer.Taken) > 0 {
		return fmt.Errorf("the tool %.64q has the name of a variable that is in the context already: delete that (RunCode: del %[1]s), or rename the tool", answer.Taken[0])
	}
	return nil
}

// maxRefused bounds the number of refused calls that a kernel may report. The kernel does not
// record more refused calls than this.
const maxRefused = 1000

// leave removes the tools and the guard from the kernel. It records the calls that the kernel
// refused because no step was running. It ignores errors, because a kernel that does not answer has
// already lost the tools and the guard, or loses them when the next run begins.
func (r *Run) leave(ctx context.Context) {
	expressions := map[string]string{toolsKey: pyshim.CallTools("end")}
	if r.guard != nil {
		expressions[guardKey] = pyshim.CallGuard("disarm")
	}
	reply, err := r.context.request(ctx, r.host, expressions)
	var tools toolsAnswer
	if err != nil || answered(reply, toolsKey, &tools) != nil {
		return
	}
	for _, name := range tools.Refused[:min(len(tools.Refused), maxRefused)] {
		r.log.tool(ctx, 0, toolRecord{Name: r.redact.short(name, maxToolName), Error: "it was called between steps"})
	}
}

// wasCut records that the code of a step was interrupted. late reports whether the code ran longer
// than StepTimeout.
func (r *Run) wasCut(step int, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut, r.late = step, late
}

// reportCut waits until interrupted code has ended. It then fetches the guard's report on this
// code, and writes the report to the audit. Without reportCut, the next step would receive the
// report. replaced reports whether the run's kernel was replaced.
func (r *Run) reportCut(ctx context.Context) (replaced bool, err error) {
	r.mu.Lock()
	n := r.cut
	r.mu.Unlock()
	if n == 0 {
		return false, nil
	}
	expressions := map[string]string{toolsKey: pyshim.CallTools("placed")}
	if r.guard != nil {
		expressions[guardKey] = pyshim.CallGuard("report")
	}
	reply, err := r.context.request(ctx, r.host, expressions)
	if err != nil && !errors.Is(err, sandbox.ErrKernelDied) {
		return false, err
	}
	var tools toolsAnswer
	replaced = err != nil || answered(reply, toolsKey, &tools) != nil || !tools.Placed
	r.mu.Lock()
	r.cut, r.died = 0, replaced
	r.mu.Unlock()
	var report guardReport
	if r.guard != nil && answered(reply, guardKey, &report) == nil {
		report.bound(r.redact)
		r.log.cut(n, report)
	}
	return replaced, nil
}

// request evaluates expressions in the kernel, silently.
func (c *runContext) request(ctx context.Context, host runHost, expressions map[string]string) (jupyter.ExecuteReply, error) {
	return host.execute(ctx, c.id, jupyter.ExecuteRequest{Silent: true, UserExpressions: expressions}, kernelconn.Handler{})
}

// answered decodes the value of one expression of a reply.
func answered(reply jupyter.ExecuteReply, key string, into any) error {
	doc, err := expressionValue(reply, key)
	if err != nil {
		return err
	}
	return state.Unmarshal(doc, into)
}
