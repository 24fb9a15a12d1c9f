package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/state"
)

// ConflictRule is the rule by which Begin handles a variable of Params.State that code in the
// sandbox changed or deleted since this handle last sent or pulled the variable.
type ConflictRule int

const (
	// KeepSandbox keeps the change made by code, if the state still has the value that was last sent or
	// pulled. If the state has another value by now, Begin sends the state's value.
	KeepSandbox ConflictRule = iota
	// Overwrite sets the variable to the state's value.
	Overwrite
	// FailOnConflict makes Begin return a [*ConflictError] and send nothing.
	FailOnConflict
)

// ConflictError reports variables that code has changed and that differ from the state's
// values. Call Pull to accept the changes, or choose another rule.
type ConflictError struct {
	// Names are the names of the variables, sorted.
	Names []string
}

func (e *ConflictError) Error() string {
	names := e.Names[:min(len(e.Names), 10)]
	return fmt.Sprintf("code changed %d variables that have other values in the state (%.500s): pull them first, or set OnConflict", len(e.Names), strings.Join(names, ", "))
}

// Change is a variable that code changed.
type Change struct {
	Name string
	// Kind and Size describe the new value. They are zero if Deleted is set.
	Kind    state.Kind
	Size    int64
	Deleted bool
}

// change is the kernel's report of a changed variable.
type change struct {
	Name    string     `py:"name"`
	Kind    state.Kind `py:"kind"`
	Size    int64      `py:"size"`
	Hash    string     `py:"hash"`
	Deleted bool       `py:"deleted"`
}

// Changed returns the changes that Pull would apply, without applying them. They are sorted by
// name and include new variables.
func (r *Run) Changed(ctx context.Context) ([]Change, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	r.context.mu.Lock()
	defer r.context.mu.Unlock()
	reply, err := r.context.ask(ctx, r.host, pyshim.Call("changed", state.DefaultMaxBytes))
	if err != nil {
		return nil, r.redact.err(r.failed(ctx, fmt.Errorf("agent: list the changes of the state: %w", err)))
	}
	changes := make([]Change, 0, len(reply.Changed))
	for _, c := range reply.Changed {
		if !c.Deleted && state.CheckName(c.Name) != nil {
			continue // Pull leaves it out, too
		}
		changes = append(changes, Change{c.Name, c.Kind, c.Size, c.Deleted})
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return changes, nil
}

// Delete removes a variable from the sandbox, but not from a State. If there is no such variable,
// the error wraps [state.ErrNotFound].
func (r *Run) Delete(ctx context.Context, name string) error {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := r.context.delete(ctx, r.host, name); err != nil {
		return r.redact.err(r.failed(ctx, fmt.Errorf("agent: delete %.64q: %w", name, err)))
	}
	return nil
}

func (c *runContext) delete(ctx context.Context, host runHost, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, err := c.ask(ctx, host, pyshim.Call("delete", name))
	if err != nil {
		return err
	}
	if !reply.Found {
		return state.ErrNotFound
	}
	delete(c.known, name)
	c.token = reply.Token
	return nil
}

// resolve applies a rule to the variables that code has changed. It removes a variable from c's
// record of known variables if the state's value must be sent again.
func (c *runContext) resolve(ctx context.Context, host runHost, st *state.State, rule ConflictRule) error {
	if rule == KeepSandbox || len(c.known) == 0 {
		return nil
	}
	reply, err := c.call(ctx, host, pyshim.Call("changed", state.DefaultMaxBytes))
	if err != nil {
		return err
	}
	held := map[string]state.Hash{}
	for _, entry := range st.Entries() {
		held[entry.Name] = entry.Hash
	}
	var conflict ConflictError
	for _, x := range reply.Changed {
		if hash, ok := held[x.Name]; ok && hash.String() != x.Hash {
			conflict.Names = append(conflict.Names, x.Name)
			if rule == Overwrite {
				delete(c.known, x.Name)
			}
		}
	}
	if rule == FailOnConflict && conflict.Names != nil {
		slices.Sort(conflict.Names)
		return &conflict
	}
	return nil
}
