package cmdutil

import (
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// Engine is a flag value that accepts the name of an engine.
type Engine local.Engine

func (e *Engine) Type() string   { return "engine" }
func (e *Engine) String() string { return string(*e) }

// engines returns the values of --engine.
func engines() []string {
	var names []string
	for _, engine := range local.Engines() {
		names = append(names, string(engine))
	}
	return names
}

func (e *Engine) Set(value string) error {
	if !slices.Contains(local.Engines(), local.Engine(value)) {
		return fmt.Errorf("want one of %v", local.Engines())
	}
	*e = Engine(value)
	return nil
}
