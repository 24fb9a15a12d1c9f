package code

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// maxCode bounds a program that is read from a file or a pipe.
const maxCode = 16 << 20

// read returns the code to run.
func (o *runOptions) read() (string, error) {
	if o.HasCode {
		return o.Code, nil
	}
	source := o.IO.In
	if o.File != "-" {
		file, err := os.Open(o.File)
		if err != nil {
			return "", err
		}
		defer file.Close()
		source = file
	}
	text, err := io.ReadAll(io.LimitReader(source, maxCode+1))
	if err != nil {
		return "", fmt.Errorf("reading the code: %w", err)
	}
	if len(text) > maxCode {
		return "", fmt.Errorf("the code is longer than %d MiB", maxCode>>20)
	}
	return string(text), nil
}

// answer answers input() from standard input, if there is one and the code was
// not read from it.
func (o *runOptions) answer() func(context.Context, string, bool) (string, error) {
	if o.File == "-" || !o.IO.InIsTerminal && !o.IO.InIsData {
		return nil
	}
	lines := bufio.NewReader(o.IO.In)
	return func(ctx context.Context, prompt string, password bool) (string, error) {
		fmt.Fprint(o.IO.Err, cmdutil.Printable(prompt))
		type line struct {
			text string
			err  error
		}
		read := make(chan line, 1)
		go func() { // a read of a terminal cannot be cancelled; the process ends with it
			text, err := o.readLine(lines, password)
			read <- line{text, err}
		}()
		select {
		case l := <-read:
			return l.text, l.err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

func (o *runOptions) readLine(lines *bufio.Reader, password bool) (string, error) {
	if file, ok := o.IO.In.(*os.File); ok && password && o.IO.InIsTerminal {
		text, err := term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(o.IO.Err)
		return string(text), err
	}
	text, err := lines.ReadString('\n')
	if err != nil && text == "" {
		return "", err
	}
	return strings.TrimRight(text, "\r\n"), nil
}
