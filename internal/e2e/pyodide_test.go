//go:build linux

package e2e

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/e2bctl/e2bctl/internal/cloud/wasmenv/wasmtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

const pyodideTag = "cp314-cp314-pyemscripten_2026_0_wasm32"

// fromIndex are the options of a sandbox that installs from an index and keeps no wheels.
func fromIndex(more ...sandbox.CreateOption) []sandbox.CreateOption {
	return append([]sandbox.CreateOption{
		sandbox.WithPackageIndex(sandbox.PackageIndex{URL: indexURL, TrustedHosts: []string{"index.test"}}), sandbox.WithWheelCache("", -1),
	}, more...)
}

// alone checks that the sandboxes of pip have ended, and that want sandboxes are left.
func alone(t *testing.T, cloud *sandboxtest.Cloud, want int) {
	t.Helper()
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	patience.Until(t, "the sandbox of pip ends", func() bool {
		n := 0
		for _, err := range client.List(t.Context(), nil) {
			must.Do(t, err)
			n++
		}
		return n == want
	})
}

// TestWasmPackages installs wheels in WebAssembly, which has neither pip nor a network.
func TestWasmPackages(t *testing.T) {
	wasmtest.Need(t)
	x := newIndex(t)
	x.add(t, "greeting", "1.0", "text = 'hello'\n", "words>=1; sys_platform == 'emscripten'", "absent; sys_platform == 'linux'")
	x.add(t, "greeting", "2.0", "import words, nothing_of_the_kind\n", "words>=1")
	x.add(t, "words", "1.5", "n = 1\n")
	x.wheels["native-1.0-cp314-cp314-manylinux_2_17_x86_64.whl"] = wheel(t, "native", "1.0", "")
	x.wheels["built-1.0-"+pyodideTag+".whl"] = wheel(t, "built", "1.0", "import sys\nplatform = sys.platform\n")
	cloud := x.cloud(t, local.WithEngine(local.EngineWasm))
	sb := cloud.Create(t, fromIndex()...)
	sandboxtest.Eval(t, sb, "1") // the default context exists before the packages

	install := func(want *sandbox.Installation, requirements ...string) {
		t.Helper()
		got, err := sb.Packages.Install(t.Context(), requirements, nil)
		must.Do(t, err)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", requirements, diff)
		}
	}
	one := &sandbox.Installation{Packages: []sandbox.InstalledPackage{{Name: "greeting", Version: "1.0"}, {Name: "words", Version: "1.5"}}}
	var out bytes.Buffer
	got, err := sb.Packages.Install(t.Context(), []string{"greeting==1.*"}, &sandbox.InstallParams{Output: &out})
	if err != nil || !strings.Contains(out.String(), "Would install greeting-1.0 words-1.5\n") {
		t.Fatalf("%+v, %v, printed %s", got, err, &out)
	}
	if diff := cmp.Diff(one, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := sandboxtest.Eval(t, sb, "import greeting, words; greeting.text, words.n"); got != "('hello', 1)" {
		t.Errorf("got %q, want %q", got, "('hello', 1)")
	}
	if x.asked("/") == 0 {
		t.Error("nobody asked the index")
	}
	install(one, "greeting==1.*")
	if n := x.asked("/"); n != 0 {
		t.Errorf("the same again made %d requests, want 0", n)
	}
	install(&sandbox.Installation{Packages: []sandbox.InstalledPackage{{Name: "built", Version: "1.0"}}}, "built")
	install(&sandbox.Installation{
		Packages:      []sandbox.InstalledPackage{{Name: "greeting", Version: "2.0"}},
		RestartNeeded: []string{"greeting"},
		NotImportable: []sandbox.ImportFailure{{Package: "greeting", Module: "greeting", Error: "ModuleNotFoundError: No module named 'nothing_of_the_kind'"}},
	}, "greeting>=2")
	install(&sandbox.Installation{Packages: []sandbox.InstalledPackage{{Name: "mine", Version: "1.0"}}}, wheelFile(t, "mine", "1.0", "n = 3\n"))
	alone(t, cloud, 1)

	// A snapshot contains them, too.
	snapshot, err := sb.Snapshot(t.Context(), nil)
	must.Do(t, err)
	if got := sandboxtest.Eval(t, cloud.Create(t, sandbox.WithTemplate(snapshot.ID)), "import built, mine, words; built.platform, mine.n, words.n"); got != "('emscripten', 3, 1)" {
		t.Errorf("in a snapshot: got %s, want ('emscripten', 3, 1)", got)
	}

	foreign := filepath.Join(t.TempDir(), "native-1.0-cp314-cp314-win_amd64.whl")
	must.Do(t, os.WriteFile(foreign, wheel(t, "native", "1.0", ""), 0o600))
	for requirement, want := range map[string]string{
		"native": "native: the index has no wheel for Python 3.14.2 in WebAssembly (pyemscripten_2026_0_wasm32, emscripten_5_0_3_wasm32), nor one for every system; numpy, pandas and more are in a full Pyodide distribution: start the local cloud with its directory (WasmParams.PyodideDist, --pyodide-dist)",
		foreign:  "native-1.0-cp314-cp314-win_amd64.whl is not a supported wheel on this platform",
	} {
		_, err := sb.Packages.Install(t.Context(), []string{requirement}, nil)
		if failed, ok := errors.AsType[*sandbox.InstallError](err); !ok || failed.Unreachable || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a *sandbox.InstallError with %q", requirement, err, want)
		}
	}
	alone(t, cloud, 2)
}

// TestWasmLock installs the packages of a lock twice: from the index, and without internet from the
// wheels that were kept.
func TestWasmLock(t *testing.T) {
	wasmtest.Need(t)
	x := newIndex(t)
	x.add(t, "greeting", "1.0", "import words\ntext = 'hello'\n", "words>=1")
	x.add(t, "words", "1.5", "n = 1\n")
	cloud := x.cloud(t, local.WithEngine(local.EngineWasm))
	options := fromIndex(sandbox.WithWheelCache(t.TempDir(), 0))
	first := cloud.Create(t, options...)
	lock, err := first.Packages.Lock(t.Context(), []string{"greeting"}, nil)
	must.Do(t, err)
	if len(lock.Packages) != 2 || !strings.HasPrefix(lock.Comment, "For CPython 3.14 on emscripten wasm32.") {
		t.Errorf("got %+v, want two packages for CPython 3.14 on emscripten", lock)
	}
	x.add(t, "words", "1.6", "n = 2\n") // the lock keeps the version
	want := &sandbox.Installation{Packages: []sandbox.InstalledPackage{{Name: "greeting", Version: "1.0"}, {Name: "words", Version: "1.5"}}}
	for i, sb := range []*sandbox.Sandbox{first, cloud.Create(t, append(options, sandbox.WithInternet(false))...)} {
		x.asked("")
		got, err := sb.Packages.InstallLock(t.Context(), lock, nil)
		must.Do(t, err)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("sandbox %d (-want +got):\n%s", i, diff)
		}
		if n := x.asked("/"); (n > 0) != (i == 0) {
			t.Errorf("sandbox %d made %d requests, want some: %v", i, n, i == 0)
		}
		if got := sandboxtest.Eval(t, sb, "import greeting; greeting.words.n"); got != "1" {
			t.Errorf("sandbox %d: got %s, want 1", i, got)
		}
	}
	// A run of an agent installs them, too, and its code may import the named ones.
	run, err := agent.Begin(t.Context(), cloud.Create(t, options...), &agent.Params{Lock: lock, Packages: []string{"greeting"}, Guard: &agent.Guard{}})
	must.Do(t, err)
	defer run.Close()
	for code, fails := range map[string]bool{"import greeting\ngreeting.text": false, "import words": true} {
		if step, err := run.Exec(t.Context(), code); err != nil || (step.Error != nil) != fails {
			t.Errorf("%s: %+v, %v, want a Python error: %v and no error", code, step, err, fails)
		}
	}
	offline := cloud.Create(t, fromIndex(sandbox.WithInternet(false))...)
	_, err = offline.Packages.Install(t.Context(), []string{"greeting"}, nil)
	if failed, ok := errors.AsType[*sandbox.InstallError](err); !ok || !failed.Offline {
		t.Errorf("without internet: got %v, want a *sandbox.InstallError with Offline", err)
	}
	if rest, err := first.Packages.Lock(t.Context(), []string{"greeting"}, nil); err != nil || len(rest.Packages) != 1 {
		t.Errorf("to lock again: got %+v, %v, want words, which is there in another version", rest, err)
	}
}

// TestWasmHostileWheel checks that a wheel cannot put files outside of the packages.
func TestWasmHostileWheel(t *testing.T) {
	wasmtest.Need(t)
	sb := sandboxtest.New(t, local.WithEngine(local.EngineWasm)).Create(t)
	pack := func(files ...string) string {
		t.Helper()
		var content bytes.Buffer
		archive := zip.NewWriter(&content)
		for _, name := range append(files, "bad-1.0.dist-info/METADATA", "bad-1.0.dist-info/WHEEL") {
			w, err := archive.Create(name)
			if err == nil {
				_, err = w.Write([]byte("Name: bad\nMetadata-Version: 2.1\nVersion: 1.0\nWheel-Version: 1.0\nRoot-Is-Purelib: true\n"))
			}
			must.Do(t, err)
		}
		path := filepath.Join(t.TempDir(), "bad-1.0-py3-none-any.whl")
		must.Do(t, errors.Join(archive.Close(), os.WriteFile(path, content.Bytes(), 0o600)))
		return path
	}
	for name, want := range map[string]string{
		"../../../../evil.py":          "would lie outside",
		"/home/user/evil.py":           "would lie outside",
		"bad-1.0.data/purelib/../../e": "would lie outside",
		"other-1.0.dist-info/METADATA": "multiple .dist-info directories",
	} {
		_, err := sb.Packages.Install(t.Context(), []string{pack(name)}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if got := sandboxtest.Eval(t, sb, "import glob, site; glob.glob('/home/user/*'), glob.glob(site.USER_SITE + '/*')"); got != "([], [])" {
		t.Errorf("there are %s, want nothing", got)
	}
	if _, err := sb.Packages.Install(t.Context(), []string{pack("bad-1.0.data/scripts/bad", "bad-1.0.data/data/etc/bad", "bad.py")}, nil); err != nil {
		t.Error(err)
	}
	if got := sandboxtest.Eval(t, sb, "import os; sorted(os.listdir(site.USER_SITE))"); !strings.Contains(got, "'bad-1.0.dist-info', 'bad.py'") || strings.Contains(got, "data") {
		t.Errorf("there are %s, want the module and what describes it", got)
	}
}

// pyodideDist makes a Pyodide distribution with the intact package tiny, and three damaged ones.
func pyodideDist(t *testing.T, python string) string {
	t.Helper()
	dir := t.TempDir()
	packages := map[string]any{"libheavy": map[string]any{"file_name": "libheavy.zip", "package_type": "shared_library"}}
	for _, name := range []string{"tiny", "damaged", "heavy", "stray"} {
		file, content := fmt.Sprintf("%s-1.0-%s.whl", name, pyodideTag), wheel(t, name, "1.0", "n = 7\n")
		must.Do(t, os.WriteFile(filepath.Join(dir, file), content, 0o644))
		sum, depends := sha256.Sum256(content), []string{}
		switch name {
		case "damaged":
			sum = sha256.Sum256(nil)
		case "heavy":
			depends = append(depends, "libheavy")
		case "stray":
			continue
		}
		packages[name] = map[string]any{"name": name, "version": "1.0", "file_name": file, "sha256": hex.EncodeToString(sum[:]), "package_type": "package", "depends": depends}
	}
	info := map[string]string{"abi_version": "2026_0", "arch": "wasm32", "platform": "emscripten_5_0_3", "python": python}
	lock, err := json.Marshal(map[string]any{"info": info, "packages": packages})
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "pyodide-lock.json"), lock, 0o644))
	must.Do(t, err)
	return dir
}

// TestWasmDist installs packages from a Pyodide distribution that no index has.
func TestWasmDist(t *testing.T) {
	wasmtest.Need(t)
	x := newIndex(t)
	x.add(t, "user", "1.0", "from tiny import n\n", "tiny")
	dist := pyodideDist(t, "3.14.2")
	cloud := x.cloud(t, local.WithEngine(local.EngineWasm), local.WithWasm(local.WasmParams{PyodideDist: dist}))
	sb := cloud.Create(t, fromIndex()...)
	if _, err := sb.Packages.Install(t.Context(), []string{"user"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := sandboxtest.Eval(t, sb, "import user; user.n"); got != "7" {
		t.Errorf("got %s, want 7", got)
	}
	// Only pip sees it, because sandboxes with mounts start later than others.
	if got := sandboxtest.Run(t, cloud.Create(t, sandbox.WithTemplate("base-room")), "ls /opt"); got != "" {
		t.Errorf("a sandbox of the room has %s in /opt, want nothing", got)
	}
	report, err := cloud.EngineReport(local.EngineWasm)
	if err != nil || !slices.ContainsFunc(report.Notes, func(note string) bool { return strings.Contains(note, dist) }) {
		t.Errorf("got the notes %q, %v, want where packages come from", report.Notes, err)
	}
	for requirement, want := range map[string]string{
		"damaged": "damaged-1.0-" + pyodideTag + ".whl of the Pyodide distribution: its digest is ",
		"heavy":   "it needs libheavy, a shared library that is no wheel, which is not supported",
		"stray":   "its lock file does not have it",
		"absent":  "nor has the Pyodide distribution of the local cloud",
	} {
		if _, err := sb.Packages.Install(t.Context(), []string{requirement}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", requirement, err, want)
		}
	}
	private := pyodideDist(t, "3.14.2")
	must.Do(t, os.Chmod(private, 0o700))
	for dir, want := range map[string]string{
		pyodideDist(t, "3.12.1"): "is for another Pyodide (Python 3.12.1, ABI 2026_0, wasm32) than that of this program (Python 3.14.2,",
		private:                  "let all read it",
		t.TempDir():              "pyodide-lock.json: no such file",
	} {
		made, err := local.Start(t.Context(), local.WithEngine(local.EngineWasm), local.WithWasm(local.WasmParams{PyodideDist: dir}))
		if err == nil {
			err = errors.Join(errors.New("it started"), made.Close())
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
}
