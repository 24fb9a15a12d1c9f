package wasmenv

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
	"github.com/e2bctl/e2bctl/internal/cloud/setupdir"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

//go:embed deno/*.mjs
var programs embed.FS

// Names of files in the directory of an [Env].
const (
	denoName     = "deno"
	pyodideName  = "pyodide"  // a directory
	mainName     = "main.mjs" // the program of a kernel
	makerName    = "snapshot.mjs"
	snapshotName = "snapshot"
	sizesName    = "sizes.json" // sizes of all other files
)

var (
	// ErrNotSetUp reports that the machine is not prepared.
	ErrNotSetUp = errors.New("there are no Deno and Pyodide for sandboxes of WebAssembly: run `e2bctl local setup --engine wasm`")
	// ErrDamaged reports that files were removed or changed after the machine was prepared.
	ErrDamaged = errors.New("the programs that sandboxes of WebAssembly run were removed or changed: run `e2bctl local setup --engine wasm`, and start the local cloud again")
)

// Env is the environment for sandboxes of WebAssembly, in a directory that [Setup] has prepared.
type Env struct{ Dir string }

// Find returns the Env that [Setup] prepared for this version of the program. If there is no such
// Env, the error matches [ErrNotSetUp]. If files of it are missing, the error matches [ErrDamaged].
// Any other error means that this system does not support sandboxes of WebAssembly.
func Find() (*Env, error) {
	if _, err := packages(system()); err != nil { // a setup would not help
		return nil, err
	}
	dir, err := home()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("wasm: %w (%w)", ErrNotSetUp, err)
	}
	if err := Check(dir); err != nil {
		return nil, err
	}
	return &Env{dir}, nil
}

// Check returns an error if the files that [Setup] wrote to a directory are missing or have
// other sizes. The error matches [ErrDamaged].
func Check(dir string) error {
	sizes := map[string]int64{}
	content, err := os.ReadFile(filepath.Join(dir, sizesName))
	if err == nil {
		err = json.Unmarshal(content, &sizes)
	}
	if err != nil {
		return fmt.Errorf("wasm: %s: %w (%w)", dir, ErrDamaged, err)
	}
	for name, want := range sizes {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.Size() != want {
			err = fmt.Errorf("%s has %d bytes, not %d", name, info.Size(), want)
		}
		if err != nil {
			return fmt.Errorf("wasm: %s: %w (%w)", dir, ErrDamaged, err)
		}
	}
	return nil
}

// writeSizes writes the sizes that [Check] compares.
func writeSizes(dir string) error {
	sizes := map[string]int64{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sizes[name] = info.Size()
		}
		return err
	})
	if err != nil {
		return err
	}
	content, err := json.Marshal(sizes)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, sizesName), content, 0o644))
}

// used is the marker file of an [Env]. Its modification time is the time of the Env's last use.
const used = setupdir.Marker(snapshotName)

// NoteUse records that the Env is in use, as [setupdir.Marker.NoteUse] does. Later versions of
// this program remove an Env that is no longer used.
func (e *Env) NoteUse() { used.NoteUse(e.Dir) }

// home returns the directory of this version. The directory is private to this user, because
// the programs in it run as this user.
func home() (string, error) {
	cache, err := privatedir.Make("wasm", privatedir.Cache)
	if err != nil {
		return "", fmt.Errorf("wasm: the directory for Deno and Pyodide: %w", err)
	}
	digest, err := digest()
	if err != nil {
		return "", fmt.Errorf("wasm: %w", err)
	}
	return filepath.Join(cache, digest), nil
}

// digest returns a digest of all sources from which the directory of an [Env] is created.
func digest() (string, error) {
	hash := sha256.New()
	hash.Write(lockFile)
	for _, files := range []fs.FS{programs, python.Files()} {
		err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := fs.ReadFile(files, name)
			fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// Sizes of WebAssembly memory. minPages and maxPages are numbers of pages of 64 KiB each.
const (
	pageSize = 64 << 10
	minPages = 64 << 20 / pageSize // the need of Python itself, and a small reserve
	maxPages = 4 << 30 / pageSize  // the maximum of WebAssembly
	overhead = 256 << 20           // the need of Deno in addition to Python's memory: 180 MiB, and compiled code
)

// ReservedBytes is the memory in bytes that Deno maps for compiled code and hardly uses. V8
// maps 512 MiB for each of the two threads that run JavaScript. A limit of mapped memory must
// include it, in addition to the memory that the process may use.
const ReservedBytes = 2 * 512 << 20

// Command returns the command of a kernel. The kernel's process may use memory bytes, and may
// only read and write files below places. If memory is 0, there is no limit. Command returns an
// error if Deno does not accept the name of a place.
func Command(dir string, places []string, memory uint64) ([]string, error) {
	for _, place := range append([]string{dir}, places...) {
		if strings.ContainsRune(place, ',') || !filepath.IsAbs(place) {
			return nil, fmt.Errorf("wasm: Deno cannot be shown %q: its path has a comma, or is not absolute", place)
		}
	}
	pages := uint64(maxPages)
	if memory > 0 {
		pages = min(max(memory, overhead+minPages*pageSize)-overhead, maxPages*pageSize) / pageSize
		pages = max(pages, minPages)
	}
	write := []string{}
	if len(places) > 0 { // an empty list would allow everything
		write = append(write, "--allow-write="+strings.Join(places, ","))
	}
	command := append([]string{filepath.Join(dir, denoName), "run"}, sealed...)
	command = append(command, fmt.Sprintf("--v8-flags=--wasm-max-mem-pages=%d", pages), "--allow-read="+strings.Join(append([]string{dir}, places...), ","))
	command = append(command, write...)
	return append(command, filepath.Join(dir, mainName)), nil
}

// sealed contains flags that keep Deno from fetching modules, asking questions and searching
// for files.
var sealed = []string{"--quiet", "--no-config", "--no-remote", "--no-npm", "--no-prompt", "--no-lock", "--cached-only"}

// cacheDir is Deno's directory for compiled code. The path is below /dev/null, which is not a
// directory, so that Deno cannot create cacheDir. At any other path Deno would create cacheDir, at
// least as root. Without this directory, Deno does not cache code.
const cacheDir = "/dev/null/deno"

// Environ returns the environment for the command of [Command]. The environment for the code in a
// sandbox is passed to the program separately, because some variables would affect Deno.
func Environ() []string {
	return []string{"DENO_DIR=" + cacheDir, "DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1"}
}
