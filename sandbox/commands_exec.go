package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// Quote returns word so that the shell of [Commands.Run] and [Commands.Start] reads it
// as one word, whatever is in it. A word that needs no quotes is returned unchanged. No
// shell can have a NUL byte in a word, and a line that is not UTF-8 is not sent: for
// such words, and where no shell is needed, use [Commands.Exec].
func Quote(word string) string { return shell.Quote(word) }

// Exec runs the program name with arguments, without a shell, and waits for its end: nothing in
// the arguments is interpreted. A name without a slash is looked up in the PATH of the sandbox or
// of p.Envs. No login shell runs before it, so variables that profiles set are missing. Names and
// arguments may hold any byte except NUL, and an argument 128 KiB; ones that are not UTF-8 pass
// through a bash, which the sandbox must have.
//
// p may be nil. Results and errors are those of [Commands.Run]. If the program is not in
// the sandbox, the status is 127 and the [*ExitError] is an [exec.ErrNotFound] as well; a
// program that ends with status 127 itself is not taken for that: a second command asks
// whether the program is there. A file that cannot be executed and a directory end with
// status 126.
func (c *Commands) Exec(ctx context.Context, name string, args []string, p *CommandParams) (*CommandResult, error) {
	argv := append([]string{name}, args...)
	if err := checkArgv(argv); err != nil {
		return nil, fmt.Errorf("sandbox: run a program in %s: %w: %w", c.sb.ID(), api.ErrInvalidArgument, err)
	}
	line := shellLine(argv)
	result, err := c.runLine(ctx, line, wireArgv(argv), p)
	if result == nil || result.ExitCode != 127 || !c.isMissing(ctx, name, p) {
		return result, err
	}
	return result, fmt.Errorf("sandbox: %w: %w", &exec.Error{Name: name, Err: exec.ErrNotFound}, err)
}

// Output runs a program as [Commands.Exec] does and returns the exact bytes of its standard
// output. Standard error is in the [*ExitError] of a program that fails, whose output is returned
// with the error.
//
// Nothing is dropped: a program that prints more than p.MaxOutputBytes bytes, 0 meaning
// [DefaultMaxOutputBytes], is killed, and the error is [ErrTooLarge]. p.Stdout must be nil, and
// p.MaxOutputBytes not negative.
func (c *Commands) Output(ctx context.Context, name string, args []string, p *CommandParams) ([]byte, error) {
	return c.output(ctx, name, args, p, false)
}

// CombinedOutput is [Commands.Output] for standard output and standard error together,
// in the order in which they arrive: that is not always the order in which they were
// written, because they are two pipes. p.Stderr must be nil, too.
func (c *Commands) CombinedOutput(ctx context.Context, name string, args []string, p *CommandParams) ([]byte, error) {
	return c.output(ctx, name, args, p, true)
}

func (c *Commands) output(ctx context.Context, name string, args []string, p *CommandParams, combined bool) ([]byte, error) {
	var params CommandParams
	if p != nil {
		params = *p
	}
	whole := &wholeOutput{limit: params.MaxOutputBytes}
	var err error
	switch {
	case params.Stdout != nil:
		err = errors.New("CommandParams.Stdout is set, but the output is returned: use Exec")
	case combined && params.Stderr != nil:
		err = errors.New("CommandParams.Stderr is set, but the output is returned: use Exec")
	case params.MaxOutputBytes < 0:
		err = errors.New("CommandParams.MaxOutputBytes is negative, but the output is returned")
	case params.MaxOutputBytes == 0:
		whole.limit = DefaultMaxOutputBytes
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox: run a program in %s: %w: %w", c.sb.ID(), api.ErrInvalidArgument, err)
	}
	params.Stdout = whole
	if combined {
		params.Stderr = whole
	}
	_, err = c.Exec(ctx, name, args, &params)
	return whole.kept.Bytes(), err
}

// wholeOutput keeps all of an output, and fails if that is too much.
type wholeOutput struct {
	kept  bytes.Buffer
	limit int64
}

func (w *wholeOutput) Write(p []byte) (int, error) {
	n, _ := w.kept.Write(p[:min(int64(len(p)), w.limit-int64(w.kept.Len()))])
	if n < len(p) {
		return n, fmt.Errorf("%w: it has more than %d bytes: set CommandParams.MaxOutputBytes, or use Exec with a Stdout", ErrTooLarge, w.limit)
	}
	return n, nil
}

// checkArgv refuses what no program can be started with.
func checkArgv(argv []string) error {
	if argv[0] == "" {
		return errors.New("the program's name is empty")
	}
	for i, word := range argv {
		if strings.Contains(word, "\x00") {
			return fmt.Errorf("argument %d has a NUL byte (the program's name is argument 0)", i)
		}
	}
	return nil
}

// shellLine returns the line with which a shell would start a program.
func shellLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = shell.Quote(word)
	}
	return strings.Join(words, " ")
}

// isMissing reports whether a program is certainly not there, for the user, in the
// directory and with the PATH of p.
func (c *Commands) isMissing(ctx context.Context, name string, p *CommandParams) bool {
	var there CommandParams
	if p != nil {
		there = CommandParams{User: p.User, Cwd: p.Cwd, Envs: p.Envs}
	}
	const line = `case $1 in */*) [ -e "$1" ] || [ -L "$1" ];; *) type -P -- "$1" >/dev/null;; esac || exit 44`
	_, err := c.runLine(ctx, line, wireArgv(append(ownShell(line), "bash", name)), &there)
	exit, ok := errors.AsType[*ExitError](err)
	return ok && exit.Result.ExitCode == 44
}
