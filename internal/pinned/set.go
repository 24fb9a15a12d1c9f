// Package pinned provides the pip and npm packages that tests need, at pinned versions with
// digests. `make deps` fetches them to the user's cache directory. There is one copy for each
// content of the pins, however many tests and checkouts use it. Tests only look for the fetched
// packages. So no test waits for a package index, or fails because of a package index.
package pinned

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/setupdir"
)

// A Set is a number of pinned packages, and the commands that fetch them.
// internal/testdeps lists every Set.
type Set struct {
	Name     string     // the name of the set's directory in the cache
	Pins     fs.FS      // the files that the commands read; they are copied to the set's directory first
	Commands [][]string // the commands that are run in the set's directory, one after the other
	// Finish does the remaining work after the commands; nil does nothing. When it changes, Name must change,
	// too: the name of the directory depends on all other fields, but not on Finish.
	Finish func(directory string) error
}

// Interpreter stands for the path of the prepared Python, as the program in a command of a [Set].
const Interpreter = "{python}"

// Python returns the set of the packages in a requirements.txt. The packages are installed to the
// directory lib.
func Python(name string, pins fs.FS) Set {
	return Set{Name: name, Pins: pins, Commands: [][]string{
		{Interpreter, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:", "--no-deps", "--target", "lib", "-r", "requirements.txt"},
	}}
}

// Wheels returns the set of the wheels of the packages in a requirements.txt. The wheels are kept
// in the directory wheels, so that sandboxes can install them.
func Wheels(name string, pins fs.FS) Set {
	return Set{Name: name, Pins: pins, Commands: [][]string{
		{Interpreter, "-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary=:all:", "--no-deps", "--dest", "wheels", "-r", "requirements.txt"},
	}}
}

// NPM returns the set of the packages in a package-lock.json. The packages are installed to the
// directory node_modules.
func NPM(name string, pins fs.FS) Set {
	return Set{Name: name, Pins: pins, Commands: [][]string{
		{"npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"},
	}}
}

// Folder returns the folder called name in files, the files that a Go package embeds.
func Folder(files fs.FS, name string) fs.FS {
	folder, err := fs.Sub(files, name)
	if err != nil { // the name is no path
		panic(err)
	}
	return folder
}

// complete is the name of the file that marks a directory as complete. The file contains the sizes
// of the other files. Its modification time is the time when the directory was last used.
const complete = "complete"

const used = setupdir.Marker(complete)

// directory returns the path of the set's directory in the user's cache. The directory exists once
// the set was fetched. The path depends on the pins, the commands and, if a command needs it, the
// version of Python.
func (s Set) directory() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q", s.Commands)
	if s.needsPython() {
		python, err := prepared()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s", python.Version)
	}
	err = fs.WalkDir(s.Pins, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := s.Pins.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		fmt.Fprintf(hash, "%s\x00", name)
		_, err = io.Copy(hash, file)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read its pins: %w", err)
	}
	return filepath.Join(cache, "e2bctl", "tests", s.Name, hex.EncodeToString(hash.Sum(nil)[:6])), nil
}

func (s Set) needsPython() bool {
	return slices.ContainsFunc(s.Commands, func(command []string) bool { return command[0] == Interpreter })
}

// prepared returns the Python of `e2bctl local setup`.
var prepared = sync.OnceValues(func() (*pyenv.Env, error) {
	env, err := pyenv.Find(context.Background())
	if err == nil && env.Level != pyenv.Venv {
		err = errors.New("the prepared Python is not there: " + env.Note)
	}
	return env, err
})
