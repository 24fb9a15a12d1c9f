package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type bashArguments struct {
	arguments
	Command string `json:"command" jsonschema:"the command line, in bash"`
	Seconds int    `json:"timeout_seconds,omitempty" jsonschema:"stop the command after this time; the default is 120, the most 3600"`
}

const usualCommandTime = 2 * time.Minute

func bashTool() tool {
	return newTool(&sdk.Tool{
		Name: "bash", Annotations: hints("Run a command", false, true, true),
		Description: "Run a command line in a shell of the sandbox, as root. The directory, variables and background jobs stay for later calls. " +
			"End a server with & and redirect its output; programs have no input and no terminal.",
	}, runBash)
}

func runBash(ctx context.Context, c *call, in bashArguments) error {
	ctx, cancel, after, err := limit(ctx, in.Seconds, usualCommandTime)
	if err != nil {
		return err
	}
	defer cancel()
	if err := c.box.shellTurn.acquire(ctx); err != nil {
		return fmt.Errorf("another command was still running: %w", err)
	}
	defer c.box.shellTurn.release()
	sh, err := c.box.openShell(ctx)
	if err != nil {
		return err
	}
	if text := sh.takeBetween(); text != "" {
		c.answer.print("(output of background jobs)\n" + plain(text))
	}
	out := newStream()
	status, err := sh.run(ctx, in.Command, out)
	out.into(c, "output.txt")
	switch {
	case errors.Is(err, errShellEnded):
		c.box.loseShell()
		if gone := c.box.isGone(ctx); gone != nil {
			return gone
		}
		return fmt.Errorf("%w, because the command ended it; the next command runs in a new one, in %s", err, plain(c.box.shellDir))
	case err != nil:
		stopped := sh.stop(ctx)
		c.box.loseShell()
		if errors.Is(err, errTooLong) {
			err = fmt.Errorf("the command was stopped after %v, and the shell with it: the next command runs in a new one, in %s. Give timeout_seconds, or end a long command with &", after, plain(c.box.shellDir))
		}
		return errors.Join(err, stopped)
	}
	c.box.shellDir = status.dir
	c.answer.note("exit status %d · in %s", status.code, plain(status.dir))
	return nil
}

// openShell returns the shell of the sandbox, and starts one if there is none. The caller must hold
// shellTurn.
func (b *held) openShell(ctx context.Context) (*shell, error) {
	if b.shell != nil {
		select {
		case <-b.shell.ended:
			b.loseShell()
		default:
			return b.shell, nil
		}
	}
	sh, err := startShell(ctx, b.Sandbox, b.shellDir)
	if err != nil && b.shellDir != "" {
		sh, err = startShell(ctx, b.Sandbox, "") // the directory may have been removed
	}
	b.keepShell(sh)
	return sh, err
}

func (b *held) keepShell(sh *shell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shell = sh
}

func (b *held) loseShell() { b.keepShell(nil) }

// isGone returns an error if the sandbox has ended or is paused.
func (b *held) isGone(ctx context.Context) error {
	_, err := b.Files.Stat(ctx, ".", nil)
	return err
}

// turn is a lock that lets calls proceed one at a time. The zero value is not usable.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) release() { <-t }
