package mirror

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"time"
)

// entry is a file, a directory or a symbolic link.
type entry struct {
	kind    fs.FileMode // 0 for a file, fs.ModeDir, fs.ModeSymlink or unsendable
	perm    fs.FileMode
	size    int64
	modTime time.Time
	target  string // the target of a symbolic link
	keeps   bool   // the directory contains an ignored entry, so it is not removed
}

// unsendable is the kind of an entry that cannot be sent. If the destination has an entry of the
// same name, that entry is not changed.
const unsendable = fs.ModeIrregular

func (e entry) isDir() bool { return e.kind == fs.ModeDir }

// timeStep is the precision with which times are compared, because some file systems store times
// with no higher precision.
const timeStep = 100 * time.Nanosecond

// equals reports whether the entries are equal, so that nothing needs to be sent.
func (e entry) equals(other entry) bool {
	switch {
	case e.kind != other.kind:
		return false
	case e.kind == fs.ModeSymlink:
		return e.target == other.target
	case e.perm != other.perm && runtime.GOOS != "windows": // which has no such permissions
		return false
	case e.isDir():
		return true
	}
	return e.size == other.size && e.modTime.Truncate(timeStep).Equal(other.modTime.Truncate(timeStep))
}

// tree contains the entries of a directory that are not ignored. The keys are their paths, with
// slashes.
type tree map[string]entry

// ignored records that the entry called name is ignored, so that no directory above it is removed.
func (t tree) ignored(name string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		e, ok := t[dir]
		if e.keeps {
			return
		}
		if ok {
			e.keeps = true
			t[dir] = e
		}
	}
}

// scanLocal reads a directory of this machine. It adds the .gitignore files to rules, and leaves
// out entries that rules or one of others ignores. It calls visit before it reads a directory,
// unless visit is nil.
func scanLocal(root *os.Root, rules *rules, others []*rules, visit func(dir string) error, skipped func(name, why string)) (tree, error) {
	all := tree{}
	enter := func(dir string) error {
		if visit != nil {
			if err := visit(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return readIgnoreFile(root, dir, rules)
	}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != ".": // removed meanwhile
			return nil
		case err != nil:
			return err
		case name == ".":
			return enter(name)
		case ignoredBy(append(others, rules), name, d.IsDir()):
			all.ignored(name)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		e, err := localEntry(root, name, d)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, errSpecial):
			skipped(name, err.Error())
			all[name] = entry{kind: unsendable}
			return nil
		case err != nil:
			return err
		}
		all[name] = e
		if e.isDir() {
			return enter(name)
		}
		return nil
	})
	return all, err
}

var errSpecial = errors.New("it is neither a file, a directory nor a link")

func localEntry(root *os.Root, name string, d fs.DirEntry) (entry, error) {
	info, err := d.Info()
	if err != nil {
		return entry{}, err
	}
	e := entry{kind: info.Mode().Type(), perm: info.Mode().Perm(), size: info.Size(), modTime: info.ModTime()}
	switch e.kind {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		e.target, err = root.Readlink(name)
	default:
		err = errSpecial
	}
	return e, err
}

// readIgnoreFile adds the .gitignore of a directory. Like git, it does not read a .gitignore that
// is a symbolic link.
func readIgnoreFile(root *os.Root, dir string, rules *rules) error {
	name := path.Join(dir, ignoreFile)
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	text, err := root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	rules.add(dir, string(text))
	return err
}

func ignoredBy(all []*rules, name string, isDir bool) bool {
	for _, rules := range all {
		if rules.ignored(name, isDir) {
			return true
		}
	}
	return false
}
