//go:build linux

package docker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/linuxprogram"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOtherProcessor checks the error for a daemon on another processor than this machine's, for
// which no program was prepared.
func TestOtherProcessor(t *testing.T) {
	other, named := "arm64", "aarch64"
	if runtime.GOARCH == other {
		other, named = "amd64", "x86_64"
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	e, err := docker.Open(t.Context(), docker.Options{Host: newFake(t, named)})
	if err == nil {
		t.Fatal(errors.Join(errors.New("it opened without a program for the daemon"), e.Close()))
	}
	if !errors.Is(err, linuxprogram.ErrNone) || !strings.Contains(err.Error(), "it cannot be this one: it is ") || !strings.Contains(err.Error(), "for "+other+" none is prepared") {
		t.Errorf("got %v, want why it cannot be this one, and that one for %s has to be prepared", err, other)
	}
}

// TestNoProgram checks the error for a named program that containers cannot run.
func TestNoProgram(t *testing.T) {
	t.Parallel()
	daemon := newFake(t, runtime.GOARCH)
	for text, want := range map[string]string{"": "it is not a Linux program", "#!/bin/sh\n": "it is not a Linux program"} {
		path := filepath.Join(t.TempDir(), "program")
		must.Do(t, os.WriteFile(path, []byte(text), 0o700))
		e, err := docker.Open(t.Context(), docker.Options{Host: daemon, Binary: path})
		if err == nil {
			t.Fatal(errors.Join(fmt.Errorf("it opened with the program %q", text), e.Close()))
		}
		if !strings.Contains(err.Error(), path+": "+want) || errors.Is(err, linuxprogram.ErrNone) {
			t.Errorf("the program %q: got %v, want %s, and no other one", text, err, want)
		}
	}
}

// TestTakeUnfit checks that setup refuses a file that containers of the daemon cannot run.
func TestTakeUnfit(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	other := map[string]string{"amd64": "aarch64", "arm64": "x86_64"}[runtime.GOARCH]
	own, err := os.Executable()
	must.Do(t, err)
	script := filepath.Join(t.TempDir(), "script")
	must.Do(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700))
	for from, want := range map[string]string{own: "it is ", script: "it is not a Linux program", script + "no": "no such file"} {
		path, err := docker.Setup(t.Context(), nil, newFake(t, other), from)
		if err == nil || !strings.Contains(err.Error(), "the program for containers, "+from) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, %v from %s, want %q", path, err, from, want)
		}
	}
}

// newFake returns the address of a daemon that answers only with its system and processor.
func newFake(t *testing.T, architecture string) string {
	t.Helper()
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"Architecture": architecture, "OSType": "linux"})
	}))
	t.Cleanup(daemon.Close)
	return "tcp://" + daemon.Listener.Addr().String()
}
