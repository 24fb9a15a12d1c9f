//go:build linux

package envd

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

type paths struct {
	workdir string // directory that replaces an empty path; "": the user's home
}

// resolve converts the path of a request to an absolute path, as envd does. A relative path is
// relative to the home and not to the working directory. An absolute path is returned unchanged
// and uncleaned, because clients compare it with the path that they sent.
func (p paths) resolve(path string, user *User) (string, error) {
	switch {
	case len(path) >= unix.PathMax:
		return "", fmt.Errorf("path of %d bytes: the bound is %d", len(path), unix.PathMax-1)
	case strings.ContainsRune(path, 0):
		return "", errors.New("path has a zero byte")
	}
	if path == "" {
		if p.workdir == "" {
			return user.Home, nil
		}
		path = p.workdir
	}
	switch {
	case strings.HasPrefix(path, "/"):
		return path, nil
	case path == "~":
		return user.Home, nil
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(user.Home, path[2:]), nil
	case strings.HasPrefix(path, "~"):
		return "", errors.New("cannot expand user-specific home dir")
	}
	return filepath.Join(user.Home, path), nil
}
