//go:build linux

package room

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// helperTimeout bounds the time of a helper for one task, because the disk may hang.
const helperTimeout = time.Hour

// helper is a process that reads or writes files of sandboxes for the server. It has rights over
// these files only, so that files of a sandbox cannot make it read or change other files. It ends
// with the server.
type helper struct {
	conn    *wire.Conn
	process *spawn.Process
}

// startHelper starts a helper. In its own user namespace it has the ids of a slot.
func (r *Room) startHelper(slot uint32, namespaces uintptr) (*helper, error) {
	attr := &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true, Pdeathsig: syscall.SIGKILL}
	if namespaces != 0 {
		r.ids.mapTo(attr, r.ids.firstOf(slot), spawn.SlotSize)
	}
	conn, fd3, err := wire.Pair(wire.MaxMessage)
	if err != nil {
		return nil, err
	}
	process, err := spawn.Start(r.keeper.binary, fd3, nil, attr, spawn.Placement{})
	fd3.Close()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("start a process for it: %w", err)
	}
	return &helper{conn, process}, nil
}

// run sends a helper its task, and waits for the answer.
func (h *helper) run(ctx context.Context, as wire.Role, spec any, files *wire.Files) (wire.Message, error) {
	if err := h.conn.Handshake(ctx, as, spec, files); err != nil {
		return wire.Message{}, fmt.Errorf("start a process for it: %w", err)
	}
	defer h.conn.Deadline(ctx, helperTimeout)()
	m, _, err := h.conn.Expect(wire.KindReady, 0)
	return m, link.CauseOf(ctx, err)
}

func (h *helper) end() {
	h.conn.Close()
	h.process.Kill()
}
