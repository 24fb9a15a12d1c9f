package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// hold has the store open until its input ends.
func hold(dir string) error {
	s, err := Open(context.Background(), dir)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintln(os.Stdout, "open")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestInUse(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a local cloud")
	}
	refused := func(dir string, pid int) {
		t.Helper()
		_, err := Open(t.Context(), dir)
		inUse, ok := errors.AsType[*InUseError](err)
		if !ok || inUse.PID != pid {
			t.Errorf("got %v, want it to be in use by process %d", err, pid)
			return
		}
		for _, want := range []string{dir, fmt.Sprintf("process %d", pid), "e2bctl local down"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want %q in it", err, want)
			}
		}
	}
	dir := t.TempDir()
	s := open(t, dir)
	refused(dir, os.Getpid())
	fill(t, s, "of the first")
	if names, _ := filepath.Glob(filepath.Join(dir, staging, "*")); len(names) != 1 {
		t.Errorf("the refused one left %q, want what the first one made", names)
	}

	dir = t.TempDir()
	holder := other(t, "holder", dir)
	stdin, err := holder.StdinPipe()
	must.Do(t, err)
	stdout, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	must.Do(t, err)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Errorf("the other process says %q and error %v, want open", line, err)
	}
	refused(dir, holder.Process.Pid)
	stdin.Close()
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	open(t, dir)
}
