//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
)

// wasmRow is the beginning of the names of the rows about WebAssembly.
const wasmRow = "WebAssembly: "

// wasmRows returns the rows about Python in WebAssembly. The floor of each row is the same
// measurement in a usual sandbox.
func (b *bench) wasmRows() []row {
	const floor = "the usual sandbox"
	w := *b
	w.kind = []sandbox.CreateOption{sandbox.WithTemplate("base-wasm")}
	return []row{
		{
			name: wasmRow + "create to first Python result", runs: 10, measure: w.created(w.pause, onePlusOne),
			floor: b.created(b.pause, onePlusOne), floorName: floor,
		},
		{
			name: wasmRow + "`RunCode(\"1+1\")`", runs: 1000, measure: w.inOne(onePlusOne),
			floor: b.inOne(onePlusOne), floorName: floor,
		},
		{
			name: wasmRow + "an endless loop interrupted, and a cell after it", runs: 20, measure: w.interrupted,
			floor: b.interrupted, floorName: floor,
		},
		{
			name: wasmRow + "a tool of the host, called by code", runs: 20, measure: w.toolCalls(1),
			floor: b.toolCalls(1), floorName: floor,
		},
		{
			name: wasmRow + w.megabytes("written to a file by code"), runs: 3, measure: w.moved("wb", "f.write(chunk)"),
			floor: b.moved("wb", "f.write(chunk)"), floorName: floor,
		},
		{
			name: wasmRow + w.megabytes("read from a file by code"), runs: 3, measure: w.moved("rb", "n = f.readinto(chunk)"),
			floor: b.moved("rb", "n = f.readinto(chunk)"), floorName: floor,
		},
	}
}

// interrupted measures the time from the cancellation of an endless cell to the end of the next
// cell. The kernel begins the next cell when it has interrupted the endless one.
func (b *bench) interrupted(ctx context.Context, runs int) (r result, err error) {
	err = b.with(ctx, func(sb *sandbox.Sandbox) (err error) {
		r, err = repeat(ctx, runs, func(ctx context.Context) (time.Duration, error) {
			looping, stop := context.WithCancel(ctx)
			defer stop()
			var start time.Time
			_, err := sb.RunCode(looping, "print('begun')\nwhile True: pass", &sandbox.RunCodeParams{Stdout: whenPrinted(func() {
				start = time.Now()
				stop()
			})})
			if !errors.Is(err, context.Canceled) {
				return 0, fmt.Errorf("the endless loop ended with: %w", err)
			}
			err = onePlusOne(ctx, sb)
			return time.Since(start), err
		})
		return err
	})
	return r, err
}

// whenPrinted is a writer. Each Write calls the function.
type whenPrinted func()

func (f whenPrinted) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// moved measures code that reads or writes a file in pieces of a megabyte.
func (b *bench) moved(mode, piece string) measurement {
	code := fmt.Sprintf("with open('moved', %q) as f:\n    for _ in range(%d): %s", mode, b.bulk>>20, piece)
	return func(ctx context.Context, runs int) (r result, err error) {
		err = b.with(ctx, func(sb *sandbox.Sandbox) error {
			prepare := fmt.Sprintf("chunk = bytearray(1 << 20)\nwith open('moved', 'wb') as f:\n    for _ in range(%d): f.write(chunk)", b.bulk>>20)
			if _, err := sb.RunCode(ctx, prepare, nil); err != nil {
				return err
			}
			r, err = calls(func(ctx context.Context) error {
				_, err := sb.RunCode(ctx, code, nil)
				return err
			})(ctx, runs)
			r.bytes = b.bulk
			return err
		})
		return r, err
	}
}
