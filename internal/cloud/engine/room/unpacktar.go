//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// UnpackTar makes a layer in dir from a layer of a container image, see [layer.Untar]. The layers
// in below and dir are on one mount. UnpackTar cannot return while a Read of tar is blocked. The
// caller must end such a Read.
//
// If sandboxes have a single id, all files of the layer belong to root. There are no other owners,
// because the account user then is the same account as root.
func (r *Room) UnpackTar(ctx context.Context, below []string, tar io.Reader, dir string) error {
	if err := r.unpackTar(ctx, below, tar, dir); err != nil {
		return fmt.Errorf("room: unpack a layer of an image to %s: %w", dir, err)
	}
	return nil
}

func (r *Room) unpackTar(ctx context.Context, below []string, tar io.Reader, dir string) error {
	if err := r.report.Promises.Check(engine.Images); err != nil {
		return err
	}
	if err := checkClean(dir); err != nil {
		return err
	}
	if _, err := r.readLayers(below, true); err != nil {
		return err
	}
	trees := filepath.Join(dir, layer.Trees)
	if err := os.Mkdir(trees, 0o755); err != nil {
		return err
	}
	top, in := together(append([]string{trees}, below...))
	spec := &wire.TarSpec{To: in(trees, "0"), IDs: int(r.report.IDs)}
	for _, l := range slices.Backward(below) {
		spec.Below = append(spec.Below, in(l, layer.Trees, "0"))
	}
	if err := r.feed(ctx, top, wire.LayersSpec{Tar: spec}, tar); err != nil {
		return err
	}
	return layer.Manifest{Layout: r.layout(), Whole: len(below) == 0, Trees: []string{""}}.Write(dir)
}

// pipeSize limits the bytes that wait in the pipe to the process that unpacks a layer. Most kernels
// allow a pipe of this size.
const pipeSize = 1 << 20

// layerPipe returns a pipe to a process that makes a layer.
func layerPipe() (read, write *os.File, err error) {
	read, write, err = os.Pipe()
	if err == nil {
		_, _ = unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	}
	return read, write, err
}

// feed is like runLayers, but also copies the tar from a reader to the process through a pipe.
func (r *Room) feed(ctx context.Context, dir string, spec wire.LayersSpec, from io.Reader) error {
	read, write, err := layerPipe()
	if err != nil {
		return err
	}
	fed := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{write}, struct{ io.Reader }{from}, make([]byte, pipeSize/4))
		write.Close()
		fed <- err
	}()
	_, err = r.runLayers(ctx, dir, spec, wire.Lent(wire.FileTar, read))
	read.Close()
	failed := <-fed
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil && !errors.Is(failed, unix.EPIPE): // otherwise the process stopped reading because it had read enough
		return failed
	}
	return err
}
