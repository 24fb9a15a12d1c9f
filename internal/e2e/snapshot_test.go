//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// post calls the API of a cloud and reads the answer into v.
func post(t *testing.T, cloud *sandboxtest.Cloud, path, body string, status int, v any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cloud.URL()+path, strings.NewReader(body))
	must.Do(t, err)
	r.Header.Set("X-Api-Key", string(cloud.APIKey()))
	resp, err := clienttest.New(t).Do(r)
	must.Do(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s: got %d %s and error %v, want %d", path, resp.StatusCode, text, err, status)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// written returns the content of a file of a sandbox.
func written(t *testing.T, sb *sandbox.Sandbox, path string) string {
	t.Helper()
	result, err := sb.Commands.Run(t.Context(), "cat "+path, nil)
	must.Do(t, err)
	return strings.TrimSpace(result.Stdout)
}

// TestSnapshotAndFork checks that a snapshot does not disturb its source, and that
// sandboxes made from it, and forks, have the files of that moment, processes of their
// own, and nothing in common later.
func TestSnapshotAndFork(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	source := cloud.Create(t)
	sandboxtest.Eval(t, source, "n = 41")
	run := func(sb *sandbox.Sandbox, script string) {
		t.Helper()
		_, err := sb.Commands.Run(t.Context(), script, nil)
		must.Do(t, err)
	}
	run(source, "echo before > /tmp/text; mkdir -p work; seq 100000 > work/numbers; rm -f .bashrc; ln -s text /tmp/link")
	command, err := source.Commands.Start(t.Context(), "read line; echo said $line", &sandbox.CommandParams{Input: true})
	must.Do(t, err)
	var snapshot struct{ SnapshotID string }
	post(t, cloud, "/sandboxes/"+source.ID()+"/snapshots", `{"name":"job"}`, http.StatusCreated, &snapshot)
	var forks []struct{ Sandbox struct{ SandboxID string } }
	post(t, cloud, "/sandboxes/"+source.ID()+"/fork", `{"count":3}`, http.StatusCreated, &forks)
	must.Do(t, command.SendInput(t.Context(), []byte("hello\n")))
	if result, err := command.Wait(t.Context()); err != nil || result.Stdout != "said hello\n" || result.OutputCut {
		t.Errorf("the command that ran meanwhile: got %+v, %v, want all that it said, without a cut", result, err)
	}
	if got := sandboxtest.Eval(t, source, "n + 1"); got != "42" {
		t.Errorf("the source has lost its memory: got %s, want 42", got)
	}
	run(source, "echo after > /tmp/text")

	var ids []string
	var made struct{ SandboxID string }
	post(t, cloud, "/v2/sandboxes", fmt.Sprintf(`{"templateID":%q}`, snapshot.SnapshotID), http.StatusCreated, &made)
	ids = append(ids, made.SandboxID)
	for _, fork := range forks {
		ids = append(ids, fork.Sandbox.SandboxID)
	}
	if len(ids) != 4 {
		t.Fatalf("got %q, want four sandboxes", ids)
	}
	for i, id := range ids {
		child, err := sandbox.Connect(t.Context(), id, cloud.Option())
		must.Do(t, err)
		t.Cleanup(func() { _ = child.Close() })
		if got := written(t, child, "/tmp/link"); got != "before" {
			t.Errorf("child %d: got %q in the file, want %q", i, got, "before")
		}
		if got := written(t, child, "work/numbers | md5sum; test -e .bashrc || echo removed; hostname"); !strings.HasSuffix(got, "removed\n"+id) {
			t.Errorf("child %d: got %q, want the file to be removed and a hostname of its own", i, got)
		}
		if got := sandboxtest.Eval(t, child, "'n' in globals()"); got != "False" {
			t.Errorf("child %d has a variable of its source, want a kernel of its own", i)
		}
		run(child, "echo mine > /tmp/text")
	}
	if got := written(t, source, "/tmp/text"); got != "after" {
		t.Errorf("the source has %q in the file, want %q", got, "after")
	}
}
