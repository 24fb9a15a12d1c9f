//go:build linux

package e2e

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestInternetOff(t *testing.T) {
	t.Parallel()
	sb := create(t, sandboxtest.New(t), sandbox.WithInternet(false))
	_, err := sb.Packages.Install(t.Context(), "six")
	if _, ok := errors.AsType[*sandbox.InstallError](err); !ok {
		t.Errorf("pip: %v", err)
	}
	for _, host := range []string{"https://example.com", "http://1.1.1.1", "http://127.0.0.1:3128"} {
		result, err := sb.Commands.Run(t.Context(), "curl -sS -m 10 "+host, nil)
		if _, failed := errors.AsType[*sandbox.ExitError](err); !failed {
			t.Errorf("curl %s: %+v, %v", host, result, err)
		}
	}
	const connect = "import socket\ntry:\n    socket.create_connection(('1.1.1.1', 53), 5)\nexcept OSError as e:\n    print('refused', e)"
	if execution, err := sb.RunCode(t.Context(), connect, nil); err != nil || !strings.HasPrefix(execution.Stdout, "refused") {
		t.Errorf("a socket: %q, %v", execution.Stdout, err)
	}
}

// Sandboxes see nothing of each other: files, processes, ports, variables.
func TestTwoSandboxes(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	one, two := create(t, cloud), create(t, cloud)
	for _, path := range []string{"/home/user/secret", "/tmp/secret"} {
		if err := one.Files.Write(t.Context(), path, []byte("secret"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := two.Files.Read(t.Context(), path, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	evaluate(t, one, "secret = 1")
	if got := evaluate(t, two, "'secret' in globals()"); got != "False" {
		t.Error("a variable is shared")
	}
	run(t, one, "nohup python3 -m http.server 3456 --bind 127.0.0.1 >/dev/null 2>&1 & echo")
	const listening = "(echo > /dev/tcp/127.0.0.1/3456) 2>/dev/null && echo open || echo closed"
	eventually(t, "the server in one", func() bool { return run(t, one, listening) == "open\n" })
	if got := run(t, two, listening); got != "closed\n" {
		t.Errorf("the port of one in two: %s", got)
	}
	if got := run(t, two, `grep -alz '^3456$' /proc/[0-9]*/cmdline 2>/dev/null || true`); got != "" {
		t.Errorf("two sees the processes of one: %s", got)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if got := run(t, two, "echo lives"); got != "lives\n" {
		t.Error(got)
	}
}
