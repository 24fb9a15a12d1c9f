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
	// wakeTime limits the time that a call has to connect again after a pause has cut off its
	// connection. The service takes up to a minute to resume a sandbox.
	wakeTime = 70 * time.Second
	// rejoinPause is the pause after the first failed attempt.
	rejoinPause = 50 * time.Millisecond
)

// followOn is like follow, but continues after a pause of the sandbox has cut off the stream. When
// the sandbox runs again, followOn connects to the process again. If a caller waits for the
// process, followOn connects at once. This may resume the sandbox.
func (a *attachment) followOn(life context.Context, waiting *audience, output func(*process.ProcessEvent_DataEvent) error) (*process.ProcessEvent_EndEvent, error) {
	for {
		end, err := a.follow(output)
		if end != nil || !errors.Is(err, ErrCommandLost) || life.Err() != nil {
			return end, err
		}
		if broken := a.inputFailed(); broken != nil {
			return nil, fmt.Errorf("%w: input that was sent to it may be missing: %w", ErrCommandLost, broken)
		}
		a.setAway(true, false)      // first, so that nothing is sent to the process during the question
		runs := a.sb.asleep.awake() // first, because the sandbox may be resumed right after the question
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

// rejoin connects again to a process whose stream a pause has cut off.
func (a *attachment) rejoin(life context.Context) error {
	a.sb.asleep.wait(life)
	ctx, cancel := context.WithTimeout(life, wakeTime)
	defer cancel()
	for pause := rejoinPause; ; pause *= 2 {
		next, err := a.sb.connectProcess(ctx, life, a.user, byPID(a.pid))
		if err == nil {
			if err = a.checkSameProcess(ctx); err != nil {
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

// errReplaced means that the process has ended and that another process has its pid.
var errReplaced = errors.New("the sandbox was started anew, and its pid is another process's")

// checkSameProcess returns an error if the pid belongs to another process, because the sandbox was
// started anew from its files. If the pid belongs to no process, checkSameProcess returns nil. It
// cannot check a process that this handle did not start.
func (a *attachment) checkSameProcess(ctx context.Context) error {
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
	return nil // it is the same process, or the process has ended and its last event follows
}

// take replaces the stream of a with the stream of next, another attachment to the same process.
func (a *attachment) take(next *attachment) {
	a.mu.Lock()
	a.stream, next.stream = next.stream, a.stream
	left := a.left
	a.mu.Unlock()
	a.events, a.begun = next.events, next.begun
	next.cancel() // it is now the former stream
	if left {
		a.cancel()
	}
}

// setAway records whether the stream is cut off by a pause (away), and whether it cannot be
// opened again because the process has ended (gone).
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

// await waits until the stream of a process is open again or ctx ends. Call it before input or a
// signal, because the process's answer would be lost without a stream. During a pause that this
// handle requested, await does not wait, because then only the call itself resumes the sandbox.
func (a *attachment) await(ctx context.Context, waiting *audience) {
	a.mu.Lock()
	away := a.away
	a.mu.Unlock()
	if away == nil || waiting == nil || a.sb.asleep.pausedHere() {
		return
	}
	defer waiting.join()()
	select {
	case <-away:
	case <-ctx.Done():
	}
}

// failInput ends the stream, because input to the process may not have arrived.
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
