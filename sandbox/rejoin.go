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
	// rejoinPause is how long to wait after the first attempt that failed.
	rejoinPause = 50 * time.Millisecond
)

// followOn is follow for as long as the process lives: if its stream is cut because the
// sandbox is paused, it connects to the process again as soon as somebody waits for it,
// which may resume the sandbox.
func (a *attachment) followOn(life context.Context, waiting *audience, output func(*process.ProcessEvent_DataEvent) error) (*process.ProcessEvent_EndEvent, error) {
	for {
		end, err := a.follow(output)
		if end != nil || !errors.Is(err, ErrCommandLost) || life.Err() != nil {
			return end, err
		}
		if broken := a.inputFailed(); broken != nil {
			return nil, fmt.Errorf("%w: what was sent to its input may be missing: %w", err, broken)
		}
		if !a.sb.pausedSince(life, a.begun) {
			return nil, err
		}
		if err := a.rejoin(life, waiting); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCommandLost, err)
		}
		a.outputCut = true
	}
}

// rejoin connects to the process of a stream that a pause cut off.
func (a *attachment) rejoin(life context.Context, waiting *audience) error {
	_ = a.events.Close()
	waiting.await(life)
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
			return fmt.Errorf("the sandbox was started anew, and process %d is another one", a.pid)
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
