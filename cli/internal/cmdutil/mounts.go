package cmdutil

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// hostMounts is a flag value of the form DIR:PATH[:rw]. The flag may be repeated.
type hostMounts []sandbox.Mount

func (*hostMounts) Type() string { return "dir:path[:rw]" }

func (m *hostMounts) String() string { return "" }

func (m *hostMounts) Set(value string) error {
	text, writable := strings.CutSuffix(value, ":rw")
	if !writable {
		text = strings.TrimSuffix(text, ":ro") // the default
	}
	at := strings.LastIndex(text, ":/")
	if at <= 0 {
		return errors.New("want a directory of this machine and one of the sandbox, such as ./data:/data, and :rw behind them if it may be changed")
	}
	dir, err := filepath.Abs(text[:at])
	if err != nil {
		return err
	}
	*m = append(*m, sandbox.Mount{Dir: dir, Path: text[at+1:], Writable: writable})
	return nil
}

// allowed returns the options with which a local cloud allows these
// directories.
func (m hostMounts) allowed() []local.Option {
	var options []local.Option
	for _, one := range m {
		allow := local.WithAllowedMounts
		if one.Writable {
			allow = local.WithWritableMounts
		}
		options = append(options, allow(one.Dir))
	}
	return options
}

// volumeMounts is a flag value of the form NAME:PATH. The flag may be repeated.
type volumeMounts []sandbox.VolumeMount

func (*volumeMounts) Type() string { return "name:path" }

func (v *volumeMounts) String() string { return "" }

func (v *volumeMounts) Set(value string) error {
	name, path, _ := strings.Cut(value, ":")
	if name == "" || !strings.HasPrefix(path, "/") {
		return errors.New("want the name of a volume and a directory, such as data:/data")
	}
	*v = append(*v, sandbox.VolumeMount{Name: name, Path: path})
	return nil
}
