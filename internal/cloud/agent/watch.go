//go:build linux

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
)

// maxWatchedDirs bounds one recursive watch.
const maxWatchedDirs = 16 << 10

// watch follows the changes below one directory. It belongs to one goroutine.
type watch struct {
	agent     *Agent
	notify    *fsnotify.Watcher
	root      string // without symbolic links: what events begin with
	asked     string // the path of the request: what entries begin with
	recursive bool
	entries   bool // describe what changed

	dirs map[string]bool // below root, watched
	// reported is what was found by looking into a new directory. The kernel may
	// have seen its creation as well, and would tell again.
	reported map[string]bool
	// halfChmod is a directory whose change was told by its parent's watch or its
	// own; the other one tells it next.
	halfChmod string
}

// watchRequest is what both kinds of watch ask for.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// newWatch watches from now on. Its errors are Connect's.
func (a *Agent) newWatch(path string, req watchRequest) (*watch, error) {
	root, err := directory(path)
	if err != nil {
		return nil, err
	}
	if !req.GetAllowNetworkMounts() {
		if err := refuseNetworkMount(path); err != nil {
			return nil, err
		}
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("error creating watcher: %w", err))
	}
	w := &watch{
		agent:     a,
		notify:    notify,
		root:      root,
		asked:     path,
		recursive: req.GetRecursive(),
		entries:   req.GetIncludeEntry(),
		dirs:      make(map[string]bool),
		reported:  make(map[string]bool),
	}
	if err := w.add(root, nil); err != nil {
		code := connect.CodeInternal
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, errTooManyDirs) {
			code = connect.CodeResourceExhausted
		}
		return nil, connect.NewError(code, errors.Join(fmt.Errorf("error adding path %s to watcher: %w", path, err), notify.Close()))
	}
	return w, nil
}

var errTooManyDirs = fmt.Errorf("too many directories: the bound of a watch is %d", maxWatchedDirs)

func (w *watch) close() error { return w.notify.Close() }

// add watches dir, which just came to be known, and everything below it when the
// watch is recursive. It calls found with what is in there already.
func (w *watch) add(dir string, found func(path string)) error {
	if err := w.notify.Add(dir); err != nil {
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
	list, err := os.ReadDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	for _, d := range list {
		path := filepath.Join(dir, d.Name())
		if found != nil {
			found(path)
		}
		if d.IsDir() {
			if err := ignoreGone(w.add(path, found)); err != nil {
				return err
			}
		}
	}
	return nil
}

func ignoreGone(err error) error {
	if isMissing(err) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// handle turns one event of the kernel into those of the wire.
func (w *watch) handle(event fsnotify.Event) ([]*filesystem.FilesystemEvent, error) {
	path := event.Name
	var events []*filesystem.FilesystemEvent
	tell := func(path string, kind filesystem.EventType) {
		events = append(events, w.event(path, kind))
	}
	var err error
	if event.Has(fsnotify.Create) {
		if w.reported[path] {
			delete(w.reported, path)
		} else {
			tell(path, filesystem.EventType_EVENT_TYPE_CREATE)
		}
		if w.recursive && !w.dirs[path] && isDir(path) {
			err = ignoreGone(w.add(path, func(path string) {
				w.reported[path] = true
				tell(path, filesystem.EventType_EVENT_TYPE_CREATE)
			}))
		}
	}
	if event.Has(fsnotify.Rename) {
		tell(path, filesystem.EventType_EVENT_TYPE_RENAME)
	}
	if event.Has(fsnotify.Chmod) && !w.toldTwice(path) {
		tell(path, filesystem.EventType_EVENT_TYPE_CHMOD)
	}
	if event.Has(fsnotify.Write) {
		tell(path, filesystem.EventType_EVENT_TYPE_WRITE)
	}
	if event.Has(fsnotify.Remove) {
		tell(path, filesystem.EventType_EVENT_TYPE_REMOVE)
	}
	if event.Has(fsnotify.Rename) || event.Has(fsnotify.Remove) {
		w.forget(path)
	}
	return events, err
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// forget drops what was below path: under a new name it is found again.
func (w *watch) forget(path string) {
	below := path + "/"
	for reported := range w.reported {
		if reported == path || strings.HasPrefix(reported, below) {
			delete(w.reported, reported)
		}
	}
	for dir := range w.dirs {
		if dir == path || strings.HasPrefix(dir, below) {
			delete(w.dirs, dir)
			_ = w.notify.Remove(dir) // gone with the directory, most often
		}
	}
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
	event := &filesystem.FilesystemEvent{Name: name, Type: kind}
	if w.entries && kind != filesystem.EventType_EVENT_TYPE_REMOVE && kind != filesystem.EventType_EVENT_TYPE_RENAME {
		event.Entry = w.agent.entryIfAny(filepath.Join(w.asked, name))
	}
	return event
}

// refuseNetworkMount keeps a client from waiting for changes that other machines
// make: the kernel does not tell those.
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
