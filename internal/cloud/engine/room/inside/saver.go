//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// notSaved are the directories that every start makes anew: devices, kernel file systems, and
// envd's own files. Shared memory in /dev/shm ends like the memory of processes.
var notSaved = []string{"dev", "proc", "sys", "run/e2b"}

// runSaver writes the files of a frozen sandbox to a file or pipe. It gets the sandbox's file
// system or root directory. This process has the ids of the sandbox, and rights over these ids
// only. So the sandbox's files cannot make this process read or change other files.
func runSaver(c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	var spec wire.SaveSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	from, err := files.Take(wire.FileFiles)
	if err != nil {
		return err
	}
	to, err := files.Take(wire.FileTo)
	if err != nil {
		return err
	}
	if err := files.End(); err != nil {
		return err
	}
	sections := []saved.Section{}
	if spec.InPlace {
		sections = append(sections, saved.Section{Dir: from, Skip: []string{filepath.Base(place.Root{}.Run())}, FirstID: spec.FirstID})
	} else {
		at := "root"
		if spec.Layered {
			at = rootUpper
		}
		root, err := layer.OpenDir(from, at)
		if err != nil {
			return err
		}
		sections = append(sections, saved.Section{Dir: root, Skip: notSaved, Overlay: spec.Layered})
		for i, path := range spec.Trees {
			upper, err := layer.OpenDir(from, filepath.Join("upper", strconv.Itoa(i)))
			if err != nil {
				return err
			}
			if _, err := upper.Readdirnames(1); errors.Is(err, io.EOF) {
				upper.Close() // nothing was changed in it
				continue
			}
			if _, err := upper.Seek(0, io.SeekStart); err != nil {
				return err
			}
			sections = append(sections, saved.Section{Name: path, Dir: upper, Overlay: true})
		}
	}
	if err := saved.Write(to, spec.Layout, sections); err != nil {
		return err
	}
	if err := to.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // a pipe has nothing to sync
		return err
	}
	return c.Send(wire.Message{Kind: wire.KindReady})
}

// openStage opens the staging directory, this process's working directory, as a mount of its own.
// The server reads the written files through this mount when no process inside can read them.
func openStage() (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, ".", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open the files of the sandbox: %w", err)
	}
	return os.NewFile(uintptr(fd), "files"), nil
}
