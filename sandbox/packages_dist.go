package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// wasmDist is a Pyodide distribution: wheels, and a lock file with their digests.
type wasmDist struct {
	Packages map[string]distPackage `json:"packages"`
}

type distPackage struct {
	File    string   `json:"file_name"`
	SHA256  string   `json:"sha256"`
	Type    string   `json:"package_type"`
	Depends []string `json:"depends"`
}

// maxDistLock limits the bytes of the lock file. The lock file of a full distribution has 120 KB.
const maxDistLock = 16 << 20

// readWasmDist returns the Pyodide distribution that is mounted in the local cloud's sandboxes, or
// nil if there is none.
func readWasmDist(ctx context.Context, sb *Sandbox) (*wasmDist, error) {
	f, err := sb.Files.Open(ctx, path.Join(protocol.PyodideDist, protocol.PyodideLock), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nil says that there is none
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var dist wasmDist
	if err := json.NewDecoder(io.LimitReader(f, maxDistLock)).Decode(&dist); err != nil {
		return nil, fmt.Errorf("the lock file of the Pyodide distribution: %w", err)
	}
	return &dist, nil
}

// checkDist checks the files that pip uses from the Pyodide distribution against the lock file of
// the distribution. from contains the addresses of the files of lock.
func (c *pipRun) checkDist(ctx context.Context, lock *LockFile, from []string) error {
	if c.wasm.dist == nil {
		return nil
	}
	for i, one := range lock.Packages {
		address, err := url.Parse(from[i])
		if err != nil || address.Scheme != "file" || path.Dir(address.Path) != protocol.PyodideDist {
			continue
		}
		refuse := func(format string, arguments ...any) error {
			return fmt.Errorf("sandbox: install packages: %s of the Pyodide distribution: %s", clip.Text(path.Base(address.Path), 128), fmt.Sprintf(format, arguments...))
		}
		listed := c.wasm.dist.find(path.Base(address.Path))
		switch {
		case listed == nil:
			return refuse("its lock file does not have it")
		case !slices.Contains(one.SHA256, listed.SHA256):
			return refuse("its digest is %s, and its lock file says %s: the distribution is damaged, or not whole", one.SHA256[0], clip.Text(listed.SHA256, 64))
		}
		for _, name := range listed.Depends {
			if c.wasm.dist.Packages[name].Type == "shared_library" {
				return refuse("it needs %s, a shared library that is no wheel, which is not supported", clip.Text(name, 64))
			}
		}
	}
	return nil
}

func (d *wasmDist) find(file string) *distPackage {
	for _, one := range d.Packages {
		if one.File == file {
			return &one
		}
	}
	return nil
}
