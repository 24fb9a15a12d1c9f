package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// PauseParams says how to pause a sandbox. The zero value is a pause that keeps
// everything.
type PauseParams struct {
	// Mode says which state is kept; empty means the service's default, [PauseFull].
	Mode PauseMode
	// RequireHealthyGuest refuses the pause with [ErrUnavailable] when envd, the
	// daemon inside, does not answer. Without it such a sandbox is paused, too, and
	// then only [WithReboot] resumes it. A pause that keeps only the files is always
	// refused then.
	RequireHealthyGuest bool
}

// PauseMode says which state a pause keeps.
type PauseMode = api.PauseMode

// The states that a pause keeps.
const (
	// PauseFull keeps files and memory: processes and the variables of contexts go
	// on where they were. A local cloud keeps the memory until it ends, and beyond that on
	// an engine that saves it to a state directory, as gVisor does.
	PauseFull = api.PauseFull
	// PauseFilesystem keeps only the files, and resuming starts the sandbox anew from
	// them. It costs no memory.
	PauseFilesystem = api.PauseFilesystem
)

// OnTimeout is the action at the end of a lifetime, in [Info]. [Expiry] sets it.
type OnTimeout = api.OnTimeout

// The actions at the end of a lifetime.
const (
	OnTimeoutKill  = api.OnTimeoutKill
	OnTimeoutPause = api.OnTimeoutPause // its state is kept, until it is resumed or killed
)

// WithReboot makes [Connect] start a paused sandbox anew from its files, even if
// its memory was kept, for one whose processes hang. Files that programs had not
// written out when it was paused may be incomplete. It changes nothing for a
// sandbox that runs. A service may refuse it, and one from before August 2026 ignores
// it and restores the memory.
func WithReboot() ConnectOption {
	return connectOption(func(c *config) error { c.reboot = true; return nil })
}

// Pause pauses a sandbox, no matter which program created it. If it is paused
// already, the error is [ErrConflict], and if there is no such sandbox
// [ErrGone].
func (c *Client) Pause(ctx context.Context, id string, p *PauseParams) error {
	if err := c.api.Sandboxes.Pause(ctx, id, (*api.PauseParams)(p)); err != nil {
		return fmt.Errorf("sandbox: pause: %w", missing(id, err))
	}
	return nil
}

// Pause pauses the sandbox: its lifetime stands still, and every connection into it ends, those of
// other programs, too. p says which state is kept; by default that is everything, and the
// sandbox's memory stays in use. The handle stays open, and code, commands and terminals in flight
// wait, unless only files are kept. [Sandbox.Resume] continues the sandbox, as does [Connect] in
// another program, and with Expiry.Resume any call; without that, calls return [ErrGone] with
// [GonePaused] until then.
//
// If the sandbox is paused already, the error is [ErrConflict]. It is
// [ErrUnavailable] when the service cannot pause it now, and then the sandbox
// runs on.
func (sb *Sandbox) Pause(ctx context.Context, p *PauseParams) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	sb.lease.pause() // no renewal may arrive in the middle of it
	defer sb.lease.start(sb.lease.length / 2)
	settle := func(bool) {}
	if p == nil || p.Mode != PauseFilesystem { // else nothing goes on that could wait
		settle = sb.asleep.begin()
	}
	err = sb.client.api.Sandboxes.Pause(ctx, sb.ID(), (*api.PauseParams)(p))
	settle(err == nil)
	if err != nil {
		return sb.failed(ctx, "pause", missing(sb.ID(), err))
	}
	sb.code.kernels.Disconnect()
	return nil
}

// ResumeParams says how to resume a sandbox. The zero value continues it for the
// lifetime or lease of the handle.
type ResumeParams struct {
	// Lifetime is the least time that the sandbox lives from now. Zero means the After of the
	// handle's [Expiry]. It changes nothing else of that: a lease is renewed from then on.
	Lifetime time.Duration
	// Reboot is as [WithReboot].
	Reboot bool
}

// Resume continues a paused sandbox, whichever program paused it. A running sandbox is no error.
// If only its files were kept, it starts anew: there are no processes, and the variables of its
// contexts are lost. If its memory was kept on another machine, or with other programs, than the
// local cloud has now, the error is [ErrInvalidArgument] and it stays paused: ResumeParams.Reboot
// starts it anew.
func (sb *Sandbox) Resume(ctx context.Context, p *ResumeParams) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if p == nil {
		p = &ResumeParams{}
	}
	life := cmp.Or(p.Lifetime, sb.config.life())
	answered := sb.asleep.asking()
	sb.lease.pause()
	defer sb.lease.start(sb.lease.length / 2)
	if _, err := sb.client.api.Sandboxes.Connect(ctx, sb.ID(), &api.ConnectParams{Lifetime: life, Reboot: p.Reboot}); err != nil {
		return unresponsive(sb.failed(ctx, "resume", missing(sb.ID(), err)))
	}
	answered()
	sb.asleep.end()
	sb.extended(life)
	return nil
}

// unresponsive adds what to do when the memory that was kept cannot be used.
func unresponsive(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeGuestUnresponsive {
		return fmt.Errorf("%w; its daemon did not answer when it was paused: resume it from its files with WithReboot or ResumeParams.Reboot", err)
	}
	return err
}
