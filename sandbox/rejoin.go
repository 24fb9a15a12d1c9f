package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/gen/process"
)

const (
	// wakeTime bounds how long a call that a pause cut off tries to go on: the service
	// takes up to a minute to resume a sandbox.
	wakeTime = 70 * time.Second
	// rejoinPause is the pause after the first attempt that failed.
	rejoinPause = 50 * time.Millisecond
)

// followOn is follow for as long as the process lives: if its stream is cut because the
// sandbox is paused, it connects to the process again when the sandbox runs, or as soon as
// somebody waits for the process, which may resume the sandbox.
func (a *attachment) followOn(life context.Context, waiting *audience, output func(*process.ProcessEvent_DataEvent) error) (*process.ProcessEvent_EndEvent, error) {
	for {
		end, err := a.follow(output)
		if end != nil || !errors.Is(err, ErrCommandLost) || life.Err() != nil {
			return end, err
		}
		if broken := a.inputFailed(); broken != nil {
			return nil, fmt.Errorf("%w: what was sent to its input may be missing: %w", ErrCommandLost, broken)
		}
		a.setAway(true, false)      // before the question, so that nothing is sent to it meanwhile
		runs := a.sb.asleep.awake() // likewise: it may be resumed right after
		was, is := a.sb.pauseSince(life, a.begun)
		if !was {
			a.setAway(false, false)
			return nil, err
		}
		_ = a.events.Close()
		if is {
			waiting.await(life, runs)
		}
		err = a.rejoin(life)
		a.setAway(false, errors.Is(err, errReplaced) || connect.CodeOf(err) == connect.CodeNotFound)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCommandLost, err)
		}
		a.outputCut = true
	}
}

// rejoin connects to the process of a stream that a pause cut off.
func (a *attachment) rejoin(life context.Context) error {
	a.sb.asleep.wait(life)
	ctx, cancel := context.WithTimeout(life, wakeTime)
	defer cancel()
	for pause := rejoinPause; ; pause *= 2 {
		next, err := a.sb.connectProcess(ctx, life, a.user, byPID(a.pid))
		if err == nil {
			if err = a.same(ctx); err != nil {
				next.release()
				return err
			}
			a.take(next)
			return nil
		}
		if rpc, ok := errors.AsType[*connect.Error](err); errors.Is(err, ErrGone) || ok && connect.IsWireError(rpc) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// errReplaced: the process is gone, and its pid is that of another one.
var errReplaced = errors.New("the sandbox was started anew, and its pid is another process's")

// same checks that the pid is still that of the process: if the sandbox was started anew
// from its files, it belongs to another one, or to none. Of a process that this handle
// did not start nothing is known to compare.
func (a *attachment) same(ctx context.Context) error {
	if a.config == nil {
		return nil
	}
	list, err := a.sb.Commands.list(ctx)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.PID == int(a.pid) && (p.Cmd != a.config.GetCmd() || !slices.Equal(p.Args, a.config.GetArgs())) {
			return errReplaced
		}
	}
	return nil // or it has ended, and its last event is about to come
}

// take continues with the stream of another attachment to the same process.
func (a *attachment) take(next *attachment) {
	a.mu.Lock()
	a.stream, next.stream = next.stream, a.stream
	left := a.left
	a.mu.Unlock()
	a.events, a.begun = next.events, next.begun
	next.cancel() // the former stream
	if left {
		a.cancel()
	}
}

// setAway says whether a pause cut off the stream, and it has not been opened again; and
// whether that turned out to be impossible because the process is gone.
func (a *attachment) setAway(away, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = gone
	switch {
	case away:
		a.away = make(chan struct{})
	case a.away != nil:
		close(a.away)
		a.away = nil
	}
}

// await waits, until ctx ends, for the stream of a process that the caller is about to do
// something to: what the process prints in answer would be lost without. During the
// handle's own pause it does not wait, because only what is done resumes the sandbox.
func (a *attachment) await(ctx context.Context, waiting *audience) {
	a.mu.Lock()
	away := a.away
	a.mu.Unlock()
	if away == nil || waiting == nil || a.sb.asleep.own() {
		return
	}
	defer waiting.join()()
	select {
	case <-away:
	case <-ctx.Done():
	}
}

// failInput ends the stream because something that was sent to the process's input may
// not have arrived.
func (a *attachment) failInput(err error) {
	a.mu.Lock()
	a.inputErr = err
	a.mu.Unlock()
	a.cancel()
}

func (a *attachment) inputFailed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inputErr
}
