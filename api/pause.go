package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// PauseMode is the part of a sandbox's state that a pause keeps. A service may use values other
// than the constants here.
type PauseMode string

// These are the modes of a pause.
const (
	// PauseFull keeps files and memory. When the sandbox resumes, its processes continue where
	// they were.
	PauseFull PauseMode = "full"
	// PauseFilesystem keeps only the files and ends the processes. When the sandbox resumes, it
	// starts anew from its files. No request resumes it automatically.
	PauseFilesystem PauseMode = "filesystem"
)

// PauseParams sets how to pause a sandbox. The zero value keeps files and memory.
type PauseParams struct {
	// Mode is the part of the state to keep; empty means the service's default, [PauseFull].
	Mode PauseMode
	// RequireHealthyGuest makes Pause return [ErrUnavailable] when envd, the daemon inside the
	// sandbox, does not answer. If it is false, Pause pauses such a sandbox, and only
	// [ConnectParams].Reboot resumes it. With [PauseFilesystem], Pause always returns the error when
	// envd does not answer.
	RequireHealthyGuest bool
}

type pauseRequest struct {
	Memory              *bool `json:"memory,omitempty"`
	RequireHealthyGuest bool  `json:"requireHealthyGuest,omitempty"`
}

// Pause pauses a running sandbox. Its lifetime stops running, and all connections into it end.
// Connect resumes the sandbox. The error is [ErrConflict] when the sandbox is paused already or is
// changing its state. The error is [ErrUnavailable] when the service cannot pause the sandbox now;
// the sandbox then continues to run.
//
// Like Create, Pause is retried only when provably nothing was sent, or when the service
// answers 429.
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

// keepsMemory returns the value of the request field "memory" for the mode of a pause or snapshot.
// It returns nil for an empty mode, which leaves the choice to the service.
func keepsMemory(what, mode string) (*bool, error) {
	switch mode {
	case "":
		return nil, nil
	case "full", "filesystem":
		return new(mode == "full"), nil
	}
	return nil, fmt.Errorf(`api: %s mode %q: want "full" or "filesystem": %w`, what, clip.Line(mode, 64), ErrInvalidArgument)
}

// ConnectParams sets how to connect to a sandbox. The zero value asks for [DefaultLifetime].
type ConnectParams struct {
	// Lifetime is the minimum remaining lifetime of the sandbox, rounded up to whole seconds.
	// Zero means [DefaultLifetime].
	Lifetime time.Duration
	// Reboot starts a paused sandbox anew from its files, even if the pause kept its memory.
	// Files with data that programs had not yet written to disk may be incomplete. Reboot has
	// no effect on a running sandbox. A service may refuse it. A service from before August
	// 2026 ignores it and restores the memory.
	Reboot bool
}

type connectRequest struct {
	Timeout int64 `json:"timeout"`
	Memory  *bool `json:"memory,omitempty"`
}

// CodeGuestUnresponsive is the [Error].Code of a Connect to a sandbox that was paused while
// envd did not answer. Only [ConnectParams].Reboot resumes such a sandbox.
const CodeGuestUnresponsive = "sandbox_snapshot_guest_agent_unresponsive"

// Connect resumes a paused sandbox and makes sure that a sandbox lives for at least p.Lifetime
// from now. It never shortens the lifetime. [Sandbox].Resumed reports whether the sandbox was
// paused.
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
