//go:build linux

package envd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

const (
	// maxWatchedDirs bounds the number of directories in a recursive watch.
	maxWatchedDirs = 16 << 10
	// maxReported bounds the number of files in watch.reported. If there are more files, some creations
	// are reported twice.
	maxReported = 64 << 10
)

// watch follows the changes in a directory. A recursive watch also follows the changes in all
// directories below that directory.
type watch struct {
	server    *Server
	notify    *inotify
	root      string // path without symbolic links; begins the paths of events
	asked     string // path in the request; begins the paths of entries
	recursive bool
	entries   bool // events describe the changed files

	mu     sync.Mutex // held while changes are read and handled
	failed error      // the reason why no more changes can be read

	dirs map[string]bool // watched directories below root
	// reported contains the files that were found in a new directory. If the kernel reports the
	// creation of such a file as well, this report is ignored. If the name later belongs to another
	// file, the creation of the other file is reported.
	reported map[string]inode
	// halfChmod is a directory whose change of mode has been reported by one of two watches: by the
	// directory's own watch, or by the watch of its parent. The other watch reports the same change
	// next.
	halfChmod string
}

// watchRequest is implemented by streamed and by polled watch requests.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// newWatch starts a watch. Its errors are Connect errors.
func (s *Server) newWatch(path string, req watchRequest) (*watch, error) {
	root, err := directory(path)
	if err != nil {
		return nil, err
	}
	if !req.GetAllowNetworkMounts() {
		if err := refuseNetworkMount(path); err != nil {
			return nil, err
		}
	}
	notify, err := newInotify()
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("error creating watcher: %w", err))
	}
	w := &watch{
		server:    s,
		notify:    notify,
		root:      root,
		asked:     path,
		recursive: req.GetRecursive(),
		entries:   req.GetIncludeEntry(),
		dirs:      make(map[string]bool),
		reported:  make(map[string]inode),
	}
	if err := w.add(root, nil); err != nil {
		code := connect.CodeInternal
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, errTooManyDirs) {
			code = connect.CodeResourceExhausted
		}
		return nil, connect.NewError(code, errors.Join(fmt.Errorf("error adding path %s to watcher: %w", path, err), notify.close()))
	}
	return w, nil
}

var errTooManyDirs = fmt.Errorf("too many directories: the bound of a watch is %d", maxWatchedDirs)

func (w *watch) close() error { return w.notify.close() }

// add watches dir, a directory that has just been found. If the watch is recursive, add also
// watches everything below dir. It calls found for each file that already exists below dir.
func (w *watch) add(dir string, found func(path string) error) error {
	events := uint32(followed)
	if dir == w.root {
		events |= itself
	}
	if err := w.notify.add(dir, events); err != nil {
		return err
	}
	if dir != w.root {
		w.dirs[dir] = true
	}
	if !w.recursive {
		return nil
	}
	if len(w.dirs) > maxWatchedDirs {
		return errTooManyDirs
	}
	f, err := openDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	defer f.Close()
	for {
		const batch = 256
		list, err := f.ReadDir(batch)
		for _, d := range list {
			path := filepath.Join(dir, d.Name())
			if found != nil {
				if err := found(path); err != nil {
					return err
				}
			}
			if d.IsDir() {
				if err := ignoreGone(w.add(path, found)); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ignoreGone(err)
		}
	}
}

func ignoreGone(err error) error {
	if isMissing(err) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// take reads changes once, and handles them. It returns the size of the changes in bytes. The size
// is 0 if there are no changes now. If there can be no more changes, take returns a Connect error.
// The caller must hold mu.
func (w *watch) take(emit func(*filesystem.FilesystemEvent) error) (int, error) {
	if w.failed != nil {
		return 0, w.failed
	}
	var coded *connect.Error
	n, err := w.notify.read(func(c change) error {
		err := w.handle(c, emit)
		if err != nil && !errors.As(err, &coded) {
			err = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("error watching a new directory: %w", err))
		}
		return err
	})
	if err != nil && !errors.As(err, &coded) {
		err = connect.NewError(connect.CodeInternal, fmt.Errorf("watcher error: %w", err))
	}
	w.failed = err
	return n, err
}

// catchUp handles every change that happened before the call. It returns false if the watch has
// ended.
func (w *watch) catchUp(emit func(*filesystem.FilesystemEvent) error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	pending, err := w.notify.pending()
	for err == nil && pending > 0 {
		var n int
		if n, err = w.take(emit); n == 0 {
			break
		}
		pending -= n
	}
	return err == nil
}

// handle converts a change to events of the wire protocol. It emits each event at once and does not
// collect the events, because a directory that was moved here may have any size.
func (w *watch) handle(c change, emit func(*filesystem.FilesystemEvent) error) error {
	const renamed, removed = unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, unix.IN_DELETE | unix.IN_DELETE_SELF
	tell := func(path string, kind filesystem.EventType) error { return emit(w.event(path, kind)) }
	if c.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
		if err := w.created(c.path, tell); err != nil {
			return err
		}
	}
	for _, kind := range []struct {
		of   uint32
		kind filesystem.EventType
	}{
		{renamed, filesystem.EventType_EVENT_TYPE_RENAME},
		{unix.IN_ATTRIB, filesystem.EventType_EVENT_TYPE_CHMOD},
		{unix.IN_MODIFY, filesystem.EventType_EVENT_TYPE_WRITE},
		{removed, filesystem.EventType_EVENT_TYPE_REMOVE},
	} {
		if c.mask&kind.of == 0 || kind.of == unix.IN_ATTRIB && w.toldTwice(c.path) {
			continue
		}
		if err := tell(c.path, kind.kind); err != nil {
			return err
		}
	}
	if c.mask&(renamed|removed) != 0 {
		w.forget(c.path, c.mask&renamed != 0)
	}
	return nil
}

// created reports path and everything below it, unless path has been reported before.
func (w *watch) created(path string, tell func(string, filesystem.EventType) error) error {
	info, _ := os.Lstat(path) // nil: path no longer exists
	reported, told := w.reported[path]
	delete(w.reported, path)
	if !told || info != nil && inodeOf(info) != reported {
		if err := tell(path, filesystem.EventType_EVENT_TYPE_CREATE); err != nil {
			return err
		}
	}
	if info == nil || !w.recursive || w.dirs[path] || !info.IsDir() {
		return nil
	}
	return ignoreGone(w.add(path, func(path string) error {
		if info, err := os.Lstat(path); err == nil {
			if len(w.reported) >= maxReported {
				clear(w.reported)
			}
			w.reported[path] = inodeOf(info)
		}
		return tell(path, filesystem.EventType_EVENT_TYPE_CREATE)
	}))
}

// forget drops path. If path is a renamed directory, forget also drops everything below it. The
// content of the directory is found again under the new name. A removed directory is empty.
func (w *watch) forget(path string, renamed bool) {
	delete(w.reported, path)
	if !w.dirs[path] {
		return
	}
	w.unwatch(path)
	if !renamed {
		return
	}
	below := path + "/"
	for reported := range w.reported {
		if strings.HasPrefix(reported, below) {
			delete(w.reported, reported)
		}
	}
	for dir := range w.dirs {
		if strings.HasPrefix(dir, below) {
			w.unwatch(dir)
		}
	}
}

func (w *watch) unwatch(dir string) {
	delete(w.dirs, dir)
	w.notify.remove(dir)
}

func (w *watch) toldTwice(path string) bool {
	if !w.dirs[path] {
		return false
	}
	if w.halfChmod == path {
		w.halfChmod = ""
		return true
	}
	w.halfChmod = path
	return false
}

func (w *watch) event(path string, kind filesystem.EventType) *filesystem.FilesystemEvent {
	name, err := filepath.Rel(w.root, path)
	if err != nil {
		name = path
	}
	event := &filesystem.FilesystemEvent{Name: text(name), Type: kind}
	if w.entries && kind != filesystem.EventType_EVENT_TYPE_REMOVE && kind != filesystem.EventType_EVENT_TYPE_RENAME {
		event.Entry = w.server.entryIfAny(filepath.Join(w.asked, name))
	}
	return event
}

// refuseNetworkMount returns an error if path is on a network filesystem. On such a filesystem, the
// kernel does not report changes made by other machines, so a client would wait for these changes
// in vain.
func refuseNetworkMount(path string) error {
	var info unix.Statfs_t
	if err := unix.Statfs(path, &info); err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("error checking the filesystem of %s: %w", path, err))
	}
	switch uint32(info.Type) {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cannot watch path on network filesystem: %s", path))
	}
	return nil
}
