package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/patience"
)

func init() { roles["full"] = fillDisk }

// fillDisk uses a store on a small disk until the disk is full, and then makes the disk read-only.
func fillDisk(dir string) error {
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	ctx := context.Background()
	s, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	if notes := strings.Join(s.Notes(), "; "); !strings.Contains(notes, "in memory") || !strings.Contains(notes, "of free space") {
		return fmt.Errorf("got notes %q, want that it is in memory and small", notes)
	}
	saved, err := save(s, "files")
	if err != nil {
		return err
	}
	if saved, err = s.Put(Sandboxes, "a", nil, saved); err != nil {
		return err
	}
	stored := 0
	for err == nil && stored < 1000 {
		if _, err = s.Put(Keys, fmt.Sprintf("k%d", stored), bytes.Repeat([]byte("x"), 10_000), ""); err == nil {
			stored++
		}
	}
	// Fill the rest, too.
	block := os.WriteFile(filepath.Join(dir, notedFill), make([]byte, 1<<20), 0o600)
	if !errors.Is(block, unix.ENOSPC) {
		return fmt.Errorf("filling the disk: got %w, want ENOSPC", block)
	}
	_, again := s.Put(Keys, "last", bytes.Repeat([]byte("x"), 10_000), "")
	for _, err := range []error{err, again} {
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "the disk is full: free space, or remove paused sandboxes") {
			return fmt.Errorf("on a full disk: got error %w, want one that says so", err)
		}
	}
	check := func() error {
		all, err := s.Records(Keys)
		if err != nil || len(all) != stored {
			return fmt.Errorf("got %d keys and error %w, want %d", len(all), err, stored)
		}
		_, err = os.Stat(filepath.Join(saved, "text"))
		return err
	}
	if err := check(); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, notedFill)), s.Close()); err != nil {
		return err
	}
	if s, err = Open(ctx, dir); err == nil {
		err = check()
	}
	if err == nil {
		err = errors.Join(s.Delete(Keys, "k0"), s.Delete(Sandboxes, "a"), s.Close())
	}
	if err != nil {
		return fmt.Errorf("with free space again: %w", err)
	}

	if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if _, err := Open(ctx, dir); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "read-only: use another directory") {
		return fmt.Errorf("on a read-only file system: got error %w, want one that says so", err)
	}

	// A disk that is too small for the database leaves none.
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=8k,mode=700"); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if _, err := Open(ctx, dir); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("on a disk of 8 KiB: got error %w, want ENOSPC", err)
	}
	for _, name := range []string{databaseFile, unfinished} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("on a disk of 8 KiB: %s is left", name)
		}
	}
	return refuseRemoval(ctx, dir)
}

// refuseRemoval checks that Reset names what cannot be removed, here a directory with a mount.
func refuseRemoval(ctx context.Context, dir string) error {
	inside := filepath.Join(dir, trash, "old", "mount")
	if err := os.MkdirAll(inside, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("none", inside, "tmpfs", 0, "size=8k"); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	if err := Reset(ctx, dir); !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("with a mount inside: got error %w, want EBUSY", err)
	}
	if err := unix.Unmount(inside, 0); err != nil {
		return err
	}
	return Reset(ctx, dir)
}

const notedFill = noted + "/fill"

// TestFullDisk runs fillDisk in a process with its own small disk, a mount in a user and mount
// namespace.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit/3) // a removal that fails must end
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), variable+"=full "+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := cmd.Run()
	if errors.Is(err, fs.ErrPermission) || strings.Contains(stderr.String(), "mounting: ") {
		t.Skipf("this machine lets nobody mount: %v: %s", err, stderr.String())
	}
	if err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
}
