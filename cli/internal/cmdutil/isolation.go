package cmdutil

import (
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// isolations are the values of --isolation, from the strongest to the weakest.
var isolations = []string{string(local.Full), string(local.Restricted), string(local.None)}

// Isolation is a flag value that accepts an isolation level.
type Isolation local.Isolation

func (i *Isolation) Type() string   { return "level" }
func (i *Isolation) String() string { return string(*i) }

func (i *Isolation) Set(value string) error {
	if !slices.Contains(isolations, value) {
		return fmt.Errorf("want one of %v", isolations)
	}
	*i = Isolation(value)
	return nil
}
