package local

import (
	"context"
	"io"
	"runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
)

// WasmParams configures sandboxes of [EngineWasm]. Zero values are the defaults.
type WasmParams struct {
	// PyodideDist is the directory of a full Pyodide distribution, unpacked, of the
	// version that SetupWasm prepares. [sandbox.Packages] takes from it packages that no
	// index has for WebAssembly, such as numpy and pandas, and checks each file against
	// the digests in its pyodide-lock.json. Everybody must be able to read the directory,
	// because pip runs in a sandbox of [EngineRoom] and sees it as /opt/pyodide.
	PyodideDist string
}

// WithWasm configures [EngineWasm]. It does not choose it: [WithEngine] does, or a template
// of that engine, such as base-wasm.
func WithWasm(p WasmParams) Option { return func(s *settings) { s.wasm = p } }

// SetupWasmParams are the optional parameters of [SetupWasm].
type SetupWasmParams struct {
	// From is a directory with the packages of npm to take in place of fetched ones, under
	// the names that `npm pack` gives them.
	From string
}

// SetupWasm prepares this machine for [EngineWasm]: it fetches Deno and Pyodide through the npm of
// this machine, in fixed versions with known digests, without running anything that comes with
// them, and makes a snapshot of a Python that is ready to run code. They are kept in the cache
// directory; later calls return at once, or prepare it again if it is damaged. Versions that have
// not been used for 30 days are removed. It reports its progress to progress, which may be nil.
// The result is the directory. Where there is no Linux the error is [ErrUnsupported].
func SetupWasm(ctx context.Context, progress io.Writer, params *SetupWasmParams) (string, error) {
	if params == nil {
		params = &SetupWasmParams{}
	}
	if err := onLinux(EngineWasm, runtime.GOOS); err != nil {
		return "", err
	}
	env, err := wasmenv.Setup(ctx, progress, params.From)
	if err != nil {
		return "", err
	}
	return env.Dir, nil
}
