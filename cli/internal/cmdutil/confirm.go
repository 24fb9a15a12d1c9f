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

// Confirm asks a question with the default answer no. It returns an error for any answer but yes,
// and if ctx ends, for example by Ctrl-C.
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

// Await returns the result of read, or the cause of the end of ctx. If ctx ends, read continues
// until the process ends, because a read of a terminal cannot be cancelled. The process is expected
// to end soon.
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
