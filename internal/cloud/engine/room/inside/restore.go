//go:build linux

package inside

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
)

// restore fills the staging directory with saved files, before anything is mounted in it. It
// follows no links in these files.
func (b *built) restore(spec *wire.InitSpec, from *os.File) error {
	defer from.Close()
	layered := len(spec.Layers) > 0
	return readSaved(from, ".", shortage.SandboxDisk, saved.Options{Layout: spec.Saved, Place: func(name string) (saved.Place, error) {
		i := slices.Index(spec.Trees, name)
		switch {
		case name == "" && layered:
			return b.restoreTo(name, rootUpper)
		case name == "":
			dir, err := os.Open("root")
			return saved.Place{Dir: dir, Plain: true}, err
		case i < 0 && !layered:
			return b.lostTree(spec, name)
		case i < 0:
			var err error
			if i, err = b.addTree(spec, name); err != nil {
				return saved.Place{}, err
			}
		}
		return b.restoreTo(name, filepath.Join("upper", strconv.Itoa(i)))
	}})
}

// restoreTo returns the upper directory of a tree as the place to which the tree's changes are
// restored.
func (b *built) restoreTo(tree, upper string) (saved.Place, error) {
	if err := os.Mkdir(upper, 0o700); err != nil {
		return saved.Place{}, err
	}
	b.restored[tree] = true
	dir, err := os.Open(upper)
	return saved.Place{Dir: dir}, err
}

// lostTree returns the place for the changes of a tree that sandboxes on this machine no longer
// have. This place is the tree's own path. In a sandbox with layers, [built.addTree] handles such a
// tree instead.
func (b *built) lostTree(spec *wire.InitSpec, path string) (saved.Place, error) {
	if err := checkLost(spec, path); err != nil {
		return saved.Place{}, err
	}
	if err := b.makeReal(path, 0o755); err != nil {
		return saved.Place{}, err
	}
	b.noteLost(path)
	dir, err := os.Open(filepath.Join("root", path))
	return saved.Place{Dir: dir, Plain: true}, err
}

func checkLost(spec *wire.InitSpec, path string) error {
	for _, tree := range spec.Trees {
		if strings.HasPrefix(path, tree+"/") || strings.HasPrefix(tree, path+"/") {
			return fmt.Errorf("they contain changes of %s, which this machine now shows as a part of something else: %s", path, tree)
		}
	}
	return nil
}

func (b *built) noteLost(path string) {
	b.notes = append(b.notes, fmt.Sprintf("%s is no longer shown: only what was changed there is left", path))
}

// readSaved reads saved files. work is a directory on the file system to which the files are
// restored. readSaved makes a directory for links in work. If the file system is full, the error
// names the file system with the text in disk.
func readSaved(from *os.File, work, disk string, o saved.Options) error {
	links := filepath.Join(work, rand.Text())
	if err := os.Mkdir(links, 0o700); err != nil {
		return err
	}
	dir, err := os.Open(links)
	if err != nil {
		return err
	}
	defer dir.Close()
	o.Links = dir
	if err := saved.Read(from, o); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("they do not fit on %s: %w", disk, err)
		}
		return err
	}
	return os.Remove(links)
}

// restoreInPlace fills the directory of a sandbox without namespaces with saved files.
func restoreInPlace(spec *wire.InitSpec, passed *wire.Files) error {
	from, err := passed.TakeWhen(spec.Saved != "", wire.FileSaved)
	if err == nil {
		err = passed.End()
	}
	if err != nil || from == nil {
		return err
	}
	defer from.Close()
	has, err := capability.Effective()
	if err != nil {
		return err
	}
	owned := has&(1<<unix.CAP_CHOWN) == 0 // a root may lack it, too
	return readSaved(from, spec.Root.Dir, "the disk with the directories of sandboxes", saved.Options{Layout: spec.Saved, Owned: owned, Place: func(name string) (saved.Place, error) {
		if name != "" {
			return saved.Place{}, fmt.Errorf("%w: with trees", saved.ErrLayout)
		}
		dir, err := os.Open(spec.Root.Dir)
		return saved.Place{Dir: dir, Plain: true}, err
	}})
}

// madeAnew are the files of /etc that every start writes.
var madeAnew = []string{"resolv.conf", "hostname", "hosts"}

// mendSkeleton writes the files that this start needs into a root that was restored or has layers. It
// keeps all other files as they were saved, with all changes and removals.
func (b *built) mendSkeleton(spec *wire.InitSpec) error {
	if len(spec.Layers) == 0 { // with layers, makeMissing has already done this
		if err := makeMissing("root"); err != nil {
			return err
		}
	}
	for path, mode := range map[string]fs.FileMode{"/etc": 0o755, "/run": 0o755, "/tmp": 0o777 | fs.ModeSticky} {
		if err := b.makeReal(path, mode); err != nil {
			return err
		}
	}
	for name, target := range spec.Links {
		err := os.Symlink(target, "root"+name)
		if errors.Is(err, fs.ErrExist) && unix.Rmdir("root"+name) == nil { // an empty directory, the mount point of a tree
			err = os.Symlink(target, "root"+name)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	texts := etc(spec)
	for _, name := range madeAnew {
		// The last two get their text when the hostname is known.
		if err := b.moveAside("root/etc", name, isDirectory); err != nil {
			return err
		}
		if err := writeAnew("root/etc", name, []byte(texts["/etc/"+name].text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeMissing makes the directories in root that are never saved.
func makeMissing(root string) error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{"/dev", 0o755}, {"/dev/pts", 0o755}, {"/dev/shm", 0o777 | fs.ModeSticky}, {"/proc", 0o555}, {"/sys", 0o555}} {
		if err := os.Mkdir(root+d.path, d.mode); err != nil {
			return err
		}
	}
	for name, target := range deviceLinks {
		if err := os.Symlink(target, root+name); err != nil {
			return err
		}
	}
	return nil
}

// makeReal makes the directory at path in the root of the sandbox, and the parents of the
// directory, if they are missing. If a link or another file is in the place of one of these
// directories, makeReal renames that file.
func (b *built) makeReal(path string, mode fs.FileMode) error {
	names := strings.Split(strings.Trim(path, "/"), "/")
	at := "root"
	for i, name := range names {
		if err := b.moveAside(at, name, isOther); err != nil {
			return err
		}
		at = filepath.Join(at, name) // every part up to here is a directory
		made := fs.FileMode(0o755)
		if i == len(names)-1 {
			made = mode
		}
		if err := os.Mkdir(at, made); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func isDirectory(mode fs.FileMode) bool { return mode.IsDir() }
func isOther(mode fs.FileMode) bool     { return !mode.IsDir() }

// moveAside renames a file of a wrong type, and adds a note about it.
func (b *built) moveAside(dir, name string, wrong func(fs.FileMode) bool) error {
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !wrong(info.Mode()) {
		return err
	}
	to, err := renameAway(unix.AT_FDCWD, path)
	if err != nil {
		// An overlay can neither rename nor copy some files, such as a device or a directory of a
		// layer. They remain in that layer.
		if removed := os.RemoveAll(path); removed != nil {
			return errors.Join(err, removed)
		}
		b.notes = append(b.notes, fmt.Sprintf("%s was in the way, and is not shown", strings.TrimPrefix(path, "root")))
		return nil
	}
	b.notes = append(b.notes, fmt.Sprintf("%s is now %s", strings.TrimPrefix(path, "root"), strings.TrimPrefix(to, "root")))
	return nil
}

// renameAway renames a file to an unused name.
func renameAway(dir int, name string) (to string, err error) {
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.saved%d", name, n)
		err := unix.Renameat2(dir, name, dir, to, unix.RENAME_NOREPLACE)
		if err == nil {
			return to, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return "", &os.LinkError{Op: "rename", Old: name, New: to, Err: err}
		}
	}
}

// writeAnew writes a file. It replaces an existing file at the path, but not a directory.
func writeAnew(dir, name string, text []byte, mode fs.FileMode) error {
	path := filepath.Join(dir, name)
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "replace", Path: path, Err: err}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
