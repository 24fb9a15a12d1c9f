package wasmenv

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// distInfo is the general part of the lock file of a Pyodide distribution.
type distInfo struct {
	ABI    string `json:"abi_version"`
	Arch   string `json:"arch"`
	Python string `json:"python"`
}

func (i distInfo) String() string {
	return fmt.Sprintf("Python %s, ABI %s, %s", i.Python, i.ABI, i.Arch)
}

// CheckDist returns an error if dir does not contain a Pyodide distribution. It also returns an
// error if other users cannot read the distribution, because sandboxes run as other users.
func CheckDist(dir string) error {
	_, err := readDist(dir)
	return err
}

// CheckDist returns an error if the packages of the distribution in dir are not for the Pyodide of
// e.
func (e *Env) CheckDist(dir string) error {
	got, err := readDist(dir)
	if err != nil {
		return err
	}
	want, err := readDist(filepath.Join(e.Dir, pyodideName))
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("wasm: the Pyodide distribution in %s is for another Pyodide (%v) than that of this program (%v): take the one of the same version", dir, got, want)
	}
	return nil
}

func readDist(dir string) (distInfo, error) {
	fail := func(err error) (distInfo, error) {
		return distInfo{}, fmt.Errorf("wasm: the Pyodide distribution in %s: %w", dir, err)
	}
	name := filepath.Join(dir, protocol.PyodideLock)
	for path, needed := range map[string]os.FileMode{dir: 0o005, name: 0o004} {
		info, err := os.Stat(path)
		if err != nil {
			return fail(err)
		}
		if info.Mode()&needed != needed {
			return fail(fmt.Errorf("sandboxes, which run as other users, cannot read %s: let all read it (chmod -R a+rX)", path))
		}
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return fail(err)
	}
	var lock struct {
		Info     distInfo                   `json:"info"`
		Packages map[string]json.RawMessage `json:"packages"`
	}
	if err := json.Unmarshal(content, &lock); err != nil {
		return fail(fmt.Errorf("%s: %w", protocol.PyodideLock, err))
	}
	if lock.Info.ABI == "" || len(lock.Packages) == 0 {
		return fail(fmt.Errorf("%s lists no packages", protocol.PyodideLock))
	}
	return lock.Info, nil
}
