package docker

import (
	"archive/tar"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/linuxprogram"
)

// program is the file of the first process of each container.
type program struct {
	file   *os.File
	info   os.FileInfo
	path   string // path of the opened file; "" if the path may now lead to another file
	shared bool   // every user may execute the file at its path
}

// openProgram opens the program at the path in named. If named is "", it opens a program that runs in
// any Linux container of the architecture. This is the running program if possible, and otherwise
// the program that [Setup] made.
func openProgram(named, architecture string) (*program, error) {
	if named != "" {
		p, err := openFile(named, named, architecture)
		if err != nil {
			return nil, fmt.Errorf("the program for containers, %s: %w", named, err)
		}
		return p, nil
	}
	p, unfit := openOwn(architecture)
	if unfit == nil {
		return p, nil
	}
	path, err := linuxprogram.Find(goName(architecture))
	if err == nil {
		p, err = openFile(path, path, architecture)
	}
	if err != nil {
		return nil, fmt.Errorf("the program for containers: it cannot be this one: %w; %w; or name a static e2bctl for Linux, of this version, with local.WithBinary(path)", unfit, err)
	}
	return p, nil
}

// openOwn opens the running program. If this program cannot run in containers of the architecture,
// openOwn returns an error.
func openOwn(architecture string) (*program, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	open := own
	if runtime.GOOS == "linux" {
		open = "/proc/self/exe" // works even if the file was replaced or removed in the meantime
	}
	return openFile(open, own, architecture)
}

func openFile(open, path, architecture string) (*program, error) {
	f, err := os.Open(open)
	if err != nil {
		return nil, err
	}
	p := &program{file: f, path: path}
	if err := p.check(architecture); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// Setup makes the program for containers of the Docker or Podman daemon at host. If host is "",
// Setup searches for the daemon as [Open] does. If containers of the daemon can use the running
// program, Setup makes nothing. In both cases it returns the path of the program that the containers
// use. If no daemon answers, Setup assumes the architecture of this machine. Unless from is "", Setup
// copies the e2bctl at that path in place of making a program.
func Setup(ctx context.Context, progress io.Writer, host, from string) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	architecture, err := architectureOf(ctx, host)
	if err != nil {
		architecture = runtime.GOARCH
		fmt.Fprintf(progress, "%v; going on for this machine's processor, %s\n", err, architecture)
	}
	if p, err := openOwn(architecture); err == nil {
		fmt.Fprintln(progress, "this program runs in containers as it is: there is nothing to prepare")
		return p.path, p.Close()
	}
	var path string
	if from == "" {
		path, err = linuxprogram.Make(ctx, progress, goName(architecture))
	} else {
		path, err = take(progress, from, architecture)
	}
	if err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	return path, nil
}

// take copies a program that runs in containers of the architecture, and returns the path of the copy.
func take(progress io.Writer, from, architecture string) (string, error) {
	p, err := openFile(from, from, architecture)
	if err == nil {
		err = p.Close()
	}
	if err != nil {
		return "", fmt.Errorf("the program for containers, %s: %w", from, err)
	}
	return linuxprogram.Take(progress, from, goName(architecture))
}

// architectureOf returns the architecture of the daemon, in the daemon's naming.
func architectureOf(ctx context.Context, host string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	c, host, err := find(ctx, host)
	if err != nil {
		return "", err
	}
	info, err := c.Info(ctx, client.InfoOptions{})
	if err = errors.Join(err, c.Close()); err != nil {
		return "", fmt.Errorf("ask %s about itself: %w", host, err)
	}
	return info.Info.Architecture, nil
}

// goName converts the name of an architecture from the daemon's naming to Go's.
func goName(architecture string) string {
	switch architecture {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return architecture
}

func (p *program) check(architecture string) error {
	var err error
	if p.info, err = p.file.Stat(); err != nil {
		return err
	}
	p.shared = p.info.Mode()&0o005 == 0o005
	f, err := elf.NewFile(p.file)
	if _, other := errors.AsType[*elf.FormatError](err); other || errors.Is(err, io.EOF) {
		return errors.New("it is not a Linux program, and containers run nothing else")
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(f.Progs, func(s *elf.Prog) bool { return s.Type == elf.PT_INTERP }) {
		return errors.New("it is linked to libraries that a container may not have (CGO_ENABLED=0 builds one that is not)")
	}
	machines := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}
	if architecture != "" && machines[f.Machine] != goName(architecture) {
		return fmt.Errorf("it is for %v and the daemon runs %s", f.Machine, architecture)
	}
	return nil
}

// current reports whether p.path still leads to the opened file.
func (p *program) current() bool {
	info, err := os.Stat(p.path)
	return err == nil && os.SameFile(info, p.info)
}

// archive writes a tar with the program for the root directory of a container.
func (p *program) archive(w io.Writer) error {
	archive := tar.NewWriter(w)
	header := tar.Header{Typeflag: tar.TypeReg, Name: guest.Program[1:], Size: p.info.Size(), Mode: 0o555, ModTime: p.info.ModTime()}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	if _, err := io.Copy(archive, io.NewSectionReader(p.file, 0, p.info.Size())); err != nil {
		return err
	}
	return archive.Close()
}

// Close closes the file.
func (p *program) Close() error { return p.file.Close() }
