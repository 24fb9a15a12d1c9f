// Package mirror makes a directory of a sandbox equal to a directory of this machine, or the
// reverse. It sends only the differences. Entries that .gitignore files ignore are neither sent nor
// removed.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Mirror keeps one directory equal to another.
type Mirror struct {
	// Local is a directory of this machine. It may be missing only if Pull is set.
	Local string
	// Sandbox is the sandbox with the directory Dir. The files in Dir belong to User. A relative Dir
	// starts at the home directory of User.
	Sandbox *sandbox.Sandbox
	User    string
	Dir     string
	// Pull makes Local equal to Dir; otherwise Dir is made equal to Local.
	Pull bool
	// Delete removes entries that the source does not have.
	Delete bool
	// DryRun changes nothing.
	DryRun bool
	// Exclude lists patterns, as in a .gitignore at the top of the directory. They come before the patterns of
	// .gitignore files.
	Exclude []string
	// MaxBytes and MaxFiles bound the size and the number of files that come from the sandbox. Less than 0 means
	// no bound.
	MaxBytes, MaxFiles int64
	// Skipped is called for each entry that cannot be sent, with the reason.
	Skipped func(name, why string)
	// Progress is called with the number of bytes moved so far. May be nil.
	Progress func(bytes int64)

	visit func(dir string) error // called before a directory of this machine is read; may be nil
	here  *rules                 // the ignore rules that the last pass read on this machine
}

// attempts bounds the number of tries of a transfer. A transfer is tried again if a file became
// shorter while it was read.
const attempts = 5

// Once makes the destination equal to the source, and returns the changes, sorted by name. With DryRun these are
// the changes that it would make.
func (m *Mirror) Once(ctx context.Context) (changes []Change, err error) {
	root, err := m.open()
	if err != nil {
		return nil, err
	}
	if root != nil {
		defer func() { err = errors.Join(err, root.Close()) }()
	}
	for try := 1; ; try++ {
		changes, err = m.pass(ctx, root)
		if !errors.Is(err, errShrunk) || try == attempts {
			return changes, err
		}
	}
}

// open opens the directory of this machine. It returns nil if the directory is missing and must not
// be created, because of DryRun.
func (m *Mirror) open() (*os.Root, error) {
	info, err := os.Stat(m.Local)
	switch {
	case err == nil && !info.IsDir():
		return nil, &fs.PathError{Op: "sync", Path: m.Local, Err: syscall.ENOTDIR}
	case errors.Is(err, fs.ErrNotExist) && m.Pull:
		if m.DryRun {
			return nil, nil //nolint:nilnil // there is no directory
		}
		err = os.MkdirAll(m.Local, 0o755)
	}
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(m.Local)
}

func (m *Mirror) remote() *remote { return &remote{m.Sandbox, m.User, m.Dir} }

// pass compares the two directories, and applies the changes to the destination.
func (m *Mirror) pass(ctx context.Context, root *os.Root) ([]Change, error) {
	from, to, err := m.scan(ctx, root)
	if err != nil {
		return nil, err
	}
	return m.apply(ctx, root, from, to)
}

// scan reads the source and the destination.
func (m *Mirror) scan(ctx context.Context, root *os.Root) (from, to tree, err error) {
	here, there := newRules(m.Exclude), newRules(m.Exclude)
	m.here = here
	if !m.Pull {
		if from, err = scanLocal(root, here, nil, m.visit, m.Skipped); err != nil {
			return nil, nil, err
		}
		to, err = m.remote().scan(ctx, []*rules{here}, -1, false, func(string, string) {})
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // it is made
		}
		return from, to, err
	}
	if err := m.remote().readIgnoreFiles(ctx, there); err != nil {
		return nil, nil, err
	}
	to = tree{}
	if root != nil {
		if to, err = scanLocal(root, here, []*rules{there}, nil, func(string, string) {}); err != nil {
			return nil, nil, err
		}
	}
	from, err = m.remote().scan(ctx, []*rules{here, there}, m.MaxFiles, true, m.Skipped)
	return from, to, err
}

// apply makes the changes, unless DryRun is set, and returns them.
func (m *Mirror) apply(ctx context.Context, root *os.Root, from, to tree) ([]Change, error) {
	p, err := newPlan(from, to, m.Delete)
	if err != nil || m.DryRun {
		if err != nil {
			return nil, err
		}
		return p.changes, nil
	}
	remove := func(names []string) error { return removeLocal(root, names) }
	send := m.download
	if !m.Pull {
		remove = func(names []string) error { return m.remote().remove(ctx, names, to) }
		send = m.upload
	}
	if len(p.clear) > 0 {
		err = remove(p.clear)
	}
	if err == nil && len(p.send) > 0 {
		err = send(ctx, root, p, from)
	}
	if err == nil && len(p.remove) > 0 {
		err = remove(p.remove)
	}
	if err != nil {
		return nil, err
	}
	return p.changes, nil
}

// upload sends entries to the sandbox. The sandbox does not unpack an incomplete archive.
func (m *Mirror) upload(ctx context.Context, root *os.Root, p *plan, from tree) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, root, p.send, from, w)
		if err != nil {
			err = fmt.Errorf("pack the files: %w", err) // net/http compares it: see sendArchive of the SDK
		}
		w.CloseWithError(err)
		packed <- err
	}()
	err := m.Sandbox.Files.WriteTar(ctx, m.Dir, r, &sandbox.TarParams{User: m.User, Progress: m.Progress})
	r.CloseWithError(err)
	if packErr := <-packed; packErr != nil && err != nil && !errors.Is(packErr, err) {
		return packErr
	}
	return err
}

// download copies entries from the sandbox to this machine.
func (m *Mirror) download(ctx context.Context, root *os.Root, p *plan, from tree) error {
	return m.remote().read(ctx, packLine, listOf(p.send), func(stream io.Reader) error {
		stream = transfer.Counted(stream, m.Progress)
		return m.receive(ctx, root, p, from, stream)
	})
}
