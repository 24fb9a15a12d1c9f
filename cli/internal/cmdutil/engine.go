package cmdutil

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// Engine is a flag value that accepts the name of an engine that templates can have.
type Engine local.Engine

func (e *Engine) Type() string   { return "engine" }
func (e *Engine) String() string { return string(*e) }

func (e *Engine) Set(value string) error { return e.set(value, local.Engines()) }

func (e *Engine) set(value string, names []local.Engine) error {
	if !slices.Contains(names, local.Engine(value)) {
		return fmt.Errorf("want one of %v", names)
	}
	*e = Engine(value)
	return nil
}

// OwnEngine is a flag value that accepts the name of an engine that a local cloud can have.
type OwnEngine struct{ Engine }

// ownEngines returns the values of an [OwnEngine].
func ownEngines() []local.Engine {
	return append(local.Engines(), local.Engine(kubelink.Name))
}

func (e *OwnEngine) Set(value string) error { return e.set(value, ownEngines()) }

// Kubernetes reports whether sandboxes are pods.
func (e *OwnEngine) Kubernetes() bool { return e.Engine == Engine(kubelink.Name) }

// AddEngineFlag adds --engine to a command that starts a local cloud.
func AddEngineFlag(cmd *cobra.Command, e *OwnEngine) {
	cmd.Flags().Var(e, "engine", "what runs local sandboxes: room, docker, wasm, gvisor\nor kubernetes (default "+string(local.DefaultEngine)+")")
	names := make([]string, 0, 5)
	for _, name := range ownEngines() {
		names = append(names, string(name))
	}
	complete(cmd, "engine", names)
}
