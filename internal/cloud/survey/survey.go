//go:build linux

// Package survey searches a tree for files and directories that are closed to other users. A file
// is closed if some user of the machine may neither read nor execute it. A directory is closed if
// some user may not enter it. A survey of hundreds of thousands of files that are not cached in
// memory takes seconds. With a [Snapshot] of an earlier survey, unchanged directories are not read
// again.
package survey

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a survey.
const (
	// MaxPrivate is the maximum number of paths that [Snapshot.Private] may return.
	MaxPrivate     = 10_000
	maxDirectories = 2_000_000
)

// ErrTooMany is returned for a tree that is too large, or has too many private paths, to be
// used in sandboxes.
var ErrTooMany = errors.New("too many")

// Snapshot is the result of a survey. It is immutable, and safe for concurrent use.
type Snapshot struct {
	// Made is the time of the last survey that checked every file. When a file is added, removed or
	// renamed, its directory changes, and the next survey reads the directory again. When only the
	// mode of a file changes, its directory does not change. So only a survey without an earlier
	// snapshot finds the new mode.
	Made        time.Time
	directories []directory
}

// directory is a directory that was read. files does not contain the private directories in it.
// They have their own entries in the snapshot, because they have their own modes.
type directory struct {
	path    string // path relative to the root, which is "."
	inode   uint64
	changed int64 // time of the last change in nanoseconds; 0: unknown
	private bool
	files   []string // names of the private files
}

// Private returns the paths that are closed to other users, relative to the root and in order.
// It leaves out paths below a closed directory.
func (s *Snapshot) Private() []string {
	var paths []string
	for _, d := range s.directories {
		if d.private && d.path != "." {
			paths = append(paths, d.path)
		}
		for _, name := range d.files {
			paths = append(paths, join(d.path, name))
		}
	}
	slices.Sort(paths)
	return paths
}

// Closed reports whether the root directory itself is closed to other users.
func (s *Snapshot) Closed() bool {
	return slices.ContainsFunc(s.directories, func(d directory) bool { return d.private && d.path == "." })
}

// Find surveys the tree at root. It does not enter other mounts, and does not follow links.
// before is an earlier survey of the same tree, or nil. When ctx ends, Find stops early and
// returns an error.
func Find(ctx context.Context, root *os.File, before *Snapshot) (*Snapshot, error) {
	defer runtime.KeepAlive(root)
	w := &walk{root: int(root.Fd()), now: time.Now(), known: make(map[string]bool)}
	if before == nil {
		before = &Snapshot{Made: w.now}
	}
	states := w.check(ctx, before.directories)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if len(states) > 0 && !slices.ContainsFunc(states, func(s state) bool { return s != same }) {
		return before, nil
	}
	for i, d := range before.directories {
		switch states[i] {
		case same:
			w.known[d.path] = true
			w.add(d)
		case changed:
			w.known[d.path] = true
			w.queue = append(w.queue, d.path)
		}
	}
	if !w.known["."] {
		w.queue = append(w.queue, ".")
	}
	if err := w.read(ctx); err != nil {
		return nil, err
	}
	return &Snapshot{Made: before.Made, directories: w.found}, nil
}

// state describes how a directory has changed since an earlier survey.
type state byte

const (
	gone state = iota // the directory no longer exists, and its parent has changed
	same
	changed
)

// walk is a running survey.
type walk struct {
	root  int
	now   time.Time
	known map[string]bool // directories of an earlier survey that still exist

	mu      sync.Mutex
	more    *sync.Cond // signals that queue or busy has changed
	queue   []string   // directories that have not been read yet
	busy    int        // number of workers that may add to queue
	found   []directory
	private int
	err     error
}

var workers = min(runtime.NumCPU(), 8)

// check returns the state of each directory in before.
func (w *walk) check(ctx context.Context, before []directory) []state {
	states := make([]state, len(before))
	const batch = 256
	var next atomic.Int64
	var work sync.WaitGroup
	for range max(1, workers/2) { // leave the other processors to other programs
		work.Go(func() {
			for ctx.Err() == nil {
				from := int(next.Add(batch)) - batch
				if from >= len(before) {
					return
				}
				for i := from; i < min(from+batch, len(before)); i++ {
					states[i] = w.compare(&before[i])
				}
			}
		})
	}
	work.Wait()
	return states
}

func (w *walk) compare(d *directory) state {
	var stat unix.Stat_t
	err := unix.Fstatat(w.root, d.path, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return gone
	case d.changed != 0 && d.changed == stat.Ctim.Nano() && d.inode == stat.Ino:
		return same
	}
	return changed
}

// read reads the directories in the queue, and the new directories that it finds in these.
func (w *walk) read(ctx context.Context) error {
	w.more = sync.NewCond(&w.mu)
	defer context.AfterFunc(ctx, func() { w.fail(context.Cause(ctx)) })()
	var work sync.WaitGroup
	for range workers {
		work.Go(w.readAll)
	}
	work.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *walk) readAll() {
	buffer := make([]byte, 32<<10)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 && w.busy > 0 && w.err == nil {
			w.more.Wait()
		}
		if len(w.queue) == 0 || w.err != nil {
			w.more.Broadcast()
			return
		}
		path := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.busy++
		w.mu.Unlock()
		d, below, err := w.look(path, buffer)
		w.mu.Lock()
		w.busy--
		if err == nil {
			w.add(d)
			w.queue = append(w.queue, below...)
		} else if !errors.Is(err, errGone) && w.err == nil {
			w.err = err
		}
		w.more.Broadcast()
	}
}

func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.more.Broadcast()
}

// add adds a directory to the result. The caller holds the lock, or there are no other
// goroutines yet.
func (w *walk) add(d directory) {
	w.found = append(w.found, d)
	w.private += len(d.files)
	if d.private {
		w.private++
	}
	if w.private > MaxPrivate && w.err == nil {
		w.err = fmt.Errorf("%w: more than %d files and directories are closed to others, %s among them", ErrTooMany, MaxPrivate, d.path)
	}
	if len(w.found) > maxDirectories && w.err == nil {
		w.err = fmt.Errorf("%w: more than %d directories", ErrTooMany, maxDirectories)
	}
}

// errGone means that a path no longer leads to a directory. The modification time of the parent has
// then changed, too.
var errGone = errors.New("no directory")

// look reads a directory. below lists the subdirectories that are not in w.known.
func (w *walk) look(path string, buffer []byte) (d directory, below []string, err error) {
	fd, err := unix.Openat2(w.root, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return directory{}, nil, errGone
	case errors.Is(err, fs.ErrPermission): // not even this process may read it
		return directory{path: path, private: true}, nil, nil
	case err != nil:
		return directory{}, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	var own unix.Stat_t
	if err := unix.Fstat(fd, &own); err != nil {
		return directory{}, nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	d = directory{path: path, inode: own.Ino, changed: w.settled(own.Ctim.Nano()), private: closed(own.Mode)}
	if d.private && path != "." {
		return d, nil, nil
	}
	for {
		n, err := unix.Getdents(fd, buffer)
		if err != nil {
			return directory{}, nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n <= 0 {
			return d, below, nil
		}
		for entries := buffer[:n]; len(entries) > 0; {
			var name string
			var typ byte
			name, typ, entries = nextEntry(entries)
			if typ == unix.DT_LNK || name == "." || name == ".." {
				continue
			}
			var stat unix.Stat_t
			if typ != unix.DT_DIR {
				if err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
					d.changed = 0 // the directory was removed meanwhile
					continue
				}
			}
			switch isDirectory := typ == unix.DT_DIR || stat.Mode&unix.S_IFMT == unix.S_IFDIR; {
			case isDirectory:
				at := join(path, name)
				if !w.known[at] {
					below = append(below, at)
				}
			case closed(stat.Mode):
				d.files = append(d.files, name)
			}
		}
	}
}

// settled returns changed, the time of a change. It returns 0 if this time is so recent that the
// next change could get the same time.
func (w *walk) settled(changed int64) int64 {
	if w.now.Sub(time.Unix(0, changed)) < 2*time.Second {
		return 0
	}
	return changed
}

// nextEntry decodes the first of entries, which have the format of getdents64.
func nextEntry(entries []byte) (name string, typ byte, rest []byte) {
	const length, kind, text = 16, 18, 19 // offsets in struct linux_dirent64
	n := binary.NativeEndian.Uint16(entries[length:])
	name, _, _ = strings.Cut(string(entries[text:n]), "\x00")
	return name, entries[kind], entries[n:]
}

// closed reports whether a mode denies access to users who are neither the owner nor in the
// group. A directory is closed if these users cannot enter it. A file is closed if these users can
// neither read nor execute it. A file that everybody may execute is a program and not a secret.
func closed(mode uint32) bool {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return mode&0o001 == 0
	case unix.S_IFLNK:
		return false
	}
	return mode&0o005 == 0
}

func join(path, name string) string {
	if path == "." {
		return name
	}
	return path + "/" + name
}
