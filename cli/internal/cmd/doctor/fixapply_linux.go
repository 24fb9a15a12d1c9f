package doctor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// plan returns the profile to load. If only a copy of this program can have the profile, plan also
// returns the program to copy. It changes nothing.
func (m *mender) plan(ctx context.Context) (p profile, source string, err error) {
	p, err = profileOf(m.program)
	if err != nil || m.onlyRootWrites(m.program) != nil {
		source = m.program
		if p, err = profileOf(copyPath); err != nil {
			return p, "", err
		}
		if source, err = m.planCopy(source); err != nil {
			return p, "", err
		}
	}
	if text, err := os.ReadFile(m.at(p.path())); err == nil && string(text) != p.Text {
		return p, "", fmt.Errorf("%s is another profile: remove it first", p.path())
	}
	// The parser loads no profile that aa-disable has named there, and reports success.
	disabled := filepath.Join("/etc/apparmor.d/disable", p.Name)
	if _, err := os.Lstat(m.at(disabled)); err == nil {
		return p, "", fmt.Errorf("AppArmor loads no profile %s while there is %s: remove it first", p.Name, disabled)
	}
	return p, source, m.understood(ctx, &p)
}

// planCopy checks that a program can be copied to copyPath. It returns "" if the same program is there
// already, and the program otherwise.
func (m *mender) planCopy(program string) (string, error) {
	if err := m.onlyRootWrites(filepath.Dir(copyPath)); err != nil {
		return "", fmt.Errorf("not only root may write to %s, and a copy in %s is no better: %w", program, filepath.Dir(copyPath), err)
	}
	there, err := sumOf(m.at(copyPath))
	if errors.Is(err, fs.ErrNotExist) {
		return program, nil
	}
	if err != nil {
		return "", err
	}
	sum, err := sumOf(m.at(program))
	switch {
	case err != nil:
		return "", err
	case !bytes.Equal(sum, there):
		return "", fmt.Errorf("%s is another program than %s: remove it first, or run it with doctor --fix", copyPath, program)
	}
	return "", m.onlyRootWrites(copyPath)
}

// understood returns an error if the parser of this machine does not know the rule of a profile.
func (m *mender) understood(ctx context.Context, p *profile) (err error) {
	file, err := os.CreateTemp("", "e2bctl-profile-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	_, err = file.WriteString(p.Text)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := m.parse(ctx, "--skip-kernel-load", "--skip-cache", "--quiet", file.Name()); err != nil {
		return fmt.Errorf("the AppArmor of this machine does not know profiles for user namespaces, which Ubuntu has from 23.10 on: %w", err)
	}
	return nil
}

// parse runs the parser of profiles.
func (m *mender) parse(ctx context.Context, arguments ...string) error {
	cmd := hostprogram.Command(ctx, "/", m.parser, arguments...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// onlyRootWrites returns an error if another user than root can replace a file. Such a user would get
// user namespaces for every program.
func (m *mender) onlyRootWrites(path string) error {
	for at := m.at(path); ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Uid != 0 && int64(stat.Uid) != int64(m.owner) {
			return fmt.Errorf("%s does not belong to root", at)
		}
		// In a directory such as /tmp, nobody can replace the files of others.
		if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("others than root may write to %s", at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// undo lists what removes the changes, in the order of the changes.
type undo []func() error

// run removes the changes, the last one first.
func (u *undo) run() (err error) {
	for i := len(*u) - 1; i >= 0; i-- {
		err = errors.Join(err, (*u)[i]())
	}
	if err != nil {
		return fmt.Errorf("remove what did not help: %w", err)
	}
	return nil
}

// apply copies the program, if there is one to copy, and loads the profile. It adds each change to made.
func (m *mender) apply(ctx context.Context, p profile, source string, made *undo) error {
	if source != "" {
		if err := copyProgram(m.at(source), m.at(p.Program)); err != nil {
			return fmt.Errorf("copy %s to %s: %w", source, p.Program, err)
		}
		*made = append(*made, func() error { return os.Remove(m.at(p.Program)) })
	}
	file := m.at(p.path())
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		*made = append(*made, func() error {
			if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) { // it could not even be created
				return err
			}
			return nil
		})
		if err := os.WriteFile(file, []byte(p.Text), 0o644); err != nil { //nolint:gosec // every user may read profiles
			return err
		}
	}
	if err := m.parse(ctx, "--replace", file); err != nil {
		return err
	}
	*made = append(*made, func() error { return m.parse(context.WithoutCancel(ctx), "--remove", file) })
	return nil
}

// copyProgram copies a program. The copy appears under its name when it is complete, and never replaces a
// file.
func copyProgram(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // it was only read
	part, err := os.CreateTemp(filepath.Dir(to), ".e2bctl-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(part.Name())) }()
	_, err = io.Copy(part, source)
	if err := errors.Join(err, part.Chmod(0o755), part.Sync(), part.Close()); err != nil {
		return err
	}
	return os.Link(part.Name(), to)
}

// sumOf returns a checksum of a file's content.
func sumOf(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return nil, fmt.Errorf("read %s: %w", shell.Quote(path), err)
	}
	return sum.Sum(nil), nil
}
