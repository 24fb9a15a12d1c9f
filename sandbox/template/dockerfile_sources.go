package template

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// copyLine is a COPY or ADD of a Dockerfile. Each of its sources becomes a separate step.
type copyLine struct{ line int }

// failed adds the line of the Dockerfile to an error.
func (l *copyLine) failed(err error) error {
	return fmt.Errorf("the Dockerfile, line %d: %w", l.line, err)
}

// isPattern reports whether services treat a source as a pattern.
func isPattern(source string) bool { return strings.ContainsAny(source, "*?[") }

// copied returns a step in the form that the service expects, and the files of the step. As in
// Docker, a pattern in a Dockerfile that matches nothing is no error; the step then has no files.
func (s *source) copied(of step, all []step) (step, []file, error) {
	if of.copyLine == nil {
		files, err := s.find(of.Args[0])
		return of, files, err
	}
	found, files, err := s.sourceOf(of.Args[0])
	switch {
	case err == nil:
		of.Args = slices.Clone(of.Args)
		of.Args[0] = found
		return of, files, nil
	case errors.Is(err, fs.ErrNotExist) && isPattern(of.Args[0]):
		if !s.hasOther(of, all) {
			s.note("the Dockerfile, line %d: nothing is copied: nothing matches %s", of.copyLine.line, of.Args[0])
		}
		return of, nil, nil
	}
	return of, nil, of.copyLine.failed(err)
}

// hasOther reports whether another source of the step's COPY exists. A here-document always
// exists.
func (s *source) hasOther(of step, all []step) bool {
	return slices.ContainsFunc(all, func(other step) bool {
		if other.copyLine != of.copyLine {
			return false
		}
		if other.copy == nil {
			return true
		}
		_, _, err := s.sourceOf(other.Args[0])
		return err == nil
	})
}

// sourceOf returns the path or pattern to send for a source of a Dockerfile's COPY, and the files of
// the source. If a pattern has only one match, sourceOf returns the path of the match, because COPY may
// give a single file another name.
func (s *source) sourceOf(pattern string) (string, []file, error) {
	clean, err := contextPath(pattern)
	if err != nil {
		return "", nil, err
	}
	if !isPattern(clean) {
		return s.plainSource(pattern, clean)
	}
	// Docker has no pattern "**".
	for strings.Contains(clean, "**") {
		clean = strings.ReplaceAll(clean, "**", "*")
	}
	names, err := s.match(clean)
	if err != nil {
		return "", nil, fmt.Errorf("copy %q: %w", pattern, err)
	}
	var matches []match
	for _, name := range names {
		found, err := s.follow(name)
		if err != nil {
			return "", nil, fmt.Errorf("copy %q: %w", pattern, err)
		}
		if len(found) > 0 {
			matches = append(matches, match{name, found})
		}
	}
	switch {
	case len(matches) == 0:
		return "", nil, notThere(pattern)
	case len(matches) == 1 && !isPattern(matches[0].name):
		return matches[0].name, sorted(matches[0].files), nil
	}
	files, err := merged(matches, beforePattern(clean))
	if err != nil {
		return "", nil, fmt.Errorf("copy %q: %w", pattern, err)
	}
	return clean, files, nil
}

// plainSource returns the files of a source without a pattern.
func (s *source) plainSource(given, name string) (string, []file, error) {
	found, err := s.follow(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(found) == 0:
		return "", nil, notThere(given)
	case err != nil:
		return "", nil, fmt.Errorf("copy %q: %w", given, err)
	}
	return given, sorted(found), nil
}

// follow returns the final target of name and everything in the target. The returned names begin
// with name, not with the name of the target. As in Docker, symlinks in the name of a source are
// followed, and symlinks inside directories are copied as symlinks.
func (s *source) follow(name string) (map[string]file, error) {
	if ignored, err := s.ignoresSource(name); err != nil || ignored {
		return nil, err
	}
	real, err := s.real(name)
	if err != nil {
		return nil, err
	}
	w := walk{source: s, found: map[string]file{}}
	if err := w.add(real); err != nil {
		return nil, err
	}
	if real == name {
		return w.found, nil
	}
	for at, f := range w.found {
		inside, err := filepath.Rel(filepath.FromSlash(real), filepath.FromSlash(f.name))
		if err != nil {
			return nil, err
		}
		f.to = path.Join(name, filepath.ToSlash(inside))
		w.found[at] = f
	}
	return w.found, nil
}

// ignoresSource reports whether a symlink that is itself a source is ignored. For all other files
// the walk (see [walk]) checks whether they are ignored.
func (s *source) ignoresSource(name string) (bool, error) {
	info, err := s.root.Lstat(name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return s.ignores(name)
	}
	return false, nil // reading the name returns the error again
}

// real follows the symlinks in name and returns the name of the final target. The target must be in
// the source directory.
func (s *source) real(name string) (string, error) {
	_, err := s.root.Stat(name)
	if err != nil {
		if _, missing := s.root.Lstat(name); missing != nil {
			return "", err
		}
		// The error is not wrapped: the symlink exists, so the error must not match a missing
		// file.
		return "", fmt.Errorf("the symlink %s leads nowhere in the directory to copy from (%s); absolute symlinks are not looked up in it: copy its target by the target's name", name, err.Error())
	}
	base, err := filepath.EvalSymlinks(s.root.Name())
	if err != nil {
		return "", err
	}
	whole, err := filepath.EvalSymlinks(filepath.Join(base, filepath.FromSlash(name)))
	if err != nil {
		return "", err
	}
	inside, err := filepath.Rel(base, whole)
	return filepath.ToSlash(inside), err
}

// match is a name that matches a pattern, with all files in it.
type match struct {
	name  string
	files map[string]file
}

// beforePattern returns the part of a pattern before its first element with a special character.
// For a pattern, services copy this directory of the archive.
func beforePattern(pattern string) string {
	for isPattern(pattern) {
		pattern = path.Dir(pattern)
	}
	return pattern
}

// merged returns the files of several matches together in one directory, as Docker copies them. A
// matching file is placed in the directory under the last element of its path. If a match is a
// directory, its content is placed there. If two files have the same name there, the file of the
// later match replaces that of the earlier match.
func merged(matches []match, dir string) ([]file, error) {
	found := map[string]file{}
	for _, m := range matches {
		for _, f := range sorted(m.files) {
			inside := strings.TrimPrefix(strings.TrimPrefix(f.packed(), m.name), "/")
			switch {
			case f.info.IsDir() && inside == "":
				f.to = dir // the target, which an empty directory also creates
			case inside == "":
				f.to = path.Join(dir, path.Base(m.name))
			default:
				f.to = path.Join(dir, inside)
			}
			other, twice := found[f.to]
			if twice && other.info.IsDir() != f.info.IsDir() {
				return nil, fmt.Errorf("%s and %s have one name in the target, and only one of them is a directory", other.name, f.name)
			}
			if !twice || !f.info.IsDir() {
				found[f.to] = f
			}
		}
	}
	return sorted(found), nil
}
