package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// runs contains those contexts of a sandbox in which a run has begun. The zero value is ready to
// use.
type runs struct {
	mu       sync.Mutex
	contexts map[string]*runContext
}

// runContext is this program's record of the variables in a kernel. mu prevents calls to the kernel
// from overlapping.
type runContext struct {
	id   string
	busy bool // a run uses the context; guarded by runs.mu

	mu sync.Mutex
	// token identifies the kernel. While the token stays the same, the map known is valid.
	token     string
	directory string
	known     map[string]knownValue
}

// knownValue describes the latest value that was sent or pulled for a variable.
type knownValue struct {
	hash  state.Hash
	blobs []state.Hash
}

func knownOf(entry state.Entry) knownValue {
	k := knownValue{hash: entry.Hash}
	_, blobs := entry.Value.Detached()
	for hash := range blobs {
		k.blobs = append(k.blobs, hash)
	}
	return k
}

// knownBlobs returns the blobs that the kernel is known to have. For each blob, it returns the name
// of a variable that contains the blob.
func (c *runContext) knownBlobs() map[state.Hash]string {
	held := map[state.Hash]string{}
	for name, k := range c.known {
		for _, hash := range k.blobs {
			held[hash] = name
		}
	}
	return held
}

func (rs *runs) begin(ctx context.Context, host runHost, id string, p Params) (*Run, error) {
	rs.mu.Lock()
	c := rs.contexts[id]
	if c == nil {
		c = &runContext{id: id}
		if rs.contexts == nil {
			rs.contexts = map[string]*runContext{}
		}
		rs.contexts[id] = c
	}
	if c.busy {
		rs.mu.Unlock()
		return nil, fmt.Errorf("%w: %.64s", ErrContextBusy, id)
	}
	c.busy = true
	rs.mu.Unlock()
	r, err := newRun(rs, host, c, p)
	if err == nil {
		err = r.prepare(ctx)
	}
	if err != nil {
		rs.release(c)
		return nil, fmt.Errorf("agent: begin a run: %w", err)
	}
	return r, nil
}

func (rs *runs) release(c *runContext) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	c.busy = false
}

// answer is the result of a function of the run's modules in the kernel.
type answer struct {
	Token     string   `py:"token"`
	Directory string   `py:"directory"`
	Found     bool     `py:"found"`
	Frame     []byte   `py:"frame"`
	File      string   `py:"file"`
	Head      int      `py:"head"`
	Size      int      `py:"size"`
	Deleted   []string `py:"deleted"`
	Missing   []string `py:"missing"`
	Changed   []change `py:"changed"`
}

// send sets the kernel's variables to the values of st.
func (c *runContext) send(ctx context.Context, host runHost, st *state.State, rule ConflictRule) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	hello, err := c.call(ctx, host, pyshim.Call("begin"))
	if failed, ok := errors.AsType[*kernelCallError](err); ok && pyshim.NotInstalled(failed.name, failed.value) {
		if err := c.install(ctx, host, pyshim.Install()); err != nil {
			return err
		}
		hello, err = c.call(ctx, host, pyshim.Call("begin"))
	}
	if err != nil {
		return err
	}
	if hello.Token != c.token {
		// The kernel was replaced, or another handle had a run in between.
		c.token, c.known = hello.Token, map[string]knownValue{}
	}
	c.directory = hello.Directory
	if st == nil {
		return nil
	}
	if err := c.resolve(ctx, host, st, rule); err != nil {
		return err
	}
	changed := c.unsent(st)
	if len(changed) == 0 {
		return nil
	}
	for _, entry := range changed {
		if entry.Value.Opaque() {
			return fmt.Errorf("the variable %q holds a value that exists only in the kernel it was pulled from: set or delete it", entry.Name)
		}
	}
	loaded, err := c.load(ctx, host, changed, c.knownBlobs())
	if err == nil && len(loaded.Missing) > 0 {
		// Code has changed the variable with the blobs.
		loaded, err = c.load(ctx, host, changed, nil)
	}
	if err != nil {
		return err
	}
	for _, entry := range changed {
		c.known[entry.Name] = knownOf(entry)
	}
	c.token = loaded.Token
	return nil
}

// unsent returns the variables of st that the kernel is not known to have. A nil st has no
// variables.
func (c *runContext) unsent(st *state.State) []state.Entry {
	if st == nil {
		return nil
	}
	return slices.DeleteFunc(st.Entries(), func(entry state.Entry) bool { return c.known[entry.Name].hash == entry.Hash })
}

// load sets variables in the kernel to the values of entries. It does not send the blobs in held,
// because the kernel already has them.
func (c *runContext) load(ctx context.Context, host runHost, entries []state.Entry, held map[state.Hash]string) (answer, error) {
	frame, err := frameOf(entries, held)
	if err != nil {
		return answer{}, err
	}
	name := jupyter.NewID()
	if err := host.upload(ctx, path.Join(c.directory, name), frame); err != nil {
		return answer{}, err
	}
	// From here on the kernel may have the new values, even if the call fails.
	c.token = ""
	return c.call(ctx, host, pyshim.Call("load", name))
}

func (c *runContext) get(ctx context.Context, host runHost, name string) (state.Value, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, err := c.ask(ctx, host, pyshim.Call("get", name, state.DefaultMaxBytes))
	if err != nil {
		return state.Value{}, err
	}
	if !reply.Found {
		return state.Value{}, state.ErrNotFound
	}
	var values []state.Value
	err = c.receive(ctx, host, reply, func(_ string, v state.Value) error { values = append(values, v); return nil })
	if err == nil && len(values) != 1 {
		err = errFrame
	}
	if err != nil {
		return state.Value{}, err
	}
	if reply.File != "" {
		_, err = c.call(ctx, host, pyshim.Call("acknowledge", ""))
	}
	return values[0], err
}

func (c *runContext) pull(ctx context.Context, host runHost, st *state.State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, err := c.ask(ctx, host, pyshim.Call("changes", state.DefaultMaxBytes))
	if err != nil {
		return err
	}
	if reply.Frame == nil && reply.File == "" {
		return nil
	}
	changed := state.New()
	if err := c.receive(ctx, host, reply, func(name string, v state.Value) error {
		err := changed.Set(name, v)
		if _, ok := errors.AsType[*state.NameError](err); ok {
			return nil // code may reuse the name of a builtin, a state may not
		}
		return err
	}); err != nil {
		return err
	}
	st.Merge(changed)
	for _, name := range reply.Deleted {
		st.Delete(name)
	}
	if _, err := c.call(ctx, host, pyshim.Call("acknowledge", reply.Token)); err != nil {
		return err
	}
	c.token = reply.Token
	for _, entry := range changed.Entries() {
		c.known[entry.Name] = knownOf(entry)
	}
	for _, name := range reply.Deleted {
		delete(c.known, name)
	}
	return nil
}

// receive reads the frame of a reply, and calls the function each once per variable in the frame.
func (c *runContext) receive(ctx context.Context, host runHost, reply answer, each func(name string, v state.Value) error) error {
	if reply.File == "" {
		return readFrame(bytes.NewReader(reply.Frame), reply.Head, len(reply.Frame), each)
	}
	// The kernel names the file. Only a file in the run's own directory is read.
	r, err := host.open(ctx, path.Join(c.directory, path.Base(reply.File)))
	if err != nil {
		return err
	}
	defer r.Close()
	return readFrame(r, reply.Head, reply.Size, each)
}

func (c *runContext) install(ctx context.Context, host runHost, code string) error {
	reply, err := host.execute(ctx, c.id, jupyter.ExecuteRequest{Code: code, Silent: true}, kernelconn.Handler{})
	if err == nil && reply.Status != "ok" {
		err = &kernelCallError{reply.Name, reply.Value}
	}
	return err
}

// call evaluates one expression in the kernel, silently. It decodes the answer of the run's
// modules.
func (c *runContext) call(ctx context.Context, host runHost, expression string) (answer, error) {
	doc, err := c.evaluate(ctx, host, expression)
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, state.Unmarshal(doc, &a)
}

// evaluate evaluates an expression and returns its value, encoded as a document of package
// state.
func (c *runContext) evaluate(ctx context.Context, host runHost, expression string) ([]byte, error) {
	reply, err := c.request(ctx, host, map[string]string{valueKey: expression})
	if err != nil {
		return nil, err
	}
	return expressionValue(reply, valueKey)
}

// ask is like [runContext.call], for use during a run. If the modules are missing, its error says
// that the run's kernel was replaced.
func (c *runContext) ask(ctx context.Context, host runHost, expression string) (answer, error) {
	a, err := c.call(ctx, host, expression)
	return a, lost(err)
}

func lost(err error) error {
	if failed, ok := errors.AsType[*kernelCallError](err); ok && pyshim.NotInstalled(failed.name, failed.value) {
		return fmt.Errorf("the run began with another kernel: %w", sandbox.ErrKernelDied)
	}
	return err
}

// kernelCallError is an exception of the run's modules in the kernel.
type kernelCallError struct{ name, value string }

func (e *kernelCallError) Error() string {
	return fmt.Sprintf("the kernel answered %.64s: %.512s", e.name, e.value)
}

// expressionValue returns the value of an expression, encoded as a document of package state.
func expressionValue(reply jupyter.ExecuteReply, key string) ([]byte, error) {
	if reply.Status != "ok" {
		return nil, &kernelCallError{reply.Name, reply.Value}
	}
	x := reply.UserExpressions[key]
	if x.Status != "ok" {
		return nil, &kernelCallError{x.Name, x.Value}
	}
	var text string
	if err := json.Unmarshal(x.Data[pyshim.MIME], &text); err != nil {
		return nil, fmt.Errorf("the kernel's answer has no %s: is it a Python kernel? %w", pyshim.MIME, err)
	}
	return []byte(text), nil
}
