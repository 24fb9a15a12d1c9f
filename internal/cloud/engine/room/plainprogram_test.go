//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// withDetector is the Options.Binary of rooms whose processes have the race detector, if this program
// has it: those of tests in which many things happen at once in a room or in a sandbox.
const withDetector = "/proc/self/exe"

// plainProgram returns the path of the tests' program without the race detector. With the detector, each
// stage of each sandbox takes three times as much processor time to start. This program is the server of
// the tests, so the server's side always has the detector if the tests have it.
func plainProgram(t testing.TB) string {
	t.Helper()
	if !raceDetector {
		return withDetector
	}
	path, err := builtPlain()
	must.Do(t, err)
	return path
}

// builtPlain builds the program once. Its file has no name: the path is that of an open descriptor.
var builtPlain = sync.OnceValues(func() (_ string, err error) {
	dir, err := os.MkdirTemp("", "room-test-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "room.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(out)))
	}
	plainFile, err = os.Open(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d", plainFile.Fd()), nil
})

// plainFile keeps the program that builtPlain has built.
var plainFile *os.File
