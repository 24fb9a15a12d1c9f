//go:build linux

package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
)

// keep waits for the server to end, whatever ends it, and cleans up. It holds the
// lock, files[0], until it exits.
func keep(ctx context.Context, c *control, raw json.RawMessage, files []*os.File) error {
	var spec instance.Spec
	if err := decodeSpec(raw, &spec); err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("%w: a keeper without a lock", ErrProtocol)
	}
	defer files[0].Close()
	if err := c.send(message{Kind: kindReady}); err != nil {
		return err
	}
	_, _, err := c.receive(0)
	if err == nil {
		return fmt.Errorf("%w: the keeper is told nothing", ErrProtocol)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, spec.Clean(ctx))
}
