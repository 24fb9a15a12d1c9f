package docker

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// errUnseen means that the daemon does not see this server's files.
var errUnseen = engine.Lackf(engine.Mounts, "the daemon has other files or mounts than this server: it is on another machine, or one of the two is in a container or has a /tmp of its own: start the server where the daemon is, or set TMPDIR to a directory in which the daemon sees the mounts of the server")

// noMounts returns the reason why this engine cannot mount directories of the host; "" means that it
// can. If a mount does not map the ids, root in a container has the rights of the host's root on the
// mount. A daemon cannot make mounts that map ids. Therefore this server makes them, and must run as
// root.
func (e *Engine) noMounts() string {
	switch {
	case !isLocal(e.host):
		return "the daemon may be on another machine: " + e.host
	case !canShow:
		return "only on Linux can a mount keep a container's root from being root of the files"
	case os.Geteuid() != 0:
		return "only a server that is root can make mounts that keep a container's root from being root of the files: start it as root"
	case hasSecurity(e.info, "rootless") || hasSecurity(e.info, "userns"):
		return "the daemon gives containers other ids (rootless or userns-remap), by which mounts do not know whose files they are: use a daemon that does not"
	}
	return ""
}

// dropped returns the capabilities that a container loses. In a writable directory of the host, a
// container must not create device nodes or programs with capabilities, because these would grant
// rights on the host.
func (e *Engine) dropped(mounts []engine.Mount) []string {
	for _, m := range mounts {
		if m.Writable {
			return append([]string{"MKNOD", "SETFCAP"}, e.options.CapDrop...)
		}
	}
	return e.options.CapDrop
}

// show attaches the mounts for a container that has not started, and maps their owners to the user of
// the container's commands. Before and after it attaches the mounts, it checks that the daemon sees
// the same files as this server.
func (e *Engine) show(ctx context.Context, container, user string, h *handover) error {
	if h == nil {
		return nil
	}
	if err := e.seesMark(ctx, container, h, true); err != nil {
		return err
	}
	uid, gid, err := e.idsOf(ctx, container, user)
	if err != nil {
		return fmt.Errorf("find out which user the mounts are for: %w", err)
	}
	if err := h.attach(e.program.file, uid, gid); err != nil {
		return err
	}
	return e.seesMark(ctx, container, h, false)
}

// seesMark checks which marks the daemon sees. A mark is in each subdirectory of the handover. If
// want is true, the daemon must see all marks. If want is false, it must see no mark.
func (e *Engine) seesMark(ctx context.Context, container string, h *handover, want bool) error {
	for _, m := range h.mounts {
		_, err := e.client.ContainerStatPath(ctx, container, client.ContainerStatPathOptions{Path: path.Join(m.Path, h.mark())})
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("ask the daemon for its view of %s: %w", m.Path, err)
		}
		if (err == nil) != want {
			return fmt.Errorf("the directory %s for %s: %w", m.Dir, m.Path, errUnseen)
		}
	}
	return nil
}

// unseen replaces the error of a daemon that does not find the handover. The new error explains the
// reason.
func (h *handover) unseen(err error) error {
	if h == nil || !strings.Contains(err.Error(), h.dir) {
		return nil
	}
	return fmt.Errorf("%w (it says: %w)", errUnseen, err)
}
