package code

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// maxCode bounds a program that is read from a file or a pipe.
const maxCode = 16 << 20

// read returns the code to run, from the command line, a file or standard input.
func (o *runOptions) read(ctx context.Context) (string, error) {
	if o.HasCode {
		return o.Code, nil
	}
	var source io.ReadCloser
	if o.File == "-" {
		source = o.IO.Reading(ctx)
	} else {
		file, err := os.Open(o.File)
		if err != nil {
			return "", err
		}
		source = file
	}
	defer source.Close()
	text, err := io.ReadAll(io.LimitReader(source, maxCode+1))
	if err != nil {
		return "", fmt.Errorf("reading the code: %w", err)
	}
	if len(text) > maxCode {
		return "", fmt.Errorf("the code is longer than %d MiB", maxCode>>20)
	}
	return strings.TrimPrefix(string(text), "\ufeff"), nil // a mark of the encoding is not code
}

// answer returns the function that answers input() from standard input. The function is nil if
// there is no standard input, or if the code was read from standard input.
func (o *runOptions) answer() func(context.Context, string, bool) (string, error) {
	if o.File == "-" || !o.IO.InIsTerminal && !o.IO.InIsData {
		return nil
	}
	lines := bufio.NewReader(o.IO.In)
	return func(ctx context.Context, prompt string, password bool) (string, error) {
		fmt.Fprint(o.IO.Err, cmdutil.Printable(prompt))
		if password {
			return o.readPassword(ctx, lines)
		}
		return cmdutil.Await(ctx, func() (string, error) { return readLine(lines) })
	}
}

// readPassword reads a line and does not show its characters on a terminal.
func (o *runOptions) readPassword(ctx context.Context, lines *bufio.Reader) (string, error) {
	keyboard, ok := o.IO.In.(*os.File)
	if !ok || !o.IO.InIsTerminal {
		return cmdutil.Await(ctx, func() (string, error) { return readLine(lines) })
	}
	before, err := term.GetState(int(keyboard.Fd()))
	if err != nil {
		return "", err
	}
	text, err := cmdutil.Await(ctx, func() (string, error) {
		text, err := term.ReadPassword(int(keyboard.Fd()))
		return string(text), err
	})
	if ctx.Err() != nil { // the read continues, and would leave the terminal without echo
		err = errors.Join(err, term.Restore(int(keyboard.Fd()), before))
	}
	fmt.Fprintln(o.IO.Err)
	return text, err
}

func readLine(lines *bufio.Reader) (string, error) {
	text, err := lines.ReadString('\n')
	if err != nil && text == "" {
		return "", err
	}
	return strings.TrimRight(text, "\r\n"), nil
}
