//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// keep waits for the end of the server, for any reason, and then cleans up. It holds the lock until
// it exits.
func keep(ctx context.Context, c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	var spec instance.Spec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	lock, err := files.Take(wire.FileLock)
	if err != nil {
		return err
	}
	defer lock.Close()
	spawn.Supervise(spawn.KeeperProcessors)
	if err := c.Send(wire.Message{Kind: wire.KindReady}); err != nil {
		return err
	}
	_, _, err = c.Receive(0)
	if err == nil {
		return fmt.Errorf("%w: the keeper is told nothing", wire.ErrProtocol)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, spec.Clean(ctx))
}
