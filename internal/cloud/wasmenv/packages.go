package wasmenv

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
)

//go:embed lock.json
var lockFile []byte

// npmPackage is an npm package.
type npmPackage struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	System    string `json:"system"` // system that the package is for; "": all systems
	Integrity string `json:"integrity"`
}

// archive returns the name of the file that `npm pack` creates for the package.
func (p npmPackage) archive() string {
	return strings.ReplaceAll(strings.TrimPrefix(p.Name, "@"), "/", "-") + "-" + p.Version + ".tgz"
}

func (p npmPackage) String() string { return p.Name + "@" + p.Version }

// wanted returns the files of a package that are unpacked. It maps the name of each file in the
// archive to the path of the unpacked file.
func wanted(p npmPackage) map[string]string {
	if p.System != "" {
		return map[string]string{"package/deno": denoName}
	}
	files := map[string]string{}
	for _, name := range []string{"pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"} {
		files["package/"+name] = path.Join(pyodideName, name)
	}
	return files
}

// packages returns the npm packages in lock.json for a system, and the packages for all systems.
// system has the form GOOS/GOARCH. If lock.json has no package for this system, packages returns an
// error.
func packages(system string) ([]npmPackage, error) {
	var all []npmPackage
	if err := json.Unmarshal(lockFile, &all); err != nil {
		return nil, fmt.Errorf("wasm: lock.json: %w", err)
	}
	var systems []string
	for _, p := range all {
		if p.System != "" {
			systems = append(systems, p.System)
		}
	}
	if !slices.Contains(systems, system) {
		return nil, fmt.Errorf("wasm: sandboxes of WebAssembly are there for %s, and not for %s", strings.Join(systems, ", "), system)
	}
	return slices.DeleteFunc(all, func(p npmPackage) bool { return p.System != "" && p.System != system }), nil
}

// system returns the system of this program, as GOOS/GOARCH.
func system() string { return runtime.GOOS + "/" + runtime.GOARCH }

// waitDelay bounds how long descendants of a program can keep its output open after the program
// has ended.
const waitDelay = 10 * time.Second

// fetch makes npm write the files of the packages to dir.
func fetch(ctx context.Context, all []npmPackage, dir string) error {
	arguments := []string{"pack", "--ignore-scripts", "--silent", "--pack-destination", dir}
	for _, p := range all {
		arguments = append(arguments, p.String())
	}
	npm, err := hostprogram.Find("npm")
	if err != nil {
		return fmt.Errorf("there is no npm, from which Deno and Pyodide come: install Node.js, or take %s from a machine that has it, where `npm pack %s` makes them, and name their directory with --from: %w",
			names(all), strings.Join(arguments[len(arguments)-len(all):], " "), err)
	}
	cmd := hostprogram.Command(ctx, dir, npm, arguments...) // in dir, no project's configuration applies
	cmd.WaitDelay = waitDelay
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("npm pack: %w: %s", err, clip.Text(strings.TrimSpace(string(output)), 2<<10))
	}
	return nil
}

func names(all []npmPackage) string {
	var files []string
	for _, p := range all {
		files = append(files, p.archive())
	}
	return strings.Join(files, " and ")
}

// unpack unpacks the needed files of the packages from the directory from to the directory dir.
func unpack(all []npmPackage, from, dir string) error {
	if err := os.Mkdir(filepath.Join(dir, pyodideName), 0o755); err != nil {
		return err
	}
	for _, p := range all {
		if err := unpackOne(p, from, dir); err != nil {
			return fmt.Errorf("%s of %s: %w", p.archive(), from, err)
		}
	}
	return nil
}

func unpackOne(p npmPackage, from, dir string) error {
	f, err := os.Open(filepath.Join(from, p.archive()))
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha512.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(hash.Sum(nil)); got != p.Integrity {
		return fmt.Errorf("it is not the file that is expected: its digest is %s, want %s", got, p.Integrity)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	left := wanted(p)
	for files := tar.NewReader(unzipped); len(left) > 0; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("it lacks %v", left)
		}
		if err != nil {
			return err
		}
		to, ours := left[header.Name]
		if !ours || header.Typeflag != tar.TypeReg {
			continue
		}
		delete(left, header.Name)
		if err := write(filepath.Join(dir, filepath.FromSlash(to)), files); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file. Every user may execute it, because sandboxes run under other user ids than
// this process.
func write(name string, from io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
