package proc

import (
	"syscall"
	"testing"
)

// TestEnding checks the names of the signals that can be sent, in each form, and that others are refused.
func TestEnding(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]syscall.Signal{
		"KILL": syscall.SIGKILL, "sigkill": syscall.SIGKILL, "9": syscall.SIGKILL, "TERM": syscall.SIGTERM, "SigTerm": syscall.SIGTERM, "15": syscall.SIGTERM,
		"INT": 0, "": 0, "SIG": 0, "2": 0, "SIGSIGKILL": 0,
	} {
		e := ending(syscall.SIGINT)
		err := e.Set(value)
		refused := want == 0
		if refused {
			want = syscall.SIGINT // it stays as it was
		}
		if (err != nil) != refused || e != ending(want) {
			t.Errorf("%q: got signal %d and error %v, want signal %d", value, e, err, want)
		}
	}
	for signal, want := range map[syscall.Signal]string{syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM"} {
		e := ending(signal)
		if got := e.String(); got != want || e.Type() != "KILL|TERM" {
			t.Errorf("signal %d is named %q of %s, want %q", signal, got, e.Type(), want)
		}
	}
}
