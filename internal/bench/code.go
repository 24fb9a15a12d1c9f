//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/sandbox"
)

// The measured cells.
const (
	adding  = "1+1"
	pandas  = "import pandas; pandas.DataFrame({'a': [1, 1]})['a'].sum().item()"
	failing = "1/0"
)

func onePlusOne(ctx context.Context, sb *sandbox.Sandbox) error { return two(ctx, sb, adding) }

func onePlusOneInPandas(ctx context.Context, sb *sandbox.Sandbox) error { return two(ctx, sb, pandas) }

// two executes code as a cell. It returns an error if the value of the cell is not 2.
func two(ctx context.Context, sb *sandbox.Sandbox, code string) error {
	execution, err := sb.RunCode(ctx, code, nil)
	if err == nil && execution.Text() != "2" {
		err = fmt.Errorf("%s is %q", code, execution.Text())
	}
	return err
}

// printBulk returns code that prints bulk bytes in lines of 64 KiB.
func (b *bench) printBulk() string {
	return fmt.Sprintf("for _ in range(%d): print('x' * 65535)", b.bulk>>16)
}

func (b *bench) codeOutput(ctx context.Context, sb *sandbox.Sandbox) error {
	var got counter
	_, err := sb.RunCode(ctx, b.printBulk(), &sandbox.RunCodeParams{Stdout: &got})
	return errors.Join(err, b.complete(int64(got)))
}

// printMany returns code that prints b.prints lines.
func (b *bench) printMany() string { return fmt.Sprintf("for i in range(%d): print(i)", b.prints) }

func (b *bench) manyPrints(ctx context.Context, sb *sandbox.Sandbox) error {
	var lines lineCounter
	_, err := sb.RunCode(ctx, b.printMany(), &sandbox.RunCodeParams{Stdout: &lines})
	if err == nil && int(lines) != b.prints {
		err = fmt.Errorf("%d of %d lines came", lines, b.prints)
	}
	return err
}

type lineCounter int

func (c *lineCounter) Write(data []byte) (int, error) {
	for _, b := range data {
		if b == '\n' {
			*c++
		}
	}
	return len(data), nil
}

// failures runs cells that fail, each followed by a cell that must not be
// skipped.
func (b *bench) failures(ctx context.Context, sb *sandbox.Sandbox) error {
	for i := range b.errors {
		_, err := sb.RunCode(ctx, failing, nil)
		if failure, ok := errors.AsType[*sandbox.ExecutionError](err); !ok || failure.Name != "ZeroDivisionError" {
			return fmt.Errorf("failure %d: %w", i, err)
		}
		if err := onePlusOne(ctx, sb); err != nil {
			return fmt.Errorf("after failure %d: %w", i, err)
		}
	}
	return nil
}
