//go:build linux

package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	for _, tt := range []struct {
		command, stdout, stderr string
		status                  int
	}{
		{"exit 3", "", "", 3},
		{"echo out; echo err >&2; false", "out\n", "err\n", 1},
		{"kill -9 $$", "", "", -1},
		{"no-such-command", "", "no-such-command", 127},
	} {
		result, err := sb.Commands.Run(t.Context(), tt.command, nil)
		failed, ok := errors.AsType[*sandbox.ExitError](err)
		if !ok || failed.Result != result {
			t.Errorf("%s: got %v, want a *sandbox.ExitError with the result %+v", tt.command, err, result)
			continue
		}
		if result.ExitCode != tt.status || result.Stdout != tt.stdout || !strings.Contains(result.Stderr, tt.stderr) {
			t.Errorf("%s: got %+v, want exit code %d, stdout %q and %q in stderr", tt.command, result, tt.status, tt.stdout, tt.stderr)
		}
	}
	if _, err := sb.Commands.Run(t.Context(), "true", &sandbox.CommandParams{Cwd: "/no/such/directory"}); err == nil || !strings.Contains(err.Error(), "/no/such/directory") {
		t.Errorf("a directory that is not there: %v, want an error with %q", err, "/no/such/directory")
	}
	if _, err := sb.Commands.Run(t.Context(), "true", &sandbox.CommandParams{User: "nobody-here"}); err == nil || !strings.Contains(err.Error(), "nobody-here") {
		t.Errorf("a user who is not there: %v, want an error with %q", err, "nobody-here")
	}
}

func TestCancelCommand(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	ctx, cancel := context.WithCancel(t.Context())
	result, err := sb.Commands.Run(ctx, "echo begun; exec sleep 1234.5", &sandbox.CommandParams{Stdout: whenWritten{cancel}})
	if !errors.Is(err, context.Canceled) || result.Stdout != "begun\n" {
		t.Errorf("got %+v, %v, want context.Canceled and stdout %q", result, err, "begun\n")
	}
	patience.Until(t, "the command has ended", func() bool {
		return sandboxtest.Run(t, sb, `grep -alz '^1234\.5' /proc/[0-9]*/cmdline 2>/dev/null || true`) == ""
	})

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sb.Commands.Run(canceled, "touch started", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v, want context.Canceled", err)
	}
	if _, err := sb.Files.Read(t.Context(), "started", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it ran: %v, want fs.ErrNotExist", err)
	}
}

// Large files are streamed: neither side holds them in memory.
func TestBigFile(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	const size = 64 << 20
	sent := sha256.New()
	must.Do(t, sb.Files.WriteFrom(t.Context(), "big", io.TeeReader(io.LimitReader(pattern{}, size), sent), nil))
	r, err := sb.Files.Open(t.Context(), "big", nil)
	must.Do(t, err)
	defer r.Close()
	received := sha256.New()
	if n, err := io.Copy(received, r); err != nil || n != size || string(received.Sum(nil)) != string(sent.Sum(nil)) {
		t.Errorf("%d bytes came back, %v, want the %d that were sent and no error", n, err, size)
	}

	// An upload that fails in the middle leaves nothing behind, and the rest is
	// not read.
	broken := errors.New("source broke")
	err = sb.Files.WriteFrom(t.Context(), "half", io.MultiReader(io.LimitReader(pattern{}, 1<<20), failing{broken}), nil)
	if !errors.Is(err, broken) {
		t.Errorf("broken source: %v, want %v", err, broken)
	}
	patience.Until(t, "half a file is removed", func() bool {
		_, err := sb.Files.Read(t.Context(), "half", nil)
		return errors.Is(err, fs.ErrNotExist)
	})
}

type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i % 251)
	}
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestFilesThatFail(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	_, err := sb.Files.Read(t.Context(), "/nope", nil)
	if failed, ok := errors.AsType[*fs.PathError](err); !ok || !strings.HasSuffix(failed.Path, ":/nope") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v, want fs.ErrNotExist for a path that ends with %q", err, ":/nope")
	}
	if _, err := sb.Files.Read(t.Context(), "/etc", nil); err == nil {
		t.Error("a directory was read")
	}
	if err := sb.Files.Write(t.Context(), "/etc", nil, nil); err == nil {
		t.Error("a directory was written")
	}
}

// TestInputThatIsNotRead checks that a command may close its input before it has read
// all of it, as with a pipe.
func TestInputThatIsNotRead(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	result, err := sb.Commands.Run(t.Context(), "exec <&-; sleep 0.5; echo done", &sandbox.CommandParams{Stdin: strings.NewReader(strings.Repeat("x", 1<<20))})
	if err != nil || result.Stdout != "done\n" {
		t.Errorf("got %+v, %v, want %q", result, err, "done\n")
	}
}
