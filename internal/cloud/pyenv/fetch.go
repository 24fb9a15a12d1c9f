package pyenv

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
	"strings"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// batch is the number of packages that one run of pip fetches. An interruption of the run loses
// these packages. installs is the number of packages that one run of pip installs. installs is
// larger than batch, because installing is faster than fetching.
const batch, installs = 8, 16

// fetch downloads the packages of the list to the directory b.fetched. It leaves out packages
// that an interrupted run has already downloaded. pip's own cache cannot replace this directory,
// because pip caches a file only if the index allows it.
func (b *builder) fetch(ctx context.Context, pins []string) error {
	if err := os.MkdirAll(b.fetched, 0o700); err != nil {
		return fmt.Errorf("python: make the directory for what is fetched: %w", err)
	}
	there, err := keepListed(b.fetched, pins)
	if err != nil {
		return fmt.Errorf("python: look for what was fetched before: %w", err)
	}
	missing := slices.DeleteFunc(slices.Clone(pins), func(pin string) bool {
		return slices.ContainsFunc(hashes(pin), func(hash string) bool { return there[hash] })
	})
	b.report.stage("fetching", len(pins))
	if before := len(pins) - len(missing); before > 0 {
		b.report.passed(before)
	}
	for some := range slices.Chunk(missing, batch) {
		collects := func(line string) {
			if match := collecting().FindStringSubmatch(line); match != nil {
				b.report.step(match[1])
			}
		}
		if err := b.pinned(ctx, some, collects, "download", "--dest="+b.fetched); err != nil {
			return err
		}
		if !b.report.terminal { // the bar has already shown the package
			b.report.did("fetched", len(some))
		}
	}
	return nil
}

// install installs the fetched packages in groups, so that it can report progress.
func (b *builder) install(ctx context.Context, pins []string) error {
	b.report.stage("installing", len(pins))
	for some := range slices.Chunk(pins, installs) {
		if err := b.pinned(ctx, some, nil, "install", "--no-index", "--find-links="+b.fetched); err != nil {
			return err
		}
		b.report.did("installed", len(some))
	}
	return nil
}

// pinned runs a pip command for packages of the list. pip does not look for the dependencies of
// these packages, because the list contains all dependencies.
func (b *builder) pinned(ctx context.Context, pins []string, lines func(string), command string, arguments ...string) error {
	name := filepath.Join(b.scratch, "pins.txt")
	if err := os.WriteFile(name, []byte(strings.Join(pins, "")), 0o644); err != nil {
		return fmt.Errorf("python: write the list of packages to %s: %w", command, err)
	}
	return b.pip(ctx, lines, command, append(arguments, "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", name)...)
}

var hashOption = lazyregexp.New(`--hash=sha256:([0-9a-f]{64})`)

// hashes returns the hashes that a pin allows for the files of its package.
func hashes(pin string) (found []string) {
	for _, match := range hashOption().FindAllStringSubmatch(pin, -1) {
		found = append(found, match[1])
	}
	return found
}

// keepListed removes files that are not on the list, such as incomplete files, from a
// directory. It returns the hashes of the remaining files.
func keepListed(directory string, pins []string) (map[string]bool, error) {
	listed := make(map[string]bool)
	for _, pin := range pins {
		for _, hash := range hashes(pin) {
			listed[hash] = true
		}
	}
	there := make(map[string]bool)
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		hash, err := hashOf(path)
		if err != nil {
			return err
		}
		if !listed[hash] {
			return os.Remove(path)
		}
		there[hash] = true
		return nil
	})
	return there, err
}

func hashOf(path string) (_ string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
