package lifecycle

import "context"

// maxWaits bounds the number of transitions for which a call waits.
const maxWaits = 3

// transition is a change of a sandbox's state that takes time. It continues even if its caller
// stops waiting, because other callers may wait for it.
type transition struct {
	done   chan struct{}
	cancel context.CancelFunc // ends the transition early, because the sandbox must end
	err    error              // error of the transition; set before done is closed
}

// handle handles an event of a sandbox as table defines. If the reply is act, handle calls f with
// the lock held. If f returns a transition, handle waits for its end.
func (r *Registry) handle(ctx context.Context, id string, e event, f func(rec *record) (*transition, error)) error {
	for range maxWaits {
		r.mu.Lock()
		rec, err := r.findLocked(id)
		if err != nil {
			r.mu.Unlock()
			return err
		}
		if r.closed && e != onGet {
			r.mu.Unlock()
			return ErrClosed
		}
		says, t := table[e][rec.State], rec.transition
		if t != nil && rec.over() && (says == act || says == refuse) && e != onKill {
			says = wait // wait for its next state, because it ended in the middle of a transition
		}
		switch says {
		case act:
			t, err = f(rec)
		case refuse:
			err = &StateError{ID: id, State: rec.State}
		case absent:
			err = r.notFoundLocked(rec)
		}
		r.mu.Unlock()
		if err != nil || t == nil {
			return err
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if says != wait {
			return t.err
		}
	}
	return r.busy(id)
}

// busy returns the error for a sandbox whose state did not stop changing.
func (r *Registry) busy(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.findLocked(id)
	if err != nil {
		return err
	}
	return &StateError{ID: id, State: rec.State}
}

// beginLocked moves a sandbox to the state during, and runs work. Then it calls the function settle
// that work returned, with the lock held and even if work also returned an error. settle updates
// the record and returns the next state. A sandbox that was killed meanwhile stays killed.
func (r *Registry) beginLocked(rec *record, during State, work func(ctx context.Context) (settle func() State, err error)) *transition {
	ctx, cancel := context.WithCancel(context.Background())
	t := &transition{done: make(chan struct{}), cancel: cancel}
	rec.transition = t
	r.setLocked(rec, during)
	r.work.Go(func() {
		defer cancel()
		settle, err := work(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		killed := rec.State == Killing
		state := settle()
		if killed {
			state = Killing
		}
		rec.transition = nil
		r.setLocked(rec, state)
		if killed {
			err = r.notFoundLocked(rec)
		} else if gone := r.noticeLocked(rec, err); gone != nil && err != nil {
			err = gone
		}
		t.err = err
		close(t.done)
	})
	return t
}

// setLocked moves a sandbox to another state.
func (r *Registry) setLocked(rec *record, s State) {
	before := rec.State
	rec.State = s
	r.changedLocked(rec, before)
	r.placeLocked(rec)
	if s != Running {
		delete(r.running, rec.ID)
		return
	}
	rec.noteUseLocked()
	r.running[rec.ID] = rec
	r.wakeEvictor()
}
