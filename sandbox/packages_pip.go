package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const pipPython = "python3"

// installing contains the arguments of pip for an installation. pip does not compile modules,
// because Python compiles a module when code imports it. To compile all modules would take several
// times as long as the rest of the installation.
var installing = []string{"install", "--no-compile"}

// fewerRetries is a shell script that runs its arguments with fewer retries of pip. With pip's own
// five retries, an unreachable index costs many seconds. A value that the sandbox sets takes
// precedence, because a sandbox without internet sets 0.
const fewerRetries = `export PIP_RETRIES="${PIP_RETRIES-2}"; exec "$@"`

// pipRun runs pip for one call, with its own directory in the sandbox.
type pipRun struct {
	sb        *Sandbox
	asked     []string // the requirements of the call, for errors
	directory string
	used      bool // the directory has files
	envs      map[string]string
	wasm      *wasmPython // the Python for the packages; nil: the Python of sb
	masks     *strings.Replacer
	output    io.Writer // receives the output of pip; may be nil
	excluded  []ExcludedRequirement
}

// startPip prepares a run of pip. output may be nil. The caller must call close.
func (p *Packages) startPip(ctx context.Context, place *place, asked []string, output io.Writer) (*pipRun, error) {
	settings, err := p.index.settings(p.credentials)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	sb, err := place.pip(ctx)
	if err != nil {
		return nil, err
	}
	c := &pipRun{sb: sb, asked: asked, directory: newPipDirectory(), wasm: place.wasm, masks: settings.Masks(), output: output}
	certificates := c.path("certificates.pem")
	c.envs = settings.Environment(certificates)
	if settings.Certificates != nil {
		if err := c.write(ctx, certificates, strings.NewReader(string(settings.Certificates))); err != nil {
			c.close(ctx)
			return nil, err
		}
	}
	return c, nil
}

// newPipDirectory returns the path of a directory for one call.
func newPipDirectory() string { return "/tmp/e2bctl-" + jupyter.NewID() }

// close removes the directory in the background. It also ends a second sandbox that exists only
// for pip.
func (c *pipRun) close(ctx context.Context) {
	if c.used && c.wasm == nil {
		c.sb.background(ctx, func(ctx context.Context) {
			_, _ = c.sb.Commands.run(ctx, []string{"rm", "-rf", c.directory}, &CommandParams{User: "root"})
		})
	}
}

func (c *pipRun) path(name string) string { return c.directory + "/" + name }

func (c *pipRun) write(ctx context.Context, path string, r io.Reader) error {
	c.used = true
	return c.sb.Files.WriteFrom(ctx, path, r, &FileParams{User: "root"})
}

// upload uploads a file of this machine and returns its path in the sandbox.
func (c *pipRun) upload(ctx context.Context, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	path := c.path(filepath.Base(file))
	return path, c.write(ctx, path, f)
}

// run runs pip to its end; pip is killed when ctx ends.
func (c *pipRun) run(ctx context.Context, arguments ...string) error {
	c.used = true // the log is a file in the directory
	argv := append([]string{"/bin/sh", "-c", fewerRetries, "sh", pipPython}, c.wasm.pip()...)
	argv = append(append(argv, "--log", c.path("log")), c.wasm.arguments(arguments)...)
	command := &CommandParams{User: "root", Cwd: "/", Envs: c.envs, MaxOutputBytes: 64 << 10}
	var outputs []*pipOutput
	if c.output != nil {
		outputs = []*pipOutput{{to: c.output, masks: c.masks}, {to: c.output, masks: c.masks}}
		command.Stdout, command.Stderr = outputs[0], outputs[1]
	}
	result, err := c.sb.Commands.run(ctx, argv, command)
	for _, o := range outputs {
		if rest := o.flush(); err == nil && rest != nil {
			err = fmt.Errorf("write its output: %w", rest)
		}
	}
	if _, failed := errors.AsType[*ExitError](err); failed {
		failed := newInstallError(c.asked, result, c.log(ctx), c.masks, c.sb.offline(ctx))
		failed.wasm = c.wasm
		return failed
	}
	if err != nil {
		return c.sb.failed(ctx, "install packages", err)
	}
	c.excluded = append(c.excluded, excluded(result.Stdout)...)
	return nil
}

// log returns the lines of pip's log about pages of an index that pip could not fetch. These lines
// do not mean that the call failed; they only explain a failure.
func (c *pipRun) log(ctx context.Context) string {
	result, err := c.sb.Commands.run(ctx, []string{"grep", "-h", "Could not fetch URL", c.path("log")}, &CommandParams{User: "root", MaxOutputBytes: 64 << 10})
	if err != nil {
		return ""
	}
	return result.Stdout
}
