//go:build !unix

package sandbox

import (
	"context"
	"os"

	"github.com/e2bctl/e2bctl/sandbox"
)

// followSize does nothing: this system does not say when a terminal changes its
// size.
func followSize(context.Context, *os.File, *sandbox.Terminal) {}
