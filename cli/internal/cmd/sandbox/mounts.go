package sandbox

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox"
)

// hostMounts is a flag value of the form DIR:PATH[:rw], repeatable.
type hostMounts []sandbox.Mount

func (*hostMounts) Type() string { return "dir:path[:rw]" }

func (m *hostMounts) String() string { return "" }

func (m *hostMounts) Set(value string) error {
	text, writable := strings.CutSuffix(value, ":rw")
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
