// Package mounts decides which directories of the host sandboxes may use. The owner of the cloud
// mounts some directories in all sandboxes, and allows others. Clients can request only an allowed
// directory or a directory below it. With [Show], the package also creates the mounts, so that
// mounts keep the same promises with every engine.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Mount is a directory of the host that is mounted in a sandbox. Its field names are part of
// the stored state of sandboxes.
type Mount struct {
	Dir      string // absolute path on the host
	Path     string // path in the sandbox
	Writable bool   `json:",omitempty"`
}

// Allowed is a directory of the host. Clients may request it, and directories below it.
type Allowed struct {
	Dir      string
	Writable bool // clients may request write access
}

// Options configure [Open].
type Options struct {
	All   []Mount // mounted in every sandbox
	Allow []Allowed
}

// Set keeps directories open, so that mounts do not change when a directory is renamed or
// replaced. It is safe for concurrent use.
type Set struct {
	all     []engine.Mount
	allowed []root
}

// root is an allowed directory with two paths: the path as given, and the path without symbolic
// links.
type root struct {
	Allowed
	real string
	dir  *os.Root
}

// DeniedError reports that a client requested a directory that is not allowed. Its text is for
// the client.
type DeniedError struct{ text string }

func (e *DeniedError) Error() string { return e.text }

func denyf(format string, args ...any) error { return &DeniedError{fmt.Sprintf(format, args...)} }

// Open opens the directories of o.
func Open(o Options) (_ *Set, err error) {
	s := &Set{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, m := range o.All {
		if err := CheckTarget(m.Path); err != nil {
			return s, fmt.Errorf("mounts: %s cannot be shown at %q: %w", m.Dir, m.Path, err)
		}
		r, err := openRoot(Allowed{m.Dir, m.Writable})
		if err != nil {
			return s, err
		}
		file, err := r.open(".")
		if err = errors.Join(err, r.dir.Close()); err != nil {
			return s, fmt.Errorf("mounts: %w", err)
		}
		s.all = append(s.all, engine.Mount{Dir: r.real, Path: m.Path, Writable: m.Writable, File: file})
	}
	for _, a := range o.Allow {
		r, err := openRoot(a)
		if err != nil {
			return s, err
		}
		s.allowed = append(s.allowed, r)
	}
	return s, nil
}

func openRoot(a Allowed) (root, error) {
	r := root{Allowed: a}
	var err error
	if r.Dir, err = filepath.Abs(a.Dir); err == nil {
		if r.real, err = filepath.EvalSymlinks(r.Dir); err == nil {
			r.dir, err = os.OpenRoot(r.real)
		}
	}
	if err != nil {
		return root{}, fmt.Errorf("mounts: %w", err)
	}
	return r, nil
}

// open opens a directory below the root, or the root itself. It does not follow a link that
// leads out of the root.
func (r *root) open(name string) (*os.File, error) {
	f, err := r.dir.OpenFile(name, os.O_RDONLY|directory, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a directory")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// All returns the mounts that every sandbox has. The set still owns their files.
func (s *Set) All() []engine.Mount { return s.all }

// Find opens a directory that a client requested. The caller closes the returned file. If the
// directory is not allowed, the error is a [*DeniedError].
func (s *Set) Find(m Mount) (engine.Mount, error) {
	name := clip.Text(m.Dir, maxMessage)
	if !filepath.IsAbs(m.Dir) || filepath.Clean(m.Dir) != m.Dir {
		return engine.Mount{}, denyf("the directory %q is not a clean absolute path", name)
	}
	denied := denyf("the directory %q is in none that is allowed: the local cloud has to be started with --allow-mount DIR (local.WithAllowedMounts)", name)
	for _, r := range s.allowed {
		below, ok := r.below(m.Dir)
		if !ok {
			continue
		}
		if m.Writable && !r.Writable {
			denied = denyf("the directory %q may be shown read-only: the local cloud was started without --allow-mount %s:rw (local.WithWritableMounts)", name, r.Dir)
			continue
		}
		f, err := r.open(below)
		if err != nil {
			return engine.Mount{}, denyf("the directory %q cannot be opened below %s, which is allowed: %v", name, r.Dir, err)
		}
		return engine.Mount{Dir: filepath.Join(r.real, below), Path: m.Path, Writable: m.Writable, File: f}, nil
	}
	return engine.Mount{}, denied
}

// maxMessage bounds the length of text that an error message repeats from a request.
const maxMessage = 120

// below returns the path of dir relative to the root. It returns false if dir is not below the
// root.
func (r *root) below(dir string) (string, bool) {
	for _, top := range []string{r.Dir, r.real} {
		if dir == top {
			return ".", true
		}
		if rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(top, "/")+"/"); ok {
			return rest, true
		}
	}
	return "", false
}

// WritableAbove returns a directory that contains path, and in which sandboxes may change files. It
// returns "" if there is none. path is absolute, and need not exist.
func (s *Set) WritableAbove(path string) string {
	paths := []string{filepath.Clean(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		paths = append(paths, real)
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		paths = append(paths, filepath.Join(real, filepath.Base(path)))
	}
	above := slices.Clone(s.allowed)
	for _, m := range s.all {
		above = append(above, root{Allowed: Allowed{m.Dir, m.Writable}, real: m.Dir})
	}
	for _, r := range above {
		if r.Writable && slices.ContainsFunc(paths, func(path string) bool { _, below := r.below(path); return below }) {
			return r.Dir
		}
	}
	return ""
}

// Close closes all directories.
func (s *Set) Close() error {
	var err error
	for _, m := range s.all {
		err = errors.Join(err, m.File.Close())
	}
	for _, r := range s.allowed {
		err = errors.Join(err, r.dir.Close())
	}
	return err
}
