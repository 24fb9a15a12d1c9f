//go:build linux

package reexec

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
)

// userCredential returns the credential of the default user. Deno runs as this user, because
// kernels do not need root's rights. If there is no default user, userCredential returns nil.
func userCredential(g *inside.Guest) *syscall.Credential {
	for _, u := range g.Users {
		if u.Name == defaultUser {
			return u.Credential
		}
	}
	return nil
}

// wasm returns the configuration of kernels in WebAssembly. It returns nil if kernels do not
// run in WebAssembly. Python can access the files of its user, but no files of the system.
func wasm(config *guest.Config, g *inside.Guest) (*kernel.Wasm, error) {
	if config.Wasm == nil {
		return nil, nil //nolint:nilnil // nil: kernels do not run in WebAssembly
	}
	i := slices.IndexFunc(g.Users, func(u guest.User) bool { return u.Name == defaultUser })
	if i < 0 { // otherwise, kernels would run as root
		return nil, fmt.Errorf("there is no user %s for Python to run as", defaultUser)
	}
	places := append([]string{g.Temp, "/code", g.Users[i].Home}, config.Wasm.Places...)
	places = slices.DeleteFunc(places, func(dir string) bool {
		info, err := os.Stat(dir)
		return err != nil || !info.IsDir()
	})
	command, err := wasmenv.Command(config.Wasm.Dir, places, config.Wasm.MemoryBytes)
	if err != nil {
		return nil, err
	}
	return &kernel.Wasm{
		Command: command, Environ: wasmenv.Environ(), Places: places,
		Check: func() error { return wasmenv.Check(config.Wasm.Dir) },
	}, nil
}
