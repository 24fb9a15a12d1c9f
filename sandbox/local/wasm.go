package local

import (
	"context"
	"io"
	"runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv"
)

// WasmParams configures sandboxes of [EngineWasm]. A zero field means its default.
type WasmParams struct {
	// PyodideDist is the directory of a full Pyodide distribution, unpacked, of the version
	// that SetupWasm prepares. [sandbox.Packages] uses it for packages that no index has for
	// WebAssembly, such as numpy and pandas. It checks each file against the digests in the
	// distribution's pyodide-lock.json. All users must be able to read the directory, because
	// pip runs in a sandbox of [EngineRoom] and sees it as /opt/pyodide.
	PyodideDist string
}

// WithWasm configures [EngineWasm]. It does not select that engine: [WithEngine] does, or a
// template of the engine, such as base-wasm.
func WithWasm(p WasmParams) Option { return func(s *settings) { s.wasm = p } }

// SetupWasmParams are the optional parameters of [SetupWasm].
type SetupWasmParams struct {
	// From is a directory with npm packages to use instead of downloads. The files have the
	// names that `npm pack` gives them.
	From string
}

// SetupWasm prepares this machine for [EngineWasm]. It downloads fixed versions of Deno and
// Pyodide with known digests through this machine's npm, without running their scripts. It then
// makes a snapshot of a Python that is ready to run code. They are stored in the cache
// directory; later calls return at once, or prepare it again if it is damaged. Versions that
// have not been used for 30 days are removed.
//
// SetupWasm writes its progress to progress, which may be nil. It returns the directory. The
// error is [ErrUnsupported] on other systems than Linux.
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
