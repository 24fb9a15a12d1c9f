package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// A floor is what the same costs without us: the median of so many runs.
type floor func(ctx context.Context, runs int) (time.Duration, error)

// bare runs a program of the host.
func bare(name string, arguments ...string) floor {
	return func(ctx context.Context, runs int) (time.Duration, error) {
		return median(ctx, runs, whole(func(ctx context.Context) error { return exec.CommandContext(ctx, name, arguments...).Run() }))
	}
}

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
func ipythonStart(ctx context.Context, runs int) (time.Duration, error) {
	return median(ctx, runs, func(ctx context.Context) (time.Duration, error) {
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
func ipythonCell(ctx context.Context, runs int) (_ time.Duration, err error) {
	s, err := startShell(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return median(ctx, runs, whole(s.add))
}

// download and upload are bulk bytes over net/http on the loopback.
func download(ctx context.Context, runs int) (time.Duration, error) {
	return overHTTP(ctx, runs, http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, zeros(bulk))
	})
}

func upload(ctx context.Context, runs int) (time.Duration, error) {
	return overHTTP(ctx, runs, http.MethodPost, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})
}

func overHTTP(ctx context.Context, runs int, method string, serve http.HandlerFunc) (time.Duration, error) {
	server := httptest.NewServer(serve)
	defer server.Close()
	return median(ctx, runs, whole(func(ctx context.Context) error {
		var body io.Reader
		if method == http.MethodPost {
			body = zeros(bulk)
		}
		request, err := http.NewRequestWithContext(ctx, method, server.URL, body)
		if err != nil {
			return err
		}
		response, err := server.Client().Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		n, err := io.Copy(io.Discard, response.Body)
		if err == nil && method == http.MethodGet && n != bulk {
			err = fmt.Errorf("%d bytes came", n)
		}
		return err
	}))
}

// zeros gives so many zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
