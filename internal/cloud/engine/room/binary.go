//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// openBinary opens the binary for re-execution: the file at path, or the running program if path is
// "". If a process with the ids of the room may not execute the binary, openBinary makes a copy of
// the binary in dir and opens the copy.
func openBinary(path, dir string) (*os.File, error) {
	if path == "" {
		path = "/proc/self/exe" // works even if the file was replaced or removed in the meantime
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a program", path)
	}
	if info.Mode()&0o005 == 0o005 || os.Geteuid() != 0 {
		return f, nil
	}
	defer f.Close()
	name := filepath.Join(dir, "envd")
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return nil, err
	}
	_, err = to.ReadFrom(f)
	if err := errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// notOurs returns the error for a failed first handshake with the re-executed binary. If the binary
// is perhaps not e2bctl, the error names the remedy.
func notOurs(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, wire.ErrPeerEnded) {
		return fmt.Errorf("the binary did not become an envd, name one that does, e2bctl itself, with local.WithBinary(path): %w", err)
	}
	return err
}
