package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// signalError is the cause of a context cancelled by a signal.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string { return "stopped by signal: " + e.signal.String() }

// interrupts reports the signals that ask the process to stop.
type interrupts struct {
	first, second <-chan struct{} // first is closed at the first signal to stop, and second is closed at the second signal.
	stopping      *cmdutil.Stopping
}

// notifyContext returns a context that the first INT, TERM or HUP cancels, with a *signalError as
// its cause. told reports the first two signals. A third signal has its default effect and ends the
// process at once. Until then the signals remain caught, so that a signal during the exit of the
// process does not change the exit status.
//
// SIGPIPE is caught, so that the write of `e2bctl run … | head` fails with EPIPE and e2bctl can
// still kill its sandbox. It is not ignored, because child processes inherit ignored signals, and
// the processes of a local sandbox are children of e2bctl.
func notifyContext(parent context.Context) (ctx context.Context, told interrupts) {
	ctx, cancel := context.WithCancelCause(parent)
	first, second := make(chan struct{}), make(chan struct{})
	ctx, stopping := cmdutil.WithStopping(ctx, second)
	signals := make(chan os.Signal, 2)
	caught := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup it stays ignored
		caught = append(caught, syscall.SIGHUP)
	}
	signal.Notify(signals, caught...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	go func() {
		s := <-signals
		number, _ := s.(syscall.Signal)
		cancel(&signalError{signal: number})
		close(first)
		<-signals
		signal.Stop(signals)
		close(second)
	}()
	return ctx, interrupts{first, second, stopping}
}
