package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// PauseMode says which state a pause keeps. A service may use others than the constants here.
type PauseMode string

// The states that a pause keeps.
const (
	// PauseFull keeps files and memory: when the sandbox is resumed, its processes
	// go on where they were.
	PauseFull PauseMode = "full"
	// PauseFilesystem keeps only the files: the processes end, and resuming starts
	// the sandbox anew from its files. No request resumes it by itself.
	PauseFilesystem PauseMode = "filesystem"
)

// PauseParams says how to pause a sandbox. The zero value is a pause that keeps
// everything.
type PauseParams struct {
	// Mode says which state is kept; empty means the service's default, [PauseFull].
	Mode PauseMode
	// RequireHealthyGuest refuses the pause with [ErrUnavailable] when envd, the
	// daemon inside, does not answer. Without it such a sandbox is paused, too, and
	// then only [ConnectParams].Reboot resumes it. A pause that keeps only the files
	// is always refused then.
	RequireHealthyGuest bool
}

type pauseRequest struct {
	Memory              *bool `json:"memory,omitempty"`
	RequireHealthyGuest bool  `json:"requireHealthyGuest,omitempty"`
}

// Pause pauses a running sandbox: its lifetime no longer runs out, and every
// connection into it ends. Connect resumes it. The error is [ErrConflict] when the
// sandbox is paused already or is changing its state, and [ErrUnavailable] when
// the service cannot pause it now; the sandbox then runs on.
//
// Like Create, it is retried only when provably nothing was sent, or when the
// service answers 429.
func (s *SandboxService) Pause(ctx context.Context, id string, p *PauseParams) error {
	path, err := sandboxPath(id, "/pause")
	if err != nil {
		return err
	}
	if p == nil {
		p = &PauseParams{}
	}
	request := pauseRequest{RequireHealthyGuest: p.RequireHealthyGuest}
	if request.Memory, err = keepsMemory("pause", string(p.Mode)); err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodPost, path: path, body: request, once: true, saves: true}, nil)
	return err
}

// keepsMemory returns what the service is told of the mode of a pause or snapshot:
// nothing when it is left to the service.
func keepsMemory(what, mode string) (*bool, error) {
	switch mode {
	case "":
		return nil, nil
	case "full", "filesystem":
		return new(mode == "full"), nil
	}
	return nil, fmt.Errorf(`api: %s mode %q: want "full" or "filesystem": %w`, what, clip.Line(mode, 64), ErrInvalidArgument)
}

// ConnectParams says how to connect to a sandbox. The zero value asks for [DefaultLifetime].
type ConnectParams struct {
	// Lifetime is the least time that the sandbox lives from now, rounded up to whole
	// seconds. Zero means [DefaultLifetime].
	Lifetime time.Duration
	// Reboot starts a paused sandbox anew from its files, even if its memory was
	// kept; files that programs had not written out when it was paused may be
	// incomplete. It changes nothing for a sandbox that runs. A service may refuse
	// it, and one from before August 2026 ignores it and restores the memory.
	Reboot bool
}

type connectRequest struct {
	Timeout int64 `json:"timeout"`
	Memory  *bool `json:"memory,omitempty"`
}

// CodeGuestUnresponsive is the [Error].Code of a Connect to a sandbox that was
// paused while its daemon did not answer: only [ConnectParams].Reboot resumes it.
const CodeGuestUnresponsive = "sandbox_snapshot_guest_agent_unresponsive"

// Connect makes sure that a sandbox is running, resuming it if it is paused, and
// that it lives for at least p.Lifetime from now; it never shortens its life.
// [Sandbox].Resumed reports which of the two it was.
func (s *SandboxService) Connect(ctx context.Context, id string, p *ConnectParams) (*Sandbox, error) {
	path, err := sandboxPath(id, "/connect")
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &ConnectParams{}
	}
	request := connectRequest{}
	if request.Timeout, err = seconds("lifetime", p.Lifetime); err != nil {
		return nil, err
	}
	if p.Reboot {
		request.Memory = new(bool)
	}
	sandbox := &Sandbox{}
	head, err := s.client.generations(func(prefix string) (answer, error) {
		return s.client.do(ctx, call{method: http.MethodPost, path: prefix + path, body: request}, sandbox)
	})
	if err != nil {
		return nil, err
	}
	sandbox.Resumed = head.status == http.StatusCreated
	return sandbox, sandbox.check()
}
