package kernelconn

import (
	"context"
	"fmt"
)

// shut closes the gate of a context. Until open is called, no code starts in this context over any
// connection. Otherwise the kernel, which is about to end, would lose the code. If the gate is
// already closed, shut waits until it is open.
func (ks *Kernels) shut(ctx context.Context, id string) (open func(), err error) {
	for {
		ks.mu.Lock()
		gate := ks.ending[id]
		if gate == nil {
			gate = make(chan struct{})
			ks.ending[id] = gate
			ks.mu.Unlock()
			return func() {
				ks.mu.Lock()
				defer ks.mu.Unlock()
				delete(ks.ending, id)
				close(gate)
			}, nil
		}
		ks.mu.Unlock()
		if err := pass(ctx, gate); err != nil {
			return nil, err
		}
	}
}

// waitAtGate waits while a context is being ended.
func (ks *Kernels) waitAtGate(ctx context.Context, id string) error {
	for {
		ks.mu.Lock()
		gate := ks.ending[id]
		ks.mu.Unlock()
		if gate == nil {
			return nil
		}
		if err := pass(ctx, gate); err != nil {
			return err
		}
	}
}

// pass waits until a gate is open.
func pass(ctx context.Context, gate <-chan struct{}) error {
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("its context is being ended: %w", context.Cause(ctx))
	}
}
