// Package privatedir finds a directory for files that no other user may write. It finds such a
// directory even if the home directory does not exist or is not writable.
package privatedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Base is a directory in which e2bctl may create directories.
type Base struct {
	name     string // the name of the base in errors
	variable string // the environment variable by which users can choose another directory
	find     func() (string, error)
}

// The bases. In each of them, e2bctl has its own directory.
var (
	// Cache is a directory in the user's cache directory.
	Cache = Base{"the cache directory", "XDG_CACHE_HOME", func() (string, error) {
		cache, err := os.UserCacheDir()
		return filepath.Join(cache, "e2bctl"), err
	}}
	// State is a directory in XDG_STATE_HOME, the directory for data that must outlive a cache.
	State = Base{"the state directory", "XDG_STATE_HOME", func() (string, error) {
		if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
			return filepath.Join(state, "e2bctl"), nil
		}
		home, err := os.UserHomeDir()
		return filepath.Join(home, ".local", "state", "e2bctl"), err
	}}
	// Runtime is in XDG_RUNTIME_DIR. After su or sudo, this directory may belong to another user. Then
	// this base is not available.
	Runtime = Base{"XDG_RUNTIME_DIR", "XDG_RUNTIME_DIR", func() (string, error) {
		runtime := os.Getenv("XDG_RUNTIME_DIR")
		if runtime == "" {
			return "", errors.New("it is not set")
		}
		return filepath.Join(runtime, "e2bctl"), Check(runtime)
	}}
	// Temporary is a directory in the directory for temporary files. All users share the directory for
	// temporary files.
	Temporary = Base{"the temporary directory", "TMPDIR", func() (string, error) {
		base := filepath.Join(os.TempDir(), fmt.Sprintf("e2bctl-%d", os.Geteuid()))
		if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		return base, Check(base)
	}}
)

// Make returns the directory called name in one of the bases. It uses the first base in which this
// process can write to that directory. If the directory does not exist, Make creates it. If other
// users can write to the directory, or if no base is usable, Make returns an error.
func Make(name string, bases ...Base) (string, error) {
	dir, _, err := MakeLasting(name, bases...)
	return dir, err
}

// MakeLasting is like Make, for a directory that must outlive a restart of the machine. The first
// of bases outlives a restart. If the directory is in another base, note is the reason. Otherwise
// note is "".
func MakeLasting(name string, bases ...Base) (dir, note string, err error) {
	var refused, variables []string
	for _, base := range bases {
		dir, err := base.find()
		if err == nil {
			dir = filepath.Join(dir, name)
			err = try(dir)
		}
		if err == nil {
			if len(refused) > 0 {
				note = fmt.Sprintf("%s may be gone when the machine starts anew; it is used because of %s; set %s to a directory of your own", dir, strings.Join(refused, "; "), variables[0])
			}
			return dir, note, Check(dir)
		}
		variables = append(variables, base.variable)
		refused = append(refused, fmt.Sprintf("%s: %v", base.name, err))
	}
	return "", "", fmt.Errorf("no directory can be made: %s; set %s to a directory of your own", strings.Join(refused, "; "), strings.Join(variables, " or "))
}

// try creates dir. It returns an error if dir or a file in dir cannot be created.
func try(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%s is not an absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}
