//go:build linux

package docker_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/linuxprogram"
)

// TestOtherProcessor checks what is said of a daemon on another processor than this machine's,
// for which nothing was prepared.
func TestOtherProcessor(t *testing.T) {
	other, named := "arm64", "aarch64"
	if runtime.GOARCH == other {
		other, named = "amd64", "x86_64"
	}
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"Architecture": named, "OSType": "linux"})
	}))
	defer daemon.Close()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	e, err := docker.Open(t.Context(), docker.Options{Host: "tcp://" + daemon.Listener.Addr().String()})
	if err == nil {
		t.Fatal(errors.Join(errors.New("it opened without a program for the daemon"), e.Close()))
	}
	if !errors.Is(err, linuxprogram.ErrNone) || !strings.Contains(err.Error(), "it cannot be this one: it is ") || !strings.Contains(err.Error(), "for "+other+" none is prepared") {
		t.Errorf("got %v, want why it cannot be this one, and that one for %s has to be prepared", err, other)
	}
}
