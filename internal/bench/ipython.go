//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// shell runs one cell a line, in the Python that sandboxes run.
const shell = `
import sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=config)
for line in sys.stdin:
    shell.run_cell(line, store_history=True)
    sys.stdout.flush()
`

// pipedShell is IPython at the other end of a pipe.
type pipedShell struct {
	cmd       *exec.Cmd
	directory string // for what IPython writes
	in        io.WriteCloser
	out       *bufio.Scanner
}

func startShell(ctx context.Context) (_ *pipedShell, err error) {
	python, err := local.FindPython(ctx)
	if err != nil {
		return nil, err
	}
	s := &pipedShell{cmd: exec.CommandContext(ctx, python.Path, "-c", shell)}
	if s.directory, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, err
	}
	s.cmd.Env = append(os.Environ(), "IPYTHONDIR="+s.directory)
	s.in, err = s.cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.directory))
	}
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.directory))
	}
	s.out = bufio.NewScanner(out)
	return s, nil
}

// add runs the cell 1+1.
func (s *pipedShell) add(context.Context) error {
	if _, err := io.WriteString(s.in, "1+1\n"); err != nil {
		return err
	}
	for s.out.Scan() {
		if strings.HasSuffix(s.out.Text(), ": 2") {
			return nil
		}
	}
	return errors.Join(errors.New("IPython ended"), s.out.Err())
}

func (s *pipedShell) close() error {
	return errors.Join(s.in.Close(), s.cmd.Wait(), os.RemoveAll(s.directory))
}

// ipythonStart is a Python with IPython from its start to its first result.
func ipythonStart(ctx context.Context, runs int) (result, error) {
	return repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		s, err := startShell(ctx)
		if err != nil {
			return 0, err
		}
		err = s.add(ctx)
		took := time.Since(start)
		return took, errors.Join(err, s.close())
	})
}

// ipythonCell is a cell of a Python that runs.
func ipythonCell(ctx context.Context, runs int) (_ result, err error) {
	s, err := startShell(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return calls(s.add)(ctx, runs)
}
