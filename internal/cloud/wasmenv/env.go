package wasmenv

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

//go:embed deno/*.mjs
var programs embed.FS

// Names of files in the directory of an [Env].
const (
	denoName     = "deno"
	pyodideName  = "pyodide"  // a directory
	mainName     = "main.mjs" // what a kernel runs
	makerName    = "snapshot.mjs"
	snapshotName = "snapshot"
)

// ErrNotSetUp means that the machine is not prepared.
var ErrNotSetUp = errors.New("there are no Deno and Pyodide for sandboxes of WebAssembly: run `e2bctl local setup --engine wasm`")

// Env is a prepared directory.
type Env struct{ Dir string }

// Find returns what [Setup] prepared for this version of the program. If there is nothing
// the error matches [ErrNotSetUp].
func Find() (*Env, error) {
	dir, err := home()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("wasm: %w (%w)", ErrNotSetUp, err)
	}
	return &Env{dir}, nil
}

// NoteUse records the time of the last use, to the day. A program that uses it for a long time
// calls it repeatedly. It is best effort.
func (e *Env) NoteUse() {
	name, now := filepath.Join(e.Dir, snapshotName), time.Now()
	if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > 24*time.Hour {
		_ = os.Chtimes(name, now, now)
	}
}

// home returns the directory of this version. It is private to this user: what is in it runs
// as this user, too.
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

// digest names everything that a directory is made from.
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

// Pages of WebAssembly's memory, of 64 KiB.
const (
	pageSize = 64 << 10
	minPages = 64 << 20 / pageSize // what Python itself needs, and a little more
	maxPages = 4 << 30 / pageSize  // of WebAssembly
	overhead = 256 << 20           // what Deno takes beside the memory of Python: 180 MiB, and the code that it compiles
)

// Command returns the command of a kernel whose process may use memory bytes, 0 for no bound,
// and read and write the files below places and no others. An error says which of the places
// cannot be named to Deno.
func Command(dir string, places []string, memory uint64) ([]string, error) {
	for _, place := range places {
		if strings.ContainsRune(place, ',') || !filepath.IsAbs(place) {
			return nil, fmt.Errorf("wasm: Python cannot be shown %q: its path has a comma, or is not absolute", place)
		}
	}
	pages := uint64(maxPages)
	if memory > 0 {
		pages = min(max(memory, overhead+minPages*pageSize)-overhead, maxPages*pageSize) / pageSize
		pages = max(pages, minPages)
	}
	write := []string{}
	if len(places) > 0 { // without a value it would allow everything
		write = append(write, "--allow-write="+strings.Join(places, ","))
	}
	command := append([]string{filepath.Join(dir, denoName), "run"}, sealed...)
	command = append(command, fmt.Sprintf("--v8-flags=--wasm-max-mem-pages=%d", pages), "--allow-read="+strings.Join(append([]string{dir}, places...), ","))
	command = append(command, write...)
	return append(command, filepath.Join(dir, mainName)), nil
}

// sealed are the flags by which Deno fetches, asks and finds nothing.
var sealed = []string{"--quiet", "--no-config", "--no-remote", "--no-npm", "--no-prompt", "--no-lock", "--cached-only"}

// Environ returns the environment of the command. What code sees as its environment is told
// to the program: Deno would obey some of it.
func Environ() []string {
	return []string{"DENO_DIR=/nonexistent", "DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1"}
}
