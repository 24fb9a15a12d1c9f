package local

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// allowedMounts is a flag value of the form DIR[:rw]. The flag may be repeated.
type allowedMounts []allowedMount

type allowedMount struct {
	dir      string // an absolute path, because the process in the background has another current directory
	writable bool
}

func (m allowedMount) String() string {
	if m.writable {
		return m.dir + ":rw"
	}
	return m.dir
}

func (*allowedMounts) Type() string { return "dir[:rw]" }

func (m *allowedMounts) String() string { return "" }

func (m *allowedMounts) Set(value string) error {
	dir, writable := strings.CutSuffix(value, ":rw")
	if dir == "" {
		return errors.New("want a directory, such as ./data, and :rw behind it if sandboxes may change it")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	*m = append(*m, allowedMount{dir, writable})
	return nil
}

// options returns the options that start a local cloud with these mounts.
func (m allowedMounts) options() []local.Option {
	var all []local.Option
	for _, one := range m {
		allow := local.WithAllowedMounts
		if one.writable {
			allow = local.WithWritableMounts
		}
		all = append(all, allow(one.dir))
	}
	return all
}
