package volumes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
)

const (
	// mountName is the name of the mount point of a volume's file system.
	mountName = "mount"
	imageType = "ext4"
)

// CheckSize creates a volume with the size in Options, as a test. If new volumes cannot have
// this size, the error matches [ErrNoSize] and contains the reason.
func (r *Registry) CheckSize(ctx context.Context) (err error) {
	if r.size == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrNoSize, err)
		}
	}()
	switch {
	case os.Geteuid() != 0:
		return errors.New("only root can mount file systems: run as root, or leave the size of volumes out")
	case r.ids.one:
		return errors.New("sandboxes have a single id here, which is no id of a file system's own: leave the size of volumes out")
	case r.size < MinSize:
		return fmt.Errorf("%d bytes are too few for a file system: a volume has at least %d MiB", r.size, MinSize>>20)
	}
	dir, err := r.store.NewDir()
	if err != nil {
		return err
	}
	v := &volume{dir: dir, size: r.size}
	err = makeImage(ctx, dir, r.size)
	if err == nil {
		_, err = r.enter(v)
	}
	return errors.Join(err, r.leave(v), r.store.Discard(dir))
}

// makeImage creates the file system of a new volume in an image file, and the mount point. The image
// file takes disk space only for the parts that are written.
func makeImage(ctx context.Context, dir string, size int64) error {
	program, err := findProgram("mkfs." + imageType)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, mountName), 0o700); err != nil {
		return err
	}
	image := filepath.Join(dir, imageName)
	file, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
		return err
	}
	// No blocks are reserved for root, because the content API has root's rights.
	command := hostprogram.Command(ctx, "", program, "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", image)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(output))
	}
	return nil
}

// findProgram finds a program for administrators. It does so even if PATH does not contain the
// directory of such programs.
func findProgram(name string) (string, error) {
	path, err := hostprogram.Find(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := hostprogram.Find(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s: install e2fsprogs", name)
}

// enter returns the directory of a volume's files. If the volume has a size and is not mounted
// yet, enter mounts it. The mount is kept until leave.
func (r *Registry) enter(v *volume) (string, error) {
	if v.size == 0 {
		return v.dir, nil
	}
	v.mounting.Lock()
	defer v.mounting.Unlock()
	if v.root == nil {
		at := filepath.Join(v.dir, mountName)
		root, err := r.mounts.mount(filepath.Join(v.dir, imageName), at)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoSize, err)
		}
		v.root = root
		if err := r.makeDirectories(rootOf(v)); err != nil {
			v.root = nil
			return "", errors.Join(err, r.mounts.unmount(root, at))
		}
		r.sweep(context.Background(), v, rootOf(v))
	}
	return rootOf(v), nil
}

// rootOf returns a path to the root of a volume's mounted file system. All threads can use the
// path, although only one thread uses the mount namespace.
func rootOf(v *volume) string { return fmt.Sprintf("/proc/self/fd/%d", v.root.Fd()) }

// leave unmounts a volume that enter mounted. The volume must not be in use.
func (r *Registry) leave(v *volume) error {
	v.mounting.Lock()
	defer v.mounting.Unlock()
	if v.root == nil {
		return nil
	}
	root := v.root
	v.root = nil
	return r.mounts.unmount(root, filepath.Join(v.dir, mountName))
}

// clone returns a mount of the files of a volume with a size, for a sandbox.
func (r *Registry) clone(v *volume) (*os.File, error) {
	v.mounting.Lock()
	defer v.mounting.Unlock()
	if v.root == nil {
		return nil, os.ErrClosed
	}
	return r.mounts.clone(v.root, filesName)
}
