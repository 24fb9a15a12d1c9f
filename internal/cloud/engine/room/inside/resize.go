//go:build linux

package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// resize changes the disk of a sandbox, and the memory and the processors that its programs count.
func (r *roomProcess) resize(m wire.Message, files *wire.Files) error {
	var spec wire.ResizeSpec
	if err := wire.DecodeSpec(m.Spec, &spec); err != nil {
		return err
	}
	tree, err := files.Take(wire.FileFiles)
	if err != nil {
		return err
	}
	defer tree.Close()
	p := r.process(m.ID)
	if p == nil {
		return nil // the server learns of the sandbox's end
	}
	answer := wire.Message{Kind: wire.KindResized, ID: m.ID}
	if spec.Disk > 0 {
		err = resizeDisk(tree, spec.Disk)
	}
	if err == nil && len(spec.Processors) > 0 {
		err = recount(tree, p.Pid, spec.Processors)
	}
	if err == nil && spec.Memory > 0 {
		r.meminfos.resize(m.ID, uint64(spec.Memory))
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return r.server.Send(answer)
}

// diskSize returns the options of a tmpfs with this number of bytes. An inode takes about 1 KiB of the
// kernel's memory, which the size does not count.
func diskSize(bytes int64) (size, inodes string) {
	return strconv.FormatInt(bytes, 10), strconv.FormatInt(bytes>>10, 10)
}

// resizeDisk changes the size of the tmpfs whose root is open as tree. The kernel refuses a size below
// the use.
func resizeDisk(tree *os.File, bytes int64) error {
	fsfd, err := unix.Fspick(int(tree.Fd()), "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("fspick", err)
	}
	defer wire.CloseFD(fsfd)
	size, inodes := diskSize(bytes)
	return os.NewSyscallError("fsconfig", errors.Join(
		unix.FsconfigSetString(fsfd, "size", size), unix.FsconfigSetString(fsfd, "nr_inodes", inodes), unix.FsconfigReconfigure(fsfd)))
}

// recount changes the files from which the programs of a sandbox count processors: see
// showProcessors and writeSys. pid is the first process of the sandbox. A file that the sandbox does
// not have, or no longer has, is left out.
func recount(tree *os.File, pid int, processors []int) error {
	all, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	// No program of the sandbox can reach this directory.
	if err := overwrite(int(tree.Fd()), "cpuinfo", onlyProcessors(all, processors)); err != nil {
		return fmt.Errorf("write /proc/cpuinfo: %w", err)
	}
	root, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "root"))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range []string{"online", "present"} {
		// The sandbox's root may have replaced these files by anything.
		_ = overwrite(int(root.Fd()), "sys/devices/system/cpu/"+name, processorList(processors))
	}
	return nil
}

// overwrite replaces the text of a regular file below dir. It follows no links. If there is no such
// file, overwrite does nothing.
func overwrite(dir int, name string, text []byte) error {
	const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: beneath})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}
