//go:build linux

package packaging_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// release is a directory with the program and the packages that make release and make packages make for this
// platform from a copy of the sources.
type release struct{ dir string }

// program returns the path of the program.
func (r release) program() string { return filepath.Join(r.dir, "e2bctl") }

// made returns the path of the only package whose name matches a pattern.
func (r release) made(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.dir, "packages", pattern))
	if err != nil || len(paths) != 1 {
		t.Fatalf("the release has the packages %q that match %s, want one; %v", paths, pattern, err)
	}
	return paths[0]
}

// checksums returns the text with the checksums of all packages.
func (r release) checksums(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "packages", "checksums.txt"))
	must.Do(t, err)
	return string(text)
}

// shared is the release that is made for the first test that asks for it, because it takes more work than most
// tests with it. TestMain removes its directory sharedDir.
var (
	sharedDir string
	shared    = sync.OnceValues(func() (release, error) { return makeRelease(context.Background(), filepath.Join(sharedDir, "one")) })
)

func TestMain(m *testing.M) { os.Exit(withSharedDir(m)) } //nolint:forbidigo // this is the main function

func withSharedDir(m *testing.M) int {
	dir, err := os.MkdirTemp("", "packaging")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	sharedDir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// released returns the release that all tests share.
func released(t *testing.T) release {
	t.Helper()
	r, err := shared()
	must.Do(t, err)
	return r
}

// makeRelease makes a release from a copy of the sources in dir, in the same way as make release and make
// packages.
func makeRelease(ctx context.Context, dir string) (release, error) {
	r := release{filepath.Join(dir, "built")}
	if err := copySources(ctx, dir); err != nil {
		return r, err
	}
	for _, args := range [][]string{
		{"build", "-tags", "release", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "built/e2bctl", "./cli/e2bctl"},
		{"run", "./cli/manual", "-man", "built/man", "-completions", "built/completions"},
		{"run", "./internal/packaging/release", "-output", "built/packages", "-manual", "built/man", "-completions", "built/completions", "built/e2bctl"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "SOURCE_DATE_EPOCH=1700000000")
		if out, err := cmd.CombinedOutput(); err != nil {
			return r, fmt.Errorf("go %q: %w\n%s", args, err, out)
		}
	}
	return r, nil
}

// copySources copies the sources that the repository has to dir.
func copySources(ctx context.Context, dir string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the sources: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(list.Dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// TestReproducible makes the packages for one platform from two copies of the sources, and compares their
// bytes.
func TestReproducible(t *testing.T) {
	t.Parallel()
	another, err := makeRelease(t.Context(), filepath.Join(t.TempDir(), "another", "below"))
	must.Do(t, err)
	sums := [2]string{released(t).checksums(t), another.checksums(t)}
	if strings.Count(sums[0], "\n") != 4 || sums[0] != sums[1] {
		t.Errorf("the packages are\n%s\nand from another directory\n%s", sums[0], sums[1])
	}
}

// TestSize bounds the archive that users of Linux download: the aim is 15 MB.
func TestSize(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(released(t).made(t, "e2bctl_*.tar.gz"))
	must.Do(t, err)
	if info.Size() > 15e6 {
		t.Errorf("the archive for Linux has %d bytes, want at most 15 MB", info.Size())
	}
}
