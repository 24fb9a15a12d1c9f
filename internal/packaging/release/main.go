// Command release makes the packages of a release from programs that the go command has built. For each
// program it makes an archive, a wheel and a package of npm, and for each program for Linux a .deb and
// a .rpm, too. It also makes the package of npm that depends on the others, the checksums of all
// packages, and the notes of the release from CHANGELOG.md.
//
//	go run ./internal/packaging/release -output .tmp/packages -manual DIR -completions DIR PROGRAM...
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/packaging"
)

func main() {
	var r release
	flag.StringVar(&r.output, "output", "", "write the packages to `DIR`, in place of what is there")
	flag.StringVar(&r.manual, "manual", "", "the pages for man in `DIR` are part of the archives")
	flag.StringVar(&r.completions, "completions", "", "the scripts for completion in `DIR` are part of the archives")
	flag.StringVar(&r.carried, "carried", "", "programs for other systems than Linux contain the `PROGRAM` for containers, so their notices and lists of parts name its modules")
	flag.BoolVar(&r.distributions, "distributions", false, "make a .deb and a .rpm of each archive for Linux, too; they need -manual and -completions")
	flag.Parse()
	if err := r.make(context.Background(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release has the settings of a release.
type release struct {
	output, manual, completions string
	carried                     string // program for Linux inside the programs for other systems; "": none
	distributions               bool   // make packages of Linux distributions, too
}

func (r *release) make(ctx context.Context, programs []string) error {
	if r.output == "" || len(programs) == 0 {
		return errors.New("want -output DIR and programs")
	}
	if err := errors.Join(os.RemoveAll(r.output), os.MkdirAll(r.output, 0o755)); err != nil {
		return err
	}
	common, err := r.common()
	if err != nil {
		return err
	}
	readme, err := os.ReadFile("internal/packaging/python/README.md")
	if err != nil {
		return err
	}
	dirOf, root, err := sources(ctx)
	if err != nil {
		return err
	}
	var carried packaging.Build
	if r.carried != "" {
		if carried, err = packaging.ReadBuild(r.carried); err != nil {
			return err
		}
	}
	var paths []string
	for _, path := range programs {
		build, err := packaging.ReadBuild(path)
		if err != nil {
			return err
		}
		if build.System != "linux" {
			build.Carry(&carried)
		}
		made, err := pack(&build, r.output, common, readme, root, dirOf)
		if err != nil {
			return err
		}
		paths = append(paths, made...)
	}
	first, err := packaging.ReadBuild(programs[0])
	if err != nil {
		return err
	}
	notes, err := packaging.Notes(&first, common[1].Content)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.output, "release-notes.md"), notes, 0o644); err != nil {
		return err
	}
	parent, err := packaging.NPM(&first, r.output, common[0])
	if err != nil {
		return err
	}
	paths = append(paths, parent)
	if r.distributions {
		more, err := r.linux(ctx, paths)
		if err != nil {
			return err
		}
		paths = append(paths, more...)
	}
	return packaging.WriteChecksums(r.output, paths)
}

// linux makes the packages of Linux distributions from the archives among paths, and returns their
// paths.
func (r *release) linux(ctx context.Context, paths []string) ([]string, error) {
	output, err := filepath.Abs(r.output)
	if err != nil {
		return nil, err
	}
	args := []string{"run", "-C", "internal/packaging/linux", ".", "-output", output}
	fixed := len(args)
	for _, path := range paths {
		if name := filepath.Base(path); strings.Contains(name, "_linux_") && strings.HasSuffix(name, ".tar.gz") {
			args = append(args, filepath.Join(output, name))
		}
	}
	if len(args) == fixed {
		return nil, nil
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("packages of Linux distributions: %w\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(r.output, "*.deb"))
	if err != nil {
		return nil, err
	}
	rpms, err := filepath.Glob(filepath.Join(r.output, "*.rpm"))
	return append(debs, rpms...), err
}

// common returns the files that all archives have.
func (r *release) common() ([]packaging.File, error) {
	var files []packaging.File
	for _, name := range []string{"LICENSE", "CHANGELOG.md", "README.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, packaging.File{Name: name, Content: text})
	}
	for _, some := range []struct{ dir, below string }{{r.manual, "man"}, {r.completions, "completions"}} {
		if some.dir == "" {
			continue
		}
		more, err := packaging.FilesOf(os.DirFS(some.dir), some.below)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// pack makes the packages of one program, and returns their paths.
func pack(build *packaging.Build, output string, common []packaging.File, readme []byte, root string, dirOf func(packaging.Module) (string, error)) ([]string, error) {
	program, err := os.ReadFile(build.Path)
	if err != nil {
		return nil, err
	}
	notices, err := packaging.Notices(build.Modules, root, dirOf)
	if err != nil {
		return nil, err
	}
	sbom, err := packaging.SBOM(build)
	if err != nil {
		return nil, err
	}
	files := append([]packaging.File{
		{Name: build.Program(), Content: program, Mode: 0o755}, {Name: "NOTICES.txt", Content: notices}, {Name: "e2bctl.cdx.json", Content: sbom},
	}, common...)
	archive, err := packaging.Archive(build, output, files)
	if err != nil {
		return nil, err
	}
	licences := []packaging.File{{Name: "LICENSE", Content: common[0].Content}, {Name: "NOTICES.txt", Content: notices}}
	wheel, err := packaging.Wheel(build, output, program, readme, sbom, licences)
	if err != nil {
		return nil, err
	}
	npm, err := packaging.NPMProgram(build, output, program, sbom, licences)
	return []string{archive, wheel, npm}, err
}

// sources returns a function that finds the sources of modules, and the directory of Go.
func sources(ctx context.Context) (dirOf func(packaging.Module) (string, error), goRoot string, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, "", fmt.Errorf("go env GOROOT: %w", err)
	}
	listed, err := exec.CommandContext(ctx, "go", "mod", "download", "-json").Output()
	if err != nil {
		return nil, "", fmt.Errorf("go mod download -json: %w", err)
	}
	dirs := map[packaging.Module]string{}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); decoder.More(); {
		var m struct{ Path, Version, Sum, Dir string }
		if err := decoder.Decode(&m); err != nil {
			return nil, "", fmt.Errorf("go mod download -json: %w", err)
		}
		dirs[packaging.Module{Path: m.Path, Version: m.Version, Sum: m.Sum}] = m.Dir
	}
	return func(m packaging.Module) (string, error) {
		dir := dirs[m]
		if dir == "" {
			return "", fmt.Errorf("this checkout does not have the source of %s %s: build the programs from this checkout", m.Path, m.Version)
		}
		return filepath.Clean(dir), nil
	}, strings.TrimSpace(string(out)), nil
}
