package linuxprogram

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
)

// modulePath is the path of the module whose sources are needed. If a replacement of the module is
// in use, the replacement has another path.
const modulePath = "github.com/e2bctl/e2bctl"

// source identifies the sources of the program: a version of a module, or a working tree.
type source struct {
	module, version string
	dir             string
}

// ownSource returns the source of this program.
func ownSource() (source, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return source{}, errors.New("it does not say what it was built from")
	}
	if s := moduleOf(info); s.version != "" {
		return s, nil
	}
	_, file, _, _ := runtime.Caller(0)
	here, err := os.Getwd()
	if err != nil {
		here = ""
	}
	for _, dir := range []string{filepath.Dir(file), here} {
		if tree, found := treeOf(dir); found {
			return source{dir: tree}, nil
		}
	}
	return source{}, fmt.Errorf("it was built in a working tree of %s, and does not know where that is: run it there", modulePath)
}

// moduleOf returns the module version from which a program was built. It returns the zero value
// if the program was built from a working tree.
func moduleOf(info *debug.BuildInfo) source {
	module := info.Main
	if module.Path == modulePath && module.Sum == "" { // its version is that of the working tree
		return source{}
	}
	if i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == modulePath }); i >= 0 && module.Path != modulePath {
		module = *info.Deps[i]
	}
	if module.Replace != nil {
		module = *module.Replace
	}
	if module.Version == "" || module.Version == "(devel)" {
		return source{}
	}
	return source{module: module.Path, version: module.Version}
}

// ownVersion returns the version of this module in this program.
func ownVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return versionIn(info)
}

// versionIn returns the version of this module in a program, or "" if the program does not contain it.
func versionIn(info *debug.BuildInfo) string {
	if info.Main.Path == modulePath {
		return info.Main.Version
	}
	return moduleOf(info).version
}

// checkVersion returns an error if the version of this module in the program at path is not that in
// this program.
func checkVersion(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s is no e2bctl: %w", path, err)
	}
	if version, own := versionIn(info), ownVersion(); version != own || info.Path != modulePath+"/cli/e2bctl" {
		return fmt.Errorf("%s is %s %s: want e2bctl %s, the version of this program", path, info.Path, version, own)
	}
	return nil
}

// remedy names a program for containers that needs no compiler.
func remedy(architecture string) string {
	return "name the e2bctl of the release for linux/" + architecture + " with --from (SetupDockerParams.From in a program)"
}

// treeOf returns the working tree that contains a directory. It returns false if no working tree
// contains the directory.
func treeOf(dir string) (string, bool) {
	if !filepath.IsAbs(dir) { // a relative path does not name the sources
		return "", false
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if words := strings.Fields(string(text)); err == nil && len(words) > 1 && words[0] == "module" && words[1] == modulePath {
			return dir, true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", false
		}
		dir = up
	}
}

// key returns an identifier of the sources: a digest of the version or of the working tree.
func (s source) key() (string, error) {
	if s.dir == "" {
		return keyOf([]byte(s.module + " " + s.version)), nil
	}
	hash := sha256.New()
	add := func(path string) error {
		text, err := os.ReadFile(path)
		fmt.Fprintf(hash, "%s %d\n", path, len(text))
		hash.Write(text)
		return err
	}
	err := errors.Join(add(filepath.Join(s.dir, "go.mod")), add(filepath.Join(s.dir, "go.sum")))
	if err != nil {
		return "", err
	}
	err = filepath.WalkDir(filepath.Join(s.dir, "internal"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && isAside(entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular() || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".gz"):
			return nil
		}
		return add(path)
	})
	return hex.EncodeToString(hash.Sum(nil)[:12]), err
}

// isAside reports whether the files in a directory with this name are not part of the program.
func isAside(name string) bool {
	return strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "tools", "interop", "bench", "node_modules", "__pycache__"}, name)
}

// build compiles the program for Linux.
func (s source) build(ctx context.Context, progress io.Writer, architecture, to string) error {
	golang, err := hostprogram.Find("go")
	if err != nil {
		return fmt.Errorf("it has to be compiled, and there is no Go: install Go, or %s: %w", remedy(architecture), err)
	}
	dir := s.dir
	if dir == "" {
		if dir, err = s.download(ctx, golang, filepath.Dir(to)); err != nil {
			return err
		}
	}
	fmt.Fprintf(progress, "compiling the program of containers for %s, of %s, which takes minutes the first time\n", architecture, cmp.Or(s.dir, s.module+" "+s.version))
	command := hostprogram.Command(ctx, dir, golang, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, "./internal/cloud/linuxprogram/contained")
	command.Env = append(command.Env, "GOOS=linux", "GOARCH="+architecture, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	_, err = output(ctx, command)
	return err
}

// download returns the directory of the sources in Go's module cache.
func (s source) download(ctx context.Context, golang, in string) (string, error) {
	command := hostprogram.Command(ctx, in, golang, "mod", "download", "-json", s.module+"@"+s.version)
	command.Env = append(command.Env, "GOWORK=off")
	text, err := output(ctx, command)
	var found struct{ Dir, Error string }
	if json.Unmarshal(text, &found) == nil && found.Error != "" {
		err = errors.New(found.Error)
	}
	if err != nil {
		return "", fmt.Errorf("fetch %s %s: %w", s.module, s.version, err)
	}
	return found.Dir, nil
}

// output runs a go command and returns its output. The error contains the messages of the
// command.
func output(ctx context.Context, command *exec.Cmd) ([]byte, error) {
	var complaint bytes.Buffer
	command.Stderr = &complaint
	command.WaitDelay = 10 * time.Second // processes that it started may keep its output open
	text, err := command.Output()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		said := complaint.String()
		return text, fmt.Errorf("go %s: %w: %s", command.Args[1], err, clip.Text(strings.TrimSpace(said[max(0, len(said)-4<<10):]), 2<<10))
	}
	return text, nil
}
