//go:build linux

package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// releaseSize builds the command as `make release` does, and measures it compressed as in an archive.
func releaseSize(ctx context.Context, _ int) (r result, err error) {
	dir, err := os.MkdirTemp("", "bench-release-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "e2bctl")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "release", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/e2bctl/e2bctl/cli/e2bctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("go build: %w\n%s", err, out)
	}
	size, err := compressedSize(path)
	return result{size: size}, err
}

// compressedSize returns the size that a file has after gzip.
func compressedSize(path string) (size int64, err error) {
	program, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	var written counter
	to, err := gzip.NewWriterLevel(&written, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(to, program)
	return int64(written), errors.Join(err, to.Close())
}
