//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ledger is the file that lists the tests that were flaky. The file outlives the checkout. If a
// test is flaky a second time, and no commit has mended it in between, the run is red. A commit
// mends a test if it has a trailer "Mends: internal/e2e.TestName".
type ledger struct {
	path string
	root string // the root of the checkout, for git
}

// flake is a line of the ledger. It describes one flaky failure of a test.
type flake struct {
	Time    time.Time `json:"time"`
	Package string    `json:"package"`
	Test    string    `json:"test"`
	User    string    `json:"user,omitempty"`
	Commit  string    `json:"commit"`
	Output  string    `json:"output"` // the output of the failure, or its beginning
}

// keptOutput is the number of bytes that the ledger keeps of a failure's output.
const keptOutput = 4 << 10

// read returns all lines. A line that was cut off is left out.
func (l ledger) read() (flakes []flake, err error) {
	file, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var f flake
		if json.Unmarshal(lines.Bytes(), &f) == nil {
			flakes = append(flakes, f)
		}
	}
	return flakes, lines.Err()
}

// add appends a flake.
func (l ledger) add(f flake) error {
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// judge records the flaky tests of a run. red contains the tests that were flaky before and that no
// commit has mended since then. first contains the other flaky tests.
func (l ledger) judge(ctx context.Context, flaky []failure) (red, first []failure, err error) {
	if len(flaky) == 0 {
		return nil, nil, nil
	}
	before, err := l.read()
	if err != nil {
		return nil, flaky, err
	}
	commit, err := l.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return nil, flaky, err
	}
	for _, f := range flaky {
		earlier := slices.DeleteFunc(slices.Clone(before), func(b flake) bool { return b.Package != f.job.pkg.name || b.Test != f.test })
		entry := flake{Time: time.Now(), Package: f.job.pkg.name, Test: f.test, Commit: commit, Output: f.output[:min(len(f.output), keptOutput)]}
		if f.job.ordinary {
			entry.User = "ordinary"
		}
		if err := l.add(entry); err != nil {
			return nil, flaky, err
		}
		if len(earlier) == 0 {
			first = append(first, f)
			continue
		}
		last := earlier[len(earlier)-1]
		mended, err := l.mended(ctx, last)
		if err != nil {
			return nil, flaky, err
		}
		if mended {
			first = append(first, f)
			continue
		}
		f.reason = fmt.Sprintf("flaky again: it was on %s at %.12s, and no commit since says \"Mends: %s.%s\"", last.Time.Format(time.DateOnly), last.Commit, last.Package, last.Test)
		red = append(red, f)
	}
	return red, first, nil
}

// mended reports whether a commit after the flake f has a trailer that mends the test.
func (l ledger) mended(ctx context.Context, f flake) (bool, error) {
	commits := f.Commit + "..HEAD"
	// A shallow clone may not have the commit. Then all of its commits count.
	if _, err := l.git(ctx, "cat-file", "-e", f.Commit+"^{commit}"); err != nil {
		commits = "HEAD"
	}
	trailers, err := l.git(ctx, "log", "--format=%(trailers:key=Mends,valueonly)", commits)
	return slices.Contains(strings.Fields(trailers), f.Package+"."+f.Test), err
}

func (l ledger) git(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", arguments...)
	command.Dir = l.root
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", arguments[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
