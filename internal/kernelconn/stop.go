package kernelconn

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// An interrupt may arrive while Python does not check for interrupts. So the interrupt is repeated,
// up to interruptTries times. If no interrupt has an effect, the kernel is restarted, within
// restartTime. If this fails, the kernel is ended, within killTime.
const (
	interruptTries = 3
	restartTime    = 20 * time.Second
	killTime       = 5 * time.Second
)

// stop interrupts an execution that was given up, and reads its messages until the execution is
// over. It takes as long as necessary, but not longer than until the handle is closed.
func (k *Kernel) stop(ctx context.Context, e *execution) {
	ctx = context.WithoutCancel(ctx)
	heeded := k.interruptUntilOver(ctx, e)
	k.leave(e)
	if !heeded {
		k.replace(ctx)
	}
	if !e.over {
		k.hangUp()
	}
}

// interruptUntilOver interrupts an execution until it is over. It returns false if no interrupt had
// an effect.
func (k *Kernel) interruptUntilOver(ctx context.Context, e *execution) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.life, cancel)()
	tick := time.NewTimer(0)
	defer tick.Stop()
	if e.interrupts > 0 {
		tick.Reset(time.Until(e.interruptedAt.Add(k.kernels.Timings.InterruptPause)))
	}
	looked := time.Now()
	for !e.over {
		select {
		case <-ctx.Done():
			return true // there is no caller left to tell
		case m := <-e.messages:
			if m == nil {
				if k.reconnect(ctx, e) != nil {
					k.primed.Store(false)
					k.logStep(ctx, slog.LevelInfo, "interrupting code that was given up", k.Interrupt(ctx))
					return true // nothing more can be done
				}
				continue
			}
			k.turnDown(m)
			if err := k.note(e, m); err != nil {
				k.primed.Store(false)
				k.noteDeath(m)
				return true
			}
		case <-tick.C:
			if k.isCut() {
				// An interrupt would resume a paused sandbox. The reader soon notices that the
				// websocket is cut, and then waits for the end of the pause.
				tick.Reset(k.kernels.Timings.InterruptPause / 50)
				continue
			}
			if !e.busy && !e.resumed {
				tick.Reset(k.kernels.Timings.InterruptPause / 50)
				// The code waits for another client's code, unless the server also reports the
				// kernel as idle: then the code has begun, and since then keeps Python from
				// reporting it.
				if time.Since(looked) < k.kernels.Timings.InterruptPause {
					continue
				}
				looked = time.Now()
				if k.state(ctx) != "idle" {
					continue
				}
			}
			tick.Reset(k.kernels.Timings.InterruptPause)
			if e.interrupts++; e.interrupts > interruptTries {
				return false
			}
			k.logStep(ctx, slog.LevelInfo, "interrupting code that was given up", k.Interrupt(ctx))
		}
	}
	return true
}

// isCut reports whether the websocket has ended.
func (k *Kernel) isCut() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

// replace gives the context a fresh kernel in place of a kernel that ignores interrupts. If the
// replacement fails, replace ends the context.
func (k *Kernel) replace(ctx context.Context) {
	const why = "code that was given up heeded no interrupt, so its kernel was "
	k.primed.Store(false)
	k.mu.Lock()
	k.doomed = true
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, restartTime+killTime)
	defer cancel()
	defer context.AfterFunc(k.life, cancel)()
	restart, cancelRestart := context.WithTimeout(ctx, restartTime)
	defer cancelRestart()
	err := k.kernels.control(restart, http.MethodPost, k.id, "/restart")
	k.logStep(ctx, slog.LevelWarn, "restarting a kernel that heeds no interrupt", err)
	if err == nil {
		k.kernels.noteEnd(k.id)
		k.kernels.lose(k.id, why+"restarted")
		return
	}
	k.logStep(ctx, slog.LevelWarn, "ending a kernel that cannot be restarted", k.kernels.kill(ctx, k.id, why+"ended"))
}

// logStep logs one step of ending code.
func (k *Kernel) logStep(ctx context.Context, level slog.Level, step string, err error) {
	about := []any{"sandbox", k.kernels.options.SandboxID, "context", k.id}
	if err != nil {
		level, step, about = slog.LevelWarn, step+": failed", append(about, "error", err)
	}
	k.kernels.options.Logger.Log(ctx, level, step, about...)
}

// Interrupt interrupts the running code, whichever client started it. It uses an HTTP request,
// which works for every kernel. If the server does not support this request, Interrupt sends a
// message to the kernel, which works for most kernels.
func (k *Kernel) Interrupt(ctx context.Context) error {
	if e := k.unfinished(); e != nil {
		e.interrupting.Store(true)
	}
	err := k.kernels.control(ctx, http.MethodPost, k.id, "/interrupt")
	if err == nil {
		return nil
	}
	if k.write(jupyter.Control, "interrupt_request", jupyter.Header{}, json.RawMessage("{}")) {
		return nil
	}
	return err
}
