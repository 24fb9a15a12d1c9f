//go:build linux

package cloud

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestState checks that a cloud with the state directory of an earlier cloud has the same key, and
// that only one cloud at a time can have the directory.
func TestState(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	first, _ := startFake(t, Options{State: state})
	if status, text := do(t, first, "GET", "/sandboxes", ""); status != 200 {
		t.Errorf("got %d %s, want the key to be accepted", status, text)
	}
	_, err := start(t.Context(), Options{State: state, Dir: t.TempDir()}, openers)
	if inUse, ok := errors.AsType[*store.InUseError](err); !ok || inUse.PID != os.Getpid() {
		t.Errorf("a second cloud: got %v, want it to be in use by process %d", err, os.Getpid())
	}
	must.Do(t, first.Close())
	second, _ := startFake(t, Options{State: state})
	if got, want := second.Key(), first.Key(); got != want {
		t.Errorf("after a restart: got another key, want the same")
	}
	if status, text := do(t, second, "GET", "/sandboxes", ""); status != 200 {
		t.Errorf("got %d %s, want the key to be accepted", status, text)
	}
	given, _ := startFake(t, Options{Key: "e2b_" + strings.Repeat("0", 40)})
	other, _ := startFake(t, Options{})
	if given.Key() == other.Key() || other.Key() == first.Key() {
		t.Error("clouds without a state directory in common have the same key")
	}
}

// TestRestart checks that a sandbox that was paused at the end of its lifetime still exists after a
// restart of its cloud, with its files and its token.
func TestRestart(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	first, _ := startFake(t, Options{State: state})
	kept := create(t, first, `{"templateID":"base","autoPause":true,"secure":true,"metadata":{"job":"42"}}`)
	ended := create(t, first, `{"templateID":"base"}`)
	_, before := do(t, first, "POST", "/sandboxes/"+kept+"/connect", `{"timeout":60}`)
	must.Do(t, first.Close())

	second, fake := startFake(t, Options{State: state})
	if status, text := do(t, second, "GET", "/v2/sandboxes?state=paused&metadata=job%3D42", ""); status != 200 || !strings.Contains(text, kept) {
		t.Errorf("list: got %d %s, want %s", status, text, kept)
	}
	if status, text := do(t, second, "GET", "/sandboxes/"+ended, ""); status != 404 || !strings.Contains(text, "server_gone") {
		t.Errorf("one that did not pause: got %d %s, want 404 with the reason", status, text)
	}
	status, after := do(t, second, "POST", "/sandboxes/"+kept+"/connect", `{"timeout":60}`)
	if status != 201 {
		t.Fatalf("connect: got %d %s, want 201", status, after)
	}
	if files := fake.boxes[kept].options.Files; filepath.Dir(files) != filepath.Join(state, "files") {
		t.Errorf("got files %s, want a directory of the store", files)
	}
	var tokens [2]struct{ EnvdAccessToken string }
	for n, text := range []string{before, after} {
		if err := json.Unmarshal([]byte(text), &tokens[n]); err != nil || tokens[n].EnvdAccessToken == "" {
			t.Errorf("got %s and error %v, want a token", text, err)
		}
	}
	if tokens[0] != tokens[1] {
		t.Error("the token is another one after the restart, want the same")
	}
	if status, text := do(t, second, "DELETE", "/sandboxes/"+kept, ""); status != 204 {
		t.Errorf("kill: got %d %s", status, text)
	}
	if files, _ := filepath.Glob(filepath.Join(state, "files", "*")); len(files) != 0 {
		t.Errorf("after the kill: got %q, want no files", files)
	}
}
