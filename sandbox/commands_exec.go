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

// Quote quotes word. The shell of [Commands.Run] and [Commands.Start] then reads it as one word,
// whatever bytes it contains. A word that needs no quotes is returned unchanged. A word of a shell
// cannot contain a NUL byte. Run and Start do not send a line that is not UTF-8: for words that are
// not UTF-8, and for commands that need no shell, use [Commands.Exec].
func Quote(word string) string { return shell.Quote(word) }

// Exec runs the program name with arguments and waits for its end. No shell interprets the
// arguments. A name without a slash is looked up in the PATH of the sandbox or of p.Envs. No login
// shell runs first, so variables that profiles set are missing. The name and the arguments may
// contain any byte except NUL. An argument is limited to 128 KiB. Arguments that are not UTF-8 pass
// through a bash, which the sandbox must have.
//
// p may be nil. Results and errors are those of [Commands.Run]. If the program is missing in the
// sandbox, the status is 127 and the [*ExitError] also matches [exec.ErrNotFound]. Before it
// returns that error, Exec checks with a second command that the program is missing, because a
// program may itself end with status 127. If name is a directory or a file that cannot be executed,
// the status is 126.
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

// Output runs a program like [Commands.Exec] and returns the exact bytes of its standard output. If
// the program fails, Output returns the standard output together with an [*ExitError] that contains
// the standard error.
//
// No output is dropped. A program that prints more than p.MaxOutputBytes bytes is killed, and
// the error is [ErrTooLarge]. A p.MaxOutputBytes of 0 means [DefaultMaxOutputBytes]; it must
// not be negative. p.Stdout must be nil.
func (c *Commands) Output(ctx context.Context, name string, args []string, p *CommandParams) ([]byte, error) {
	return c.output(ctx, name, args, p, false)
}

// CombinedOutput is like [Commands.Output], for standard output and standard error together. The
// bytes are in the order of arrival. The order of arrival may differ from the order of writing,
// because the two streams are separate pipes. p.Stdout and p.Stderr must be nil.
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

// wholeOutput keeps all output, and returns an error if it exceeds a limit.
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

// checkArgv returns an error if no program can start with these arguments.
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

// shellLine returns the shell command line that starts a program.
func shellLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = shell.Quote(word)
	}
	return strings.Join(words, " ")
}

// isMissing reports whether a program is certainly missing for the user, the directory and the
// PATH in p.
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
