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
	// rejoinPause is the pause after the first failed attempt. It doubles up to maxRejoinPause.
	rejoinPause    = 50 * time.Millisecond
	maxRejoinPause = 2 * time.Second
	// maxFruitless limits the number of successive streams that end at once and without output.
	maxFruitless = 40
)

// followOn is like follow, but continues after the stream was cut off. If the daemon keeps output,
// followOn connects to the process again and goes on at the first byte that it has not received.
// Otherwise it does so only after a pause of the sandbox, and output may be missing. When a pause
// has cut off the stream, followOn waits until the sandbox runs again. If a caller waits for the
// process, followOn connects at once. This may resume the sandbox.
func (a *attachment) followOn(life context.Context, waiting *audience, output func(*process.ProcessEvent_DataEvent) error) (*process.ProcessEvent_EndEvent, error) {
	for fruitless := 0; ; {
		opened, before := time.Now(), a.offset.Load()
		end, err := a.follow(life, output)
		if end != nil || !errors.Is(err, ErrCommandLost) || life.Err() != nil {
			return end, err
		}
		if broken := a.inputFailed(); broken != nil {
			return nil, fmt.Errorf("%w: input that was sent to it may be missing: %w", ErrCommandLost, broken)
		}
		a.setAway(true, false)      // first, so that nothing is sent to the process during the question
		runs := a.sb.asleep.awake() // first, because the sandbox may be resumed right after the question
		was, is := a.sb.pauseSince(life, a.begun)
		if !was && !a.resumable {
			a.setAway(false, false)
			return nil, err
		}
		_ = a.events.Close()
		if fruitless++; a.offset.Load() > before || time.Since(opened) > maxRejoinPause {
			fruitless = 0
		}
		if fruitless >= maxFruitless || !pauseFor(life, fruitless) {
			a.setAway(false, false)
			return nil, err
		}
		if is {
			waiting.await(life, runs)
		}
		err = a.rejoin(life)
		a.setAway(false, errors.Is(err, errReplaced) || connect.CodeOf(err) == connect.CodeNotFound)
		if err != nil {
			if !errors.Is(err, ErrCommandLost) {
				err = fmt.Errorf("%w: %w", ErrCommandLost, err)
			}
			return nil, err
		}
		a.outputCut = a.outputCut || !a.resumable
	}
}

// rejoin connects again to a process whose stream was cut off.
func (a *attachment) rejoin(life context.Context) error {
	a.sb.asleep.wait(life)
	ctx, cancel := context.WithTimeout(life, wakeTime)
	defer cancel()
	from := outputFrom{now: !a.resumable, offset: a.offset.Load(), of: a.id, stream: a.streamID}
	return again(ctx, func() error {
		next, err := a.sb.connectProcess(ctx, life, a.user, byPID(a.pid), from)
		if err != nil {
			return err
		}
		switch {
		case !a.resumable:
			err = a.checkSameProcess(ctx)
		case !next.resumable:
			err = errForgets
		}
		if err != nil {
			next.release()
			return err
		}
		a.take(next)
		return nil
	})
}

// pauseFor pauses after a number of successive streams without output. It returns false if ctx ends.
func pauseFor(ctx context.Context, fruitless int) bool {
	if fruitless < 2 {
		return ctx.Err() == nil
	}
	return sleep(ctx, min(rejoinPause<<min(fruitless, 10), maxRejoinPause))
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errForgets means that another daemon, which keeps no output, has replaced the daemon that kept output.
var errForgets = errors.New("the daemon no longer keeps output")

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
	a.resumable, a.id, a.streamID = next.resumable, next.id, next.streamID
	a.offset.Store(next.offset.Load())
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
