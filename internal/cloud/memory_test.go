//go:build linux

package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMemoryOfSnapshot checks that a snapshot saves first the memory and then the files, to
// different directories, and that a sandbox made from it begins with both.
func TestMemoryOfSnapshot(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	c, fake := startFake(t, Options{State: state})
	source := create(t, c, `{"templateID":"base"}`)
	status, text := do(t, c, "POST", "/sandboxes/"+source+"/snapshots", `{"name":"job"}`)
	if status != http.StatusCreated || !strings.Contains(text, `"memory":true`) {
		t.Fatalf("got %d %s, want a snapshot with memory", status, text)
	}
	if saved := fake.boxes[source].saved; len(saved) != 2 || saved[0] == saved[1] {
		t.Errorf("saved to %q, want two directories", saved)
	}
	if status, text := do(t, c, "POST", "/sandboxes/"+source+"/fork", `{"count":2}`); status != http.StatusCreated || strings.Count(text, `"memory":true`) != 2 {
		t.Errorf("got %d %s, want two children with memory", status, text)
	}
	child := create(t, c, `{"templateID":"job"}`)
	o := fake.boxes[child].options
	for what, dir := range map[string]string{"files": o.Files, "memory": o.Memory} {
		info, err := os.Stat(dir)
		if err != nil || filepath.Dir(dir) != filepath.Join(state, "files") || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: got %q, %v and error %v, want a private directory of the store", what, dir, info, err)
		}
	}
	if o.Files == o.Memory {
		t.Errorf("got %s for both", o.Files)
	}
	if status, text := do(t, c, "POST", "/sandboxes/"+source+"/snapshots", `{"memory":false}`); status != http.StatusCreated || !strings.Contains(text, `"memory":false`) {
		t.Errorf("got %d %s, want a snapshot without memory", status, text)
	}
}

// TestStartCommandWithMemory checks that the commands of a template are not started in a sandbox
// with memory, because they already run there.
func TestStartCommandWithMemory(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{})
	for memory, want := range map[string]bool{"": true, t.TempDir(): false} {
		rules, err := (*lifecycle.Network)(nil).Rules(nil)
		must.Do(t, err)
		spec := lifecycle.Spec{ID: fmt.Sprintf("imemory%v", want), Template: lifecycle.Template{ID: "job", Start: "serve", Engine: engine.Room}, Egress: rules, Memory: memory}
		sb, err := c.launch(t.Context(), spec)
		must.Do(t, err)
		box := fake.boxes[spec.ID]
		if asked := box.asked.Load() > 0; asked != want || box.options.Memory != memory {
			t.Errorf("memory %q: got %q, envd was asked to run something: %v, want %v", memory, box.options.Memory, asked, want)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMemoryAfterRestart checks that a sandbox that was paused with its memory continues after a
// restart, by a call or by a request. If the memory cannot be restored, the resume is refused with
// a remedy that works.
func TestMemoryAfterRestart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set    func(fake *fakeRoom)
		reason string // reason for the refusal; "": the sandbox continues
	}{
		"the same machine":       {func(*fakeRoom) {}, ""},
		"another machine":        {func(fake *fakeRoom) { fake.forgets = fmt.Errorf("%w: another processor", engine.ErrOtherMachine) }, "its memory cannot be restored here: another processor"},
		"an engine that cannot":  {func(fake *fakeRoom) { fake.lacks = engine.Promises{engine.SavedMemory: "it forgets"} }, "its memory cannot be restored here: not supported by the room engine: it forgets"},
		"no room on the machine": {func(fake *fakeRoom) { fake.forgets = errors.New("no room") }, "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			first, _ := startFake(t, Options{State: state})
			status, text := do(t, first, "POST", "/v2/sandboxes", `{"templateID":"base","autoResume":{"enabled":true},"network":{"allowPublicTraffic":false}}`)
			var sb struct{ SandboxID, EnvdAccessToken, TrafficAccessToken string }
			if err := json.Unmarshal([]byte(text), &sb); err != nil || status != http.StatusCreated {
				t.Fatalf("got %d %s: %v", status, text, err)
			}
			pauseWith(``)(t, first, sb.SandboxID)
			must.Do(t, first.Close())

			second, fake := startFake(t, Options{State: state})
			tt.set(fake)
			request := func(token string) (int, string) {
				return do(t, second, "GET", "/files", "", "E2b-Sandbox-Id", sb.SandboxID, "E2b-Sandbox-Port", "49983", "X-Access-Token", token)
			}
			if status, text := request("nope"); status != http.StatusForbidden {
				t.Errorf("a request without its token: got %d %s, want 403", status, text)
			}
			status, text = request(sb.EnvdAccessToken)
			if tt.reason == "" {
				if status != http.StatusOK || fake.boxes[sb.SandboxID].options.Memory == "" {
					t.Errorf("a request: got %d %s, want it to resume with its memory", status, text)
				}
				return
			}
			if status != http.StatusConflict {
				t.Errorf("a request: got %d %s, want 409", status, text)
			}
			status, text = do(t, second, "POST", "/v2/sandboxes/"+sb.SandboxID+"/connect", ``)
			if want := http.StatusBadRequest; !strings.Contains(text, tt.reason) || status != want && tt.reason != "no room" || strings.Contains(text, "memory false (e2bctl resume --reboot)") != (status == want) {
				t.Errorf("got %d %s, want %q and what to do", status, text, tt.reason)
			}
			if status, text := do(t, second, "POST", "/v2/sandboxes/"+sb.SandboxID+"/connect", `{"memory":false}`); status != http.StatusCreated || fake.boxes[sb.SandboxID].options.Memory != "" {
				t.Errorf("without memory: got %d %s, want it to boot", status, text)
			}
		})
	}
}
