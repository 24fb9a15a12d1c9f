//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/creack/pty"

	"github.com/e2bctl/e2bctl/sandbox"
)

// reader is a command for a terminal. It prints the line ready. From then on, the terminal echoes
// each typed character at once.
const (
	reader = "stty raw; echo ready; exec cat >/dev/null"
	ready  = "ready\n"
)

func (b *bench) typed(ctx context.Context, runs int) (r result, err error) {
	err = b.with(ctx, func(sb *sandbox.Sandbox) error {
		terminal, err := sb.PTY.Open(ctx, &sandbox.PTYParams{Command: reader})
		if err != nil {
			return err
		}
		r, err = types(ctx, runs, terminal)
		return errors.Join(err, terminal.Close())
	})
	return r, err
}

func typedOnHost(ctx context.Context, runs int) (result, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", reader)
	terminal, err := pty.Start(cmd)
	if err != nil {
		return result{}, err
	}
	r, err := types(ctx, runs, terminal)
	end()
	_ = cmd.Wait() // it was killed
	return r, errors.Join(err, terminal.Close())
}

// types measures the time from a key to its echo.
func types(ctx context.Context, runs int, terminal io.ReadWriter) (result, error) {
	var shown []byte
	buffer := make([]byte, 1024)
	for !bytes.HasSuffix(shown, []byte(ready)) {
		n, err := terminal.Read(buffer)
		if err != nil {
			return result{}, fmt.Errorf("%w after %q", err, shown)
		}
		shown = append(shown, buffer[:n]...)
	}
	return calls(func(context.Context) error {
		if _, err := terminal.Write([]byte("x")); err != nil {
			return err
		}
		n, err := terminal.Read(buffer)
		if err == nil && string(buffer[:n]) != "x" {
			err = fmt.Errorf("the terminal shows %q", buffer[:n])
		}
		return err
	})(ctx, runs)
}
