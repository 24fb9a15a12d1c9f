package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox"
)

// fail runs a failing step in a new container, and asks the daemon whether the container still
// exists.
func fail(ctx context.Context, w io.Writer, cloud sandbox.ClientOption) error {
	fmt.Fprintln(w, "--- a step that fails")
	var id string
	err := sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		id = sb.ID()
		found, err := containers(ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, "docker ps:", found)
		_, err = sb.RunCode(ctx, "open('orders.csv')", nil)
		return err
	}, cloud) // this ends the container even if the step fails
	failed, ok := errors.AsType[*sandbox.ExecutionError](err)
	if !ok {
		return fmt.Errorf("the step that should fail ended with: %w", err)
	}
	fmt.Fprintf(w, "%s: %s\n", failed.Name, failed.Value)
	found, err := containers(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "docker ps:", found)
	if found != none {
		return errors.New("the container outlives the step")
	}
	fmt.Fprintln(w, "=> the container is gone")
	return nil
}

const none = "no container"

// containers asks the daemon directly for the containers of a sandbox.
func containers(ctx context.Context, id string) (string, error) {
	program, err := exec.LookPath("docker")
	if err != nil {
		program = "podman"
	}
	list := exec.CommandContext(ctx, program, "ps", "--all", "--filter", "label=e2bctl.sandbox="+id, "--format", "{{.Image}} {{.Status}}")
	found, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", list, err)
	}
	if text := strings.TrimSpace(string(found)); text != "" {
		return text, nil
	}
	return none, nil
}
