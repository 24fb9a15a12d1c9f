// Package linuxprogram has the first process of containers for servers that cannot be it
// themselves: because they run on another system, on another processor than the daemon's, or
// are linked to libraries that a container may not have. Release builds carry it, packed.
// Other ones have it compiled once, by the Go of this machine, from the sources that they were
// built from themselves.
package linuxprogram

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// Architectures are those that there can be a program for, as Go names them.
func Architectures() []string { return []string{"amd64", "arm64"} }

// ErrNone: the program has not been prepared. The text says how it is.
var ErrNone = errors.New("none is prepared: run `e2bctl local setup --engine docker` (local.SetupDocker in a program) once, with this version")

const (
	name       = "contained"         // of the program in its directory
	making     = "making-"           // begins the directory of one that is not finished
	abandoned  = 24 * time.Hour      // after that nobody makes it any longer
	keptUnused = 30 * 24 * time.Hour // a program of another version
	noteEvery  = 24 * time.Hour      // how often its use is noted
	maxProgram = 256 << 20           // bytes
	readable   = 0o755               // by any user of a container
)

// Find returns the path of the program for an architecture, or an error that matches [ErrNone].
func Find(architecture string) (string, error) {
	o, err := originOf(architecture)
	if err != nil {
		return "", err
	}
	path, err := o.find()
	if errors.Is(err, os.ErrNotExist) {
		if o.packed == nil {
			return "", fmt.Errorf("for %s %w", architecture, ErrNone)
		}
		return o.make(context.Background(), io.Discard)
	}
	return path, err
}

// Make returns the path of the program for an architecture, which it makes if need be, and
// writes what it does to progress. Any number of processes may do so at once.
func Make(ctx context.Context, progress io.Writer, architecture string) (string, error) {
	o, err := originOf(architecture)
	if err != nil {
		return "", err
	}
	path, err := o.find()
	if errors.Is(err, os.ErrNotExist) {
		return o.make(ctx, progress)
	}
	return path, err
}

// origin is where the program for one architecture comes from.
type origin struct {
	architecture string
	packed       []byte // what this build carries; nil: it is compiled
	source       source
	key          string // of this version of it, in the cache
}

func originOf(architecture string) (origin, error) {
	o := origin{architecture: architecture}
	if !slices.Contains(Architectures(), architecture) {
		return o, fmt.Errorf("there is no program for containers on %s, only for %s", architecture, strings.Join(Architectures(), " and "))
	}
	if packed, err := carried.ReadFile("linux_" + architecture + ".gz"); err == nil {
		o.packed, o.key = packed, keyOf(packed)
		return o, nil
	}
	var err error
	if o.source, err = ownSource(); err == nil {
		o.key, err = o.source.key()
	}
	if err != nil {
		return o, fmt.Errorf("the sources of this program: %w", err)
	}
	return o, nil
}

func keyOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// home is the directory of all versions.
func home() (string, error) { return privatedir.Make("linux", privatedir.Cache, privatedir.Temporary) }

// find returns the program, which it notes the use of, or an error that matches
// [os.ErrNotExist].
func (o origin) find() (string, error) {
	dir, err := home()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, o.key+"-"+o.architecture, name)
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if now := time.Now(); now.Sub(info.ModTime()) > noteEvery {
		_ = os.Chtimes(path, now, now) // or it is made again some day
	}
	return path, nil
}

func (o origin) make(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := home()
	if err != nil {
		return "", err
	}
	removeUnused(dir)
	made, err := os.MkdirTemp(dir, making)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(made) }() // it is removed later, else
	path := filepath.Join(made, name)
	if o.packed != nil {
		err = unpack(o.packed, path)
	} else {
		err = o.source.build(ctx, progress, o.architecture, path)
	}
	if err == nil {
		err = os.Chmod(path, readable)
	}
	if err != nil {
		return "", fmt.Errorf("the program of containers for %s: %w", o.architecture, err)
	}
	err = os.Rename(made, filepath.Join(dir, o.key+"-"+o.architecture))
	if path, found := o.find(); found == nil { // another process may have been faster
		return path, nil
	}
	return "", err
}

// unpack writes what a release build carries.
func unpack(packed []byte, path string) error {
	from, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.LimitReader(from, maxProgram))
	return errors.Join(err, from.Close(), to.Close())
}

// removeUnused removes what was left by a process that was killed, and versions that nobody has
// used for a long time. What cannot be removed only takes up space.
func removeUnused(dir string) {
	all, _ := os.ReadDir(dir)
	for _, entry := range all {
		one := filepath.Join(dir, entry.Name())
		used, kept := filepath.Join(one, name), keptUnused
		if strings.HasPrefix(entry.Name(), making) {
			used, kept = one, abandoned
		}
		if info, err := os.Stat(used); err == nil && time.Since(info.ModTime()) > kept {
			_ = os.RemoveAll(one)
		}
	}
}
