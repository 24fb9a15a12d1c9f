// Package linuxprogram provides the first process of containers that cannot run the program of the
// server. That program may be for another system, for another processor than the daemon's, or
// linked to libraries that a container may lack. Release builds for other systems than Linux contain the
// packed program. Other builds compile it once, with the Go of this machine, from their own sources, or
// take a static e2bctl of their version. Package contained contains the main function of this program.
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

	"github.com/e2bctl/e2bctl/internal/cloud/setupdir"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// Architectures returns the architectures for which there is a program, as values of GOARCH.
func Architectures() []string { return []string{"amd64", "arm64"} }

// ErrNone reports that the program has not been prepared. Its text contains the remedy.
var ErrNone = errors.New("none is prepared: run `e2bctl local setup --engine docker` (local.SetupDocker in a program) once, with this version")

const (
	name       = "contained"           // name of the program's file in its directory
	used       = setupdir.Marker(name) // marks the time of the last use
	maxProgram = 256 << 20             // maximum size of the program in bytes
)

// Find returns the path of the program for an architecture. If the program has not been prepared
// and this build does not contain it, the error matches [ErrNone].
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

// Make returns the path of the program for an architecture. It creates the program if
// necessary, and writes its progress to progress. Any number of processes may call it at the
// same time.
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

// Take makes the static e2bctl at the path from the program for an architecture, and returns the path
// of the copy. If a program of this version is there already, Take keeps it. The version of the e2bctl
// must be that of this program. The caller has checked that the file is for the architecture.
func Take(progress io.Writer, from, architecture string) (string, error) {
	o, err := originOf(architecture)
	if err == nil {
		err = checkVersion(from)
	}
	if err != nil {
		return "", err
	}
	o.taken = from
	return o.make(context.Background(), progress)
}

// origin describes how to create the program for one architecture: from this build, or by
// compiling it.
type origin struct {
	architecture string
	packed       []byte // program in this build; nil: it must be compiled
	taken        string // file to copy in place of that; "": none
	source       source
	unknown      error  // reason for which there is no source
	key          string // identifies this version in the cache
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
	if o.source, o.unknown = ownSource(); o.unknown != nil {
		o.key = keyOf([]byte("built " + ownVersion()))
	} else if o.key, err = o.source.key(); err != nil {
		return o, fmt.Errorf("the sources of this program: %w", err)
	}
	return o, nil
}

func keyOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// home returns the directory of the program, for the version and the architecture of o.
func (o origin) home() (string, error) {
	dir, err := privatedir.Make("linux", privatedir.Cache, privatedir.Temporary)
	return filepath.Join(dir, o.key+"-"+o.architecture), err
}

// find returns the path of the program, and notes its use. If the program does not exist, the error
// matches [os.ErrNotExist].
func (o origin) find() (string, error) {
	dir, err := o.home()
	if err == nil {
		err = check(dir)
	}
	if err != nil {
		return "", err
	}
	used.NoteUse(dir)
	return filepath.Join(dir, name), nil
}

// check returns an error if a directory does not contain a program.
func check(dir string) error {
	_, err := os.Stat(filepath.Join(dir, name))
	return err
}

func (o origin) make(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := o.home()
	if err != nil {
		return "", err
	}
	err = used.Make(dir, progress, check, func(made, _ string) error {
		path := filepath.Join(made, name)
		switch {
		case o.taken != "":
			return copyFile(o.taken, path)
		case o.packed != nil:
			return unpack(o.packed, path)
		case o.unknown != nil:
			return fmt.Errorf("the sources of this program: %w; or %s", o.unknown, remedy(o.architecture))
		}
		return o.source.build(ctx, progress, o.architecture, path)
	})
	if err != nil {
		return "", fmt.Errorf("the program of containers for %s: %w", o.architecture, err)
	}
	return o.find()
}

// copyFile copies the program at the path from to path.
func copyFile(from, path string) error {
	program, err := os.Open(from)
	if err != nil {
		return err
	}
	return errors.Join(write(program, path), program.Close())
}

// unpack unpacks to path the program that a release build contains.
func unpack(packed []byte, path string) error {
	from, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	return errors.Join(write(from, path), from.Close())
}

func write(program io.Reader, path string) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.LimitReader(program, maxProgram))
	return errors.Join(err, to.Close())
}
