// Command build tests and builds a Python project in a sandbox, and downloads the result. If
// strangers wrote the project, do not test or build it on your own machine.
//
//	build -local -o dist path/to/project
//
// The project has a program in src and its tests in tests; the program becomes one file that runs by
// itself. Without -local, E2B_API_KEY and the other E2B_ variables name the service to use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

const usage = `Usage: build [flags] PROJECT

PROJECT is the directory of a Python project that needs nothing but Python itself. It has:
  src/__main__.py    the program, with its modules beside it
  tests/test*.py     its tests, which import these modules
When the tests pass, the program becomes one file, app.pyz.

`

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	out := flag.String("o", "dist", "`directory` to save what was built in")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := build(ctx, os.Stdout, *here, flag.Arg(0), *out)
	stop()
	if failed, ok := errors.AsType[*sandbox.ExitError](err); ok {
		os.Exit(failed.Result.ExitCode) // its output has been shown already
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

// steps are run in the project one after another, until one fails.
var steps = []string{
	"python3 -m unittest discover tests",
	"mkdir -p dist",
	`python3 -m zipapp src --python "/usr/bin/env python3" --output dist/app.pyz`,
}

func build(ctx context.Context, w io.Writer, here bool, project, out string) (err error) {
	if project == "" {
		return errors.New("which project? See -h")
	}
	for _, pattern := range []string{"src/__main__.py", "tests/test*.py"} {
		if found, err := fs.Glob(os.DirFS(project), pattern); err != nil || len(found) == 0 {
			return errors.Join(fmt.Errorf("%s has no %s, see -h", project, pattern), err)
		}
	}
	// It needs nothing from the network, so it gets no network.
	options := []sandbox.CreateOption{sandbox.WithInternet(false)}
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := sb.Files.UploadDir(ctx, project, "project", &sandbox.UploadDirParams{Exclude: unwanted, Gzip: true}); err != nil {
			return err
		}
		for _, step := range steps {
			if _, err := sb.Commands.Run(ctx, step, &sandbox.CommandParams{
				Cwd: "project", Envs: map[string]string{"PYTHONPATH": "src"}, Timeout: 10 * time.Minute,
				Stdout: w, Stderr: w,
			}); err != nil {
				return err
			}
		}
		return sb.Files.DownloadDir(ctx, "project/dist", out, &sandbox.DownloadDirParams{MaxBytes: 1 << 30})
	}, options...)
}

// unwanted reports whether to leave out a file, because no build needs it.
func unwanted(name string, _ fs.DirEntry) bool {
	switch filepath.Base(name) {
	case ".git", ".venv", "__pycache__", "dist":
		return true
	}
	return false
}
