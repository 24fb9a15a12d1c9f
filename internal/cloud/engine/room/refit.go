//go:build linux

package room

import (
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// become turns the warm sandbox into the sandbox that o describes. config is the text of o.Config. If
// become fails, it closes the sandbox.
func (s *Sandbox) become(ctx context.Context, o engine.SandboxOptions, config []byte) error {
	s.options = o
	err := s.share.group.Yield(false)
	if err != nil {
		err = fmt.Errorf("limit: %w", err)
	}
	switch {
	case err != nil:
	case o.Files != "" || len(o.Layers) > 0:
		s.kernels.endAhead() // it would still be forked into the replaced file system
		err = s.refit(ctx)
	case len(o.Authority) > 0:
		err = s.showAuthority(ctx)
	}
	if err != nil {
		return s.abandon(err)
	}
	if s.mounter != nil {
		s.mounter.End()
	}
	return s.begin(ctx, o, config, wire.RoleEnvd)
}

// refit replaces the file system of the warm sandbox by a file system with layers or saved files.
// All processes of the sandbox are moved to the new file system.
func (s *Sandbox) refit(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bootTimeout(), errBootTimeout)
	defer cancel()
	pid, err := s.process.pid()
	if err != nil {
		return err
	}
	var files wire.Files
	defer files.Close()
	files.Lend(wire.FileFiles, s.files.written)
	spec, err := s.buildSpec(pid, &files)
	if err != nil {
		return err
	}
	if err := s.startMounter(ctx, wire.RoleMounter, spec, &files); err != nil {
		return s.explain(ctx, "hand over the template", err)
	}
	defer s.mounter.Deadline(ctx, s.bootTimeout())()
	built, answer, err := s.mounter.Expect(wire.KindReady, 1)
	if err != nil {
		return s.explain(ctx, "build", err)
	}
	defer answer.Close()
	replaced, err := answer.Take(wire.FileFiles)
	if err != nil {
		return err
	}
	s.noteBuilt(ctx, built)
	err = s.life.unlessEnding(func() { s.files.replace(replaced) })
	if err != nil {
		replaced.Close()
	}
	return err
}

// showAuthority makes programs of the warm sandbox trust the sandbox's authority. The result is the
// same as in a sandbox that has the authority from its start.
func (s *Sandbox) showAuthority(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, errBootTimeout)
	defer cancel()
	if err := s.startMounter(ctx, wire.RoleMounter, s.authoritySpec(), nil); err != nil {
		return s.explain(ctx, "hand over the authority", err)
	}
	if err := s.mounter.AwaitReady(ctx, bootTimeout); err != nil {
		return s.explain(ctx, "show the authority", err)
	}
	return nil
}

// startMounter makes the mounter start the program, and assigns a role to it. Until then the mounter
// is a fork of the first stage that has done nothing, because few sandboxes need it.
func (s *Sandbox) startMounter(ctx context.Context, r wire.Role, spec any, files *wire.Files) error {
	if err := s.mounter.Send(wire.Message{Kind: wire.KindGo}); err != nil {
		return err
	}
	return s.mounter.Handshake(ctx, r, spec, files)
}

// awaitMounter waits for the end of the mounter. The mounter has all rights in the sandbox, so it
// must end before the sandbox is used. The mounter ends by itself, or because the caller has ended
// it. If there is no mounter, awaitMounter returns at once.
func (s *Sandbox) awaitMounter(ctx context.Context) error {
	if s.mounter == nil {
		return nil
	}
	if err := s.mounter.AwaitEnd(ctx); err != nil {
		return s.explain(ctx, "end the mounter", err)
	}
	return nil
}
