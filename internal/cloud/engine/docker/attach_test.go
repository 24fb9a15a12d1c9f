//go:build linux

package docker_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
)

// TestAttachFails checks that the error says why a container cannot be prepared where the
// daemon says so only when it is started, as Podman does.
func TestAttachFails(t *testing.T) {
	t.Parallel()
	enginetest.Need(t)
	var removed atomic.Bool
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for part, answer := range map[string]struct {
			status int
			text   string
		}{
			"/_ping": {200, "OK"}, "/info": {200, `{"OSType":"linux"}`}, "/version": {200, `{}`}, "/images/json": {200, `[]`}, "/containers/json": {200, `[]`},
			"/images/of:it/json": {200, `{"Id":"sha256:1"}`}, "/containers/create": {201, `{"Id":"made"}`}, "/made/archive": {200, ""},
			"/made/attach": {409, `{"message":"not shown"}`}, "/made/start": {500, `{"message":"the kernel says no"}`}, "/containers/made": {204, ""},
		} {
			if !strings.HasSuffix(r.URL.Path, part) {
				continue
			}
			if r.Method == http.MethodDelete {
				removed.Store(true)
			}
			w.Header().Set("Api-Version", "1.41")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.text)
			return
		}
		t.Errorf("the daemon is asked %s %s", r.Method, r.URL)
	}))
	defer daemon.Close()
	e := open(t, docker.Options{Host: "tcp://" + strings.TrimPrefix(daemon.URL, "http://"), Image: "of:it"})
	defer e.Close()
	s, err := e.NewSandbox(t.Context(), options(t, engine.SandboxOptions{}))
	if err == nil || !strings.Contains(err.Error(), "the kernel says no") {
		t.Errorf("got %v, %v, want why it does not start", s, err)
	}
	if !removed.Load() {
		t.Error("the container is not removed")
	}
}
