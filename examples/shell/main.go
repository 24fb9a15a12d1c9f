//go:build unix

// Command shell connects this terminal to a shell in a sandbox, with the keys, the size and the
// colours of the terminal. It creates a sandbox and removes it when the shell ends. With -id it
// uses an existing sandbox instead.
//
// With -local it starts a local cloud, which ends with the shell. Otherwise E2B_API_KEY and the
// other E2B_ variables name the service to use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func main() {
	here := flag.Bool("local", false, "start a local cloud in this process instead of using a service")
	id := flag.String("id", "", "`id` of the sandbox to use; without it, a new one")
	flag.Parse()
	// In a raw terminal Ctrl-C is a key for the program inside.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	err := open(ctx, *here, *id, os.Stdin)
	stop()
	if failed, ok := errors.AsType[*sandbox.ExitError](err); ok {
		os.Exit(failed.Result.ExitCode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shell:", err)
		os.Exit(1)
	}
}

// open runs a shell in a sandbox and shows it in tty.
func open(ctx context.Context, here bool, id string, tty *os.File) (err error) {
	cols, rows, err := term.GetSize(int(tty.Fd()))
	if err != nil {
		return fmt.Errorf("this needs a terminal: %w", err)
	}
	if here && id != "" {
		return errors.New("-local starts a cloud of its own, which has no sandbox for -id")
	}
	var options []sandbox.CreateOption
	if here {
		var cloud *local.Cloud
		if cloud, err = local.Start(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		options = append(options, cloud.Option())
	}
	var sb *sandbox.Sandbox
	if id == "" {
		sb, err = sandbox.Create(ctx, options...)
	} else {
		sb, err = sandbox.Connect(ctx, id)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	terminal, err := sb.PTY.Open(ctx, &sandbox.PTYParams{Cols: cols, Rows: rows})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, terminal.Close()) }()
	before, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, term.Restore(int(tty.Fd()), before)) }()

	defer follow(ctx, tty, terminal)()
	go func() { _, _ = io.Copy(terminal, tty) }() // ends with the program at the latest
	if _, err := io.Copy(tty, terminal); err != nil {
		return err
	}
	return terminal.Wait(ctx)
}

// follow passes every new size of tty to the sandbox's terminal, until stop is called.
func follow(ctx context.Context, tty *os.File, terminal *sandbox.Terminal) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range changed {
			if cols, rows, err := term.GetSize(int(tty.Fd())); err == nil {
				_ = terminal.Resize(ctx, cols, rows) // on an error, the copying also fails
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(changed)
		<-done
	}
}
