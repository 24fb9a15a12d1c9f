package cmdutil

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// errDeclined means that the user answered no.
var errDeclined = errors.New("not confirmed, nothing was done")

// Confirm asks a question with the default answer no. Any answer but yes is an
// error, and so is the end of ctx, such as Ctrl-C.
func Confirm(ctx context.Context, ios *IOStreams, question string) error {
	fmt.Fprintf(ios.Err, "%s [y/N] ", question)
	answer, err := Await(ctx, func() (string, error) { return bufio.NewReader(ios.In).ReadString('\n') })
	if ctx.Err() != nil {
		fmt.Fprintln(ios.Err) // the question has no end of line
		return context.Cause(ctx)
	}
	if err != nil && answer == "" {
		return errDeclined
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}

// Await returns the result of read, or the cause of the end of ctx. A read of a
// terminal cannot be cancelled: it then continues until the process ends, soon
// after.
func Await(ctx context.Context, read func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := read()
		answers <- answer{text, err}
	}()
	select {
	case a := <-answers:
		return a.text, a.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
