package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestReadWasmDist checks that a distribution that is not mounted is no error, and that one whose lock
// file cannot be read is.
func TestReadWasmDist(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status       int
		answer       string
		found, fails bool
	}{
		"none":       {status: http.StatusNotFound, answer: `{"code":404,"message":"path does not exist"}`},
		"whole":      {status: http.StatusOK, answer: `{"packages":{"a":{"file_name":"a.whl","sha256":"1","package_type":"package","depends":["b"]}}}`, found: true},
		"unreadable": {status: http.StatusInternalServerError, answer: `{"code":500,"message":"input/output error"}`, fails: true},
		"garbage":    {status: http.StatusOK, answer: "x", fails: true},
	} {
		s := newService(t)
		s.files = func(w http.ResponseWriter, r *http.Request) {
			if got, want := r.URL.Query().Get("path"), protocol.PyodideDist+"/"+protocol.PyodideLock; got != want {
				t.Errorf("%s: got the path %s, want %s", name, got, want)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.answer)
		}
		dist, err := readWasmDist(t.Context(), s.sandbox())
		if (dist != nil) != tt.found || (err != nil) != tt.fails {
			t.Errorf("%s: got %v and error %v", name, dist, err)
		}
		if dist != nil {
			one := dist.find("a.whl")
			if one == nil || one.SHA256 != "1" || one.Type != "package" || !slices.Equal(one.Depends, []string{"b"}) {
				t.Errorf("%s: got %+v", name, one)
			}
		}
	}
}

// TestCheckDist checks that only a file of the distribution is compared with the distribution's lock file,
// and that each difference is refused.
func TestCheckDist(t *testing.T) {
	t.Parallel()
	const file = "file://" + protocol.PyodideDist
	dist := &wasmDist{Packages: map[string]distPackage{
		"a":   {File: "a.whl", SHA256: sumA, Depends: []string{"b"}},
		"b":   {File: "b.whl", SHA256: sumB, Type: "package", Depends: []string{"lib"}},
		"lib": {File: "lib.zip", Type: "shared_library"},
	}}
	for _, tt := range []struct{ from, sum, want string }{
		{file + "/a.whl", sumA, ""},
		{file + "/a.whl", sumB, "a.whl of the Pyodide distribution: its digest is " + sumB + ", and its lock file says " + sumA},
		{file + "/c.whl", sumA, "c.whl of the Pyodide distribution: its lock file does not have it"},
		{file + "/b.whl", sumB, "b.whl of the Pyodide distribution: it needs lib, a shared library"},
		{file + "/deeper/c.whl", sumA, ""},
		{"file:///c.whl", sumA, ""},
		{"https://packages.example" + protocol.PyodideDist + "/c.whl", sumA, ""},
		{"\x00", sumA, ""},
	} {
		lock := &LockFile{Packages: []LockedPackage{{SHA256: []string{sumA}}, {SHA256: []string{tt.sum}}}}
		from := []string{"https://packages.example/x.whl", tt.from}
		err := (&pipRun{wasm: &wasmPython{dist: dist}}).checkDist(t.Context(), lock, from)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q with %.4s: got error %v, want %q", tt.from, tt.sum, err, tt.want)
		}
		must.Do(t, (&pipRun{wasm: &wasmPython{}}).checkDist(t.Context(), lock, from))
	}
}

// TestWasmArguments checks the arguments and the words about pip's failures for a Python in WebAssembly,
// with a mounted distribution and without one. Another Python has pip's own.
func TestWasmArguments(t *testing.T) {
	t.Parallel()
	const failed = "ERROR: No matching distribution found for numpy==9\n"
	var own *wasmPython
	if got := own.arguments([]string{"install", "x"}); !slices.Equal(got, []string{"install", "x"}) {
		t.Errorf("arguments of another Python: got %q", got)
	}
	if got := own.explain(failed); got != "" {
		t.Errorf("words about another Python: got %q", got)
	}
	w := &wasmPython{Version: "3.13.2", Platforms: []string{"one", "two"}}
	accepted := []string{"--only-binary", ":all:", "--python-version", "3.13", "--implementation", "cp", "--abi", "cp313", "--platform", "one", "--platform", "two"}
	given := append(make([]string, 0, 100), "download", "x")
	want := slices.Concat(given, accepted)
	if got := w.arguments(given); !slices.Equal(got, want) {
		t.Errorf("download: got %q, want %q", got, want)
	}
	if got := given[:3][2]; got != "" {
		t.Errorf("the caller's arguments were changed: %q", got)
	}
	if got, want := w.arguments([]string{"install", "x"}), slices.Concat([]string{"install", "x"}, accepted, []string{"--target", "/tmp/nowhere"}); !slices.Equal(got, want) {
		t.Errorf("install: got %q, want %q", got, want)
	}
	if got := w.explain(failed); !strings.HasPrefix(got, "numpy==9: the index has no wheel for Python 3.13.2 in WebAssembly (one, two)") || !strings.Contains(got, "--pyodide-dist") {
		t.Errorf("words without a distribution: got %q", got)
	}
	if got := w.explain("ERROR: another"); got != "" {
		t.Errorf("words about another failure: got %q", got)
	}
	w.dist = &wasmDist{}
	if got, want := w.arguments(given), append(want, "--find-links", protocol.PyodideDist); !slices.Equal(got, want) {
		t.Errorf("download with a distribution: got %q, want %q", got, want)
	}
	if got := w.explain(failed); !strings.HasSuffix(got, "; nor has the Pyodide distribution of the local cloud") {
		t.Errorf("words with a distribution: got %q", got)
	}
}

// TestNoWheelsToInstall checks that nothing is started in the sandbox for an empty lock.
func TestNoWheelsToInstall(t *testing.T) {
	t.Parallel()
	must.Do(t, new(Packages).installWheels(t.Context(), nil, &LockFile{}, nil)) // there is no sandbox to start it in
}

// TestInstallErrorText checks the text of each failed installation, and that only an index which did not
// answer makes another try useful.
func TestInstallErrorText(t *testing.T) {
	t.Parallel()
	const rules, locked = "its network rules allow", "; the lock says \"Python 3\""
	for name, tt := range map[string]struct {
		err       InstallError
		has, has2 string
		hasNot    string
		retryable bool
	}{
		"pip's":       {err: InstallError{why: "no"}, has: "sandbox: install a b: pip ended with status 7: no", hasNot: "lock"},
		"locked":      {err: InstallError{why: "no", lock: "Python 3"}, has: "status 7: no" + locked, hasNot: rules},
		"offline":     {err: InstallError{why: "no", Offline: true}, has: "status 7: no; ", has2: rules},
		"unreachable": {err: InstallError{why: "timed out", lock: "Python 3", Unreachable: true}, has: "could not be asked: timed out", hasNot: locked, retryable: true},
		"cut off":     {err: InstallError{why: "timed out", Unreachable: true, Offline: true}, has: "could not be asked: timed out", has2: rules},
		"refused":     {err: InstallError{why: "403 no", Unreachable: true}, has: "could not be asked: 403 no"},
		"busy":        {err: InstallError{why: "503 no", Unreachable: true}, has: "could not be asked: 503 no", retryable: true},
		"certificate": {err: InstallError{why: "bad Certificate", Unreachable: true}, has: "could not be asked: bad Certificate"},
		"hash":        {err: InstallError{HashMismatch: true, lock: "Python 3"}, has: "what the index gives is not what the lock has" + locked},
		"wasm":        {err: InstallError{why: "no", Stderr: "No matching distribution found for x", wasm: &wasmPython{}}, has: "x: the index has no wheel", hasNot: ": no"},
	} {
		tt.err.ExitCode, tt.err.Requirements = 7, []string{"a", "b"}
		text := tt.err.Error()
		if !strings.Contains(text, tt.has) || !strings.Contains(text, tt.has2) || tt.hasNot != "" && strings.Contains(text, tt.hasNot) {
			t.Errorf("%s: got %q, want it with %q and %q, without %q", name, text, tt.has, tt.has2, tt.hasNot)
		}
		if got := errors.Is(&tt.err, api.ErrRetryable); got != tt.retryable {
			t.Errorf("%s: another try may mend it: got %v, want %v", name, got, tt.retryable)
		}
	}
}

// TestBackground checks that work in the background goes on after its call was cut off, has a limit of its
// own, and keeps no timer when it is done.
func TestBackground(t *testing.T) {
	t.Parallel()
	sb := newService(t).sandbox()
	call, cancel := context.WithCancel(t.Context())
	cancel()
	var during error
	var limited bool
	var work context.Context
	sb.background(call, func(ctx context.Context) {
		during = ctx.Err()
		_, limited = ctx.Deadline()
		work = ctx
	})
	sb.running.Wait()
	if during != nil || !limited {
		t.Errorf("during the work: got error %v and a deadline %v, want none and one", during, limited)
	}
	if err := work.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("after the work: got error %v, want %v", err, context.Canceled)
	}
}
