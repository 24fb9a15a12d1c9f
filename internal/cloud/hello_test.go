//go:build linux

package cloud

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestHelloFirst checks that a re-executed process says hello before nearly all of
// its packages are initialised, and takes its role before packages that only an envd
// needs.
func TestHelloFirst(t *testing.T) {
	t.Parallel()
	server, child, err := wire.Pair(wire.MaxMessage)
	must.Do(t, err)
	defer server.Close()
	defer child.Close()
	binary, err := os.Open("/proc/self/exe")
	must.Do(t, err)
	defer binary.Close()
	var trace bytes.Buffer
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{hello.Argv0}, Env: []string{"GODEBUG=inittrace=1"},
		ExtraFiles: []*os.File{child, binary}, Stderr: &trace,
	}
	must.Do(t, cmd.Start())
	if err := server.AwaitHello(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.Assign(t.Context(), "nothing", struct{}{}, nil); err != nil {
		t.Error(err)
	}
	if _, _, err := server.Expect(wire.KindReady, 0); err == nil || !strings.Contains(err.Error(), `role "nothing"`) {
		t.Errorf("it answered %v", err)
	}
	_ = cmd.Wait() // it fails
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("it ended with %d: %s", code, &trace)
	}
	var initialised []string
	for line := range strings.Lines(trace.String()) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "init" {
			initialised = append(initialised, fields[1])
		}
	}
	const us = "github.com/e2bctl/e2bctl/internal/cloud/"
	const most = 30
	if n := slices.Index(initialised, us+"engine/room/hello"); n < 0 || n > most {
		t.Errorf("it said hello after %d packages, of which there may be %d: %v", n, most, initialised)
	}
	for _, late := range []string{"net/http", us + "edge", us + "envd", us + "interpreter", us + "kernel"} {
		if slices.Contains(initialised, late) {
			t.Errorf("%s was initialised before the role was taken", late)
		}
	}
}
