package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// PauseParams sets how to pause a sandbox. The zero value keeps files and memory.
type PauseParams struct {
	// Mode is the part of the state to keep; empty means the service's default, [PauseFull].
	Mode PauseMode
	// RequireHealthyGuest makes Pause return [ErrUnavailable] when envd, the daemon inside, does not
	// answer. Without RequireHealthyGuest, a sandbox whose envd does not answer is paused, and then
	// only [WithReboot] resumes it. A pause with [PauseFilesystem] always returns ErrUnavailable if
	// envd does not answer.
	RequireHealthyGuest bool
}

// PauseMode is the part of a sandbox's state that a pause keeps.
type PauseMode = api.PauseMode

// These are the modes of a pause.
const (
	// PauseFull keeps files and memory. Processes continue, and contexts keep their variables. A local
	// cloud keeps the memory until the cloud ends. With an engine that saves memory to a state
	// directory, such as gVisor, the memory outlasts the cloud.
	PauseFull = api.PauseFull
	// PauseFilesystem keeps only the files. Resuming starts the sandbox anew from them. The
	// paused sandbox uses no memory.
	PauseFilesystem = api.PauseFilesystem
)

// OnTimeout is the action at the end of a lifetime, as reported in [Info]. [Expiry] sets it.
type OnTimeout = api.OnTimeout

// These are the actions at the end of a lifetime.
const (
	OnTimeoutKill  = api.OnTimeoutKill
	OnTimeoutPause = api.OnTimeoutPause // the sandbox keeps its state until it is resumed or killed
)

// WithReboot makes [Connect] start a paused sandbox anew from its files, even if the pause kept its
// memory. Use it if the processes of the sandbox hang. Files with data that programs had not yet
// written to disk may be incomplete. WithReboot has no effect on a running sandbox. A service may
// refuse it. A version of a service from before August 2026 ignores it and restores the memory.
func WithReboot() ConnectOption {
	return connectOption(func(c *config) error { c.reboot = true; return nil })
}

// Pause pauses a sandbox. Any program may have created the sandbox. The error is [ErrConflict] if
// the sandbox is already paused, and [ErrGone] if there is no such sandbox.
func (c *Client) Pause(ctx context.Context, id string, p *PauseParams) error {
	if err := c.api.Sandboxes.Pause(ctx, id, (*api.PauseParams)(p)); err != nil {
		return fmt.Errorf("sandbox: pause: %w", missing(id, err))
	}
	return nil
}

// Pause pauses the sandbox: its lifetime stops running, and all connections to the sandbox end,
// including those of other programs. By default the pause keeps files and memory, and the memory
// remains in use. The handle stays open. If the memory is kept, code, commands and terminals in
// progress wait.
//
// [Sandbox.Resume] continues the sandbox, as does [Connect] in another program. With Expiry.Resume
// any call continues it. Without Expiry.Resume, calls return [ErrGone] with [GonePaused] until the
// sandbox is resumed.
//
// The error is [ErrConflict] if the sandbox is paused already. It is [ErrUnavailable] if the
// service cannot pause the sandbox now; the sandbox then continues to run.
func (sb *Sandbox) Pause(ctx context.Context, p *PauseParams) error {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	sb.lease.pause() // no renewal may arrive during the pause
	defer sb.lease.start(sb.lease.length / 2)
	settle := func(bool) {}
	if p == nil || p.Mode != PauseFilesystem { // otherwise no call continues and could wait
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

// ResumeParams sets how to resume a sandbox. The zero value continues it for the lifetime or
// lease of the handle.
type ResumeParams struct {
	// Lifetime is the minimum remaining lifetime of the sandbox. Zero means the After of the handle's
	// [Expiry]. A lease of the handle is still renewed afterwards.
	Lifetime time.Duration
	// Reboot has the effect of [WithReboot].
	Reboot bool
}

// Resume continues a paused sandbox. Any program may have paused it. For a running sandbox, Resume
// does nothing and returns no error. If only the files were kept, the sandbox starts anew, without
// processes and without the variables of its contexts.
//
// The error is [ErrInvalidArgument] if the memory was kept on another machine, or if the local
// cloud now has other programs than at the time of the pause. The sandbox then stays paused, and
// ResumeParams.Reboot starts it anew.
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

// unresponsive adds the remedy to err if err means that the memory of a sandbox cannot be restored.
func unresponsive(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeGuestUnresponsive {
		return fmt.Errorf("%w; its daemon did not answer when it was paused: resume it from its files with WithReboot or ResumeParams.Reboot", err)
	}
	return err
}
