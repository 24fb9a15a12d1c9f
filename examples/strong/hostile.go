package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox"
)

// attacks is code that reads facts about this machine's kernel and tries its weak parts. The
// answers come from gVisor's kernel instead.
var attacks = []struct{ what, code, want string }{
	{"which kernel is it?", "open('/proc/version').read().strip()", "Linux version"},
	{"its log", "import subprocess\nsubprocess.run('dmesg', capture_output=True, text=True).stdout.splitlines()[0]", "Starting gVisor"},
	{"io_uring", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall(425, 1, None), os.strerror(ctypes.get_errno())", "Function not implemented"},
	{"programs in the kernel", "libc.syscall(321, 0, None, 0), os.strerror(ctypes.get_errno())", "Operation not permitted"},
}

// hostile runs the attacks, as root of the sandbox, and checks that the sandbox's kernel is not
// this machine's kernel.
func hostile(ctx context.Context, w io.Writer, _ *sandbox.Client, source *watched) error {
	ours, err := os.ReadFile("/proc/version")
	if err != nil {
		return err
	}
	for _, a := range attacks {
		fmt.Fprintf(w, "--- hostile: %s\n%s\n--- gave\n", a.what, a.code)
		execution, err := source.RunCode(ctx, a.code, nil)
		var raised *sandbox.ExecutionError
		gave := ""
		switch {
		case errors.As(err, &raised):
			gave = fmt.Sprintf("%s: %s", raised.Name, raised.Value)
		case err != nil:
			return err
		default:
			gave = execution.Text()
		}
		fmt.Fprintln(w, gave)
		if !strings.Contains(gave, a.want) || strings.Contains(gave, strings.TrimSpace(string(ours))) {
			return fmt.Errorf("%s: want %s", a.what, a.want)
		}
	}
	fmt.Fprintf(w, "=> %d attacks, and none reached this: %s", len(attacks), ours)
	return nil
}
