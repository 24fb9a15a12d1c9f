//go:build linux

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// Code that forks without end is stopped with all its children, and its context
// continues: in the same kernel if an interrupt helps, otherwise in a fresh one.
// Envd, which cannot start a thread either meanwhile, survives.
func TestBombsOfCode(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithResources(local.Resources{MaxProcesses: 128}))
	if cloud.Isolation() != local.Full {
		t.Skipf("isolation is %s here: the bound of processes is all sandboxes'", cloud.Isolation())
	}
	const fork = `
def bomb():
    while True:
        try: os.fork()
        except OSError: return`
	for _, tt := range []struct {
		name, code string
		fresh      string // whether the kernel is: yes, no or, if that depends on how fast children end, maybe
	}{
		{"processes", fork + "\nbomb(); os.write(1, b'full'); time.sleep(1000)", "maybe"},
		{"deaf processes", fork + "\nsignal.signal(signal.SIGINT, signal.SIG_IGN); bomb(); os.write(1, b'full'); time.sleep(1000)", "yes"},
		{"threads", "import threading\ntry:\n    while True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\nexcept RuntimeError: os.write(1, b'full'); time.sleep(1000)", "no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sb := cloud.Create(t)
			sandboxtest.Eval(t, sb, "import os, signal, time; x = 42")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := sb.RunCode(ctx, tt.code, &sandbox.RunCodeParams{Stdout: whenWritten{cancel}})
			if _, ok := errors.AsType[*sandbox.InterruptedError](err); !ok {
				t.Errorf("got %v, want a *sandbox.InterruptedError", err)
			}
			execution, err := sb.RunCode(t.Context(), "x", nil)
			fresh := errors.Is(err, sandbox.ErrKernelRestarted)
			if tt.fresh == "yes" && !fresh || tt.fresh == "no" && fresh {
				t.Errorf("the next: %v, want ErrKernelRestarted: %s", err, tt.fresh)
			}
			if !fresh && (err != nil || execution.Text() != "42") {
				t.Errorf("the next: %+v, %v, want text %q and no error", execution, err, "42")
			}
			if got := sandboxtest.Eval(t, sb, "6 * 7"); got != "42" {
				t.Errorf("afterwards: %s, want %s", got, "42")
			}
		})
	}
}

// Code that takes too much of a resource is refused more, like commands, and can
// continue.
func TestLimitsOfCode(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithResources(local.Resources{DiskBytes: 32 << 20}))
	if cloud.Isolation() != local.Full {
		t.Skipf("isolation is %s here: it bounds no disk", cloud.Isolation())
	}
	sb := cloud.Create(t, sandbox.WithEnvs(startsCold))
	for code, want := range map[string]string{
		"with open('/home/user/big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))": "No space left on device",
		"import os\nwhile True: kept.append(os.open('/', os.O_RDONLY))":                    "Too many open files",
		"import socket\nwhile True: kept += socket.socketpair()":                           "Too many open files",
		"import os\nwhile True: kept += os.openpty()":                                      "", // depending on the limit that is reached first
	} {
		sandboxtest.Eval(t, sb, "kept = []")
		_, err := sb.RunCode(t.Context(), code, nil)
		if !isException(err, "OSError") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want the Python exception OSError and an error with %q", code, err, want)
		}
		const free = "import os\nfor k in kept: k.close() if hasattr(k, 'close') else os.close(k)\nkept = []; open('/home/user/big', 'wb').close(); 6 * 7"
		if got := sandboxtest.Eval(t, sb, free); got != "42" {
			t.Errorf("%s: afterwards %s, want %s", code, got, "42")
		}
	}
}
