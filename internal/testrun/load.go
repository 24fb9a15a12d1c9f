//go:build linux

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
)

// spinCommand is the argument that makes this program do nothing except keep a processor busy.
const spinCommand = "spin"

// spin keeps a processor busy until input ends. input is a pipe, so it ends when the process at the
// other end ends.
func spin(input io.Reader) {
	var ended atomic.Bool
	go func() {
		defer ended.Store(true)
		io.Copy(io.Discard, input) //nolint:errcheck // any end is one
	}()
	for !ended.Load() {
	}
}

// startLoad starts busy processes. They end when stop is called, or when this process
// ends in any way.
func startLoad(ctx context.Context, self []string, processes int) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	stop = func() {
		cancel()
		for _, command := range started {
			command.Wait() //nolint:errcheck // it is killed
		}
	}
	for range processes {
		command := exec.CommandContext(ctx, self[0], self[1:]...)
		command.Env = append(os.Environ(), "GOMAXPROCS=1")
		if _, err := command.StdinPipe(); err != nil {
			stop()
			return nil, err
		}
		if err := command.Start(); err != nil {
			stop()
			return nil, err
		}
		started = append(started, command)
	}
	return stop, nil
}
