package local

import (
	"context"
	"io"
	"runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
)

// WasmParams configures sandboxes of [EngineWasm]. A zero field means its default.
type WasmParams struct {
	// PyodideDist is the directory of an unpacked, full Pyodide distribution. Its version must be the
	// one that SetupWasm prepares. [sandbox.Packages] uses it for packages that no index has for
	// WebAssembly, such as numpy and pandas. Packages checks each file against the digests in the
	// distribution's pyodide-lock.json. All users must be able to read the directory, because pip runs
	// in a sandbox of [EngineRoom], where the directory is mounted as /opt/pyodide.
	PyodideDist string
}

// WithWasm configures [EngineWasm]. It does not select that engine. To select it, use [WithEngine]
// or a template of the engine, such as base-wasm.
func WithWasm(p WasmParams) Option { return func(s *settings) { s.wasm = p } }

// SetupWasmParams are the optional parameters of [SetupWasm].
type SetupWasmParams struct {
	// From is a directory with npm packages to use instead of downloads. The files have the
	// names that `npm pack` gives them.
	From string
}

// SetupWasm prepares this machine for [EngineWasm]. It downloads fixed versions of Deno and Pyodide
// with known digests through this machine's npm, without running their scripts. It then makes a
// snapshot of a Python that is ready to run code. Deno, Pyodide and the snapshot are stored in a
// directory of the cache. Later calls return at once, or prepare the directory again if it is
// damaged. SetupWasm removes versions that have not been used for 30 days.
//
// SetupWasm writes its progress to progress, which may be nil. It returns the path of the
// directory. On systems other than Linux the error is [ErrUnsupported].
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
