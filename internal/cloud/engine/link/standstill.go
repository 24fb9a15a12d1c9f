package link

import (
	"context"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Standstill stops the processes of one sandbox and lets them run again. Calls take effect one after
// the other. Standstill is safe for concurrent use.
type Standstill struct {
	// In and Out track the connections that a freeze cuts: In into the sandbox, Out out of it. Out may
	// be nil.
	In  *Entrance
	Out *Access
	// Stop stops all processes of the sandbox, and returns the function that lets them run again.
	// After an error of Stop, the processes continue to run.
	Stop func(ctx context.Context) (resume func(context.Context) error, err error)

	done   <-chan struct{}
	turn   chan struct{}
	resume func(context.Context) error // lets the processes run again; nil while the processes run; guarded by turn
}

// NewStandstill returns the standstill of a running sandbox. done is closed when the sandbox ends.
// The caller sets the exported fields before the first call.
func NewStandstill(done <-chan struct{}) Standstill {
	return Standstill{done: done, turn: make(chan struct{}, 1)}
}

// Freeze stops the processes until [Standstill.Thaw], and cuts every connection of the sandbox.
// After an error, the processes continue to run, and connections are allowed. Errors include
// [engine.ErrGone].
func (s *Standstill) Freeze(ctx context.Context) error { return s.stop(ctx, true) }

// Hold stops the processes until [Standstill.Thaw]. It keeps the connections of the sandbox, and
// their data waits until Thaw. Hold returns the same errors as Freeze.
func (s *Standstill) Hold(ctx context.Context) error { return s.stop(ctx, false) }

func (s *Standstill) stop(ctx context.Context, cut bool) error {
	end, err := s.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	if cut {
		s.In.Shut() // before the processes stop, since the kernel would take connections for them
	}
	if s.resume == nil {
		resume, err := s.Stop(ctx)
		if s.isOver() {
			return engine.ErrGone
		}
		if err != nil {
			s.In.Open()
			return err
		}
		s.resume = resume
	}
	if cut && s.Out != nil {
		s.Out.Suspend() // after it, so that no running program sees a refused connection
	}
	return nil
}

// Thaw lets the processes run again, and allows connections. It does nothing if the processes already
// run.
func (s *Standstill) Thaw(ctx context.Context) error {
	end, err := s.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	if s.resume == nil {
		return nil
	}
	if s.Out != nil {
		s.Out.Restore()
	}
	if err := s.resume(ctx); err != nil {
		return err
	}
	s.resume = nil
	s.In.Open()
	return nil
}

// Turn waits until no other call freezes, thaws or saves the sandbox. Until the caller calls end,
// only the caller may freeze, thaw or save the sandbox. Errors are [engine.ErrGone] and the cause of
// ctx.
func (s *Standstill) Turn(ctx context.Context) (end func(), err error) {
	if s.isOver() {
		return nil, engine.ErrGone
	}
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-s.done:
		return nil, engine.ErrGone
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Last is called after the sandbox's end. It waits until the current call has ended its turn. After
// Last, no call gets a turn.
func (s *Standstill) Last() { s.turn <- struct{}{} }

// Stopped reports whether the processes are stopped. The caller must have the turn.
func (s *Standstill) Stopped() bool { return s.resume != nil }

func (s *Standstill) isOver() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
