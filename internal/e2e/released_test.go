//go:build linux

package e2e

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// releasedStates is the directory of the packed state directories that releases wrote. released.sh adds that of
// a new release. Never replace one.
const releasedStates = "testdata/state"

// TestReleasedState checks that a server reads the state directory of each release: its key, its paused
// sandbox with files, its volume and its secret.
func TestReleasedState(t *testing.T) {
	t.Parallel()
	report := sandboxtest.New(t, local.WithWarm(0)).Report()
	if report.Isolation != local.Full {
		pinned.Skip(t, "volumes need namespaces")
	}
	if version := os.Getenv("UPDATE_STATE"); version != "" {
		writeReleasedState(t, filepath.Join(releasedStates, version+".tar.gz"))
	}
	packed, err := filepath.Glob(filepath.Join(releasedStates, "v*.tar.gz"))
	must.Do(t, err)
	if len(packed) == 0 {
		t.Fatal("there is no state directory of a release in ", releasedStates)
	}
	for _, from := range packed {
		t.Run(filepath.Base(from), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runTar(t, "-xzf", from, "-C", dir, "--no-same-owner")
			key, err := os.ReadFile(filepath.Join(dir, "key"))
			must.Do(t, err)
			s := startServer(t, stateVariable+"="+filepath.Join(dir, "state"))
			if string(s.key) != string(key) {
				t.Errorf("the key of the cloud is %s, want %s, which its users have", string(s.key), key)
			}
			client, err := sandbox.NewClient(s.option(), sandbox.WithEnvFile(""))
			must.Do(t, err)
			defer client.Close()
			checkReleasedState(t, s, client, report.UserIDs > 1)
			s.stop(t)
		})
	}
}

// checkReleasedState checks what a server has read. Root has saved the sandbox, so only a server whose
// sandboxes have many user ids, too, resumes it. Other servers keep it.
func checkReleasedState(t *testing.T, s *server, client *sandbox.Client, manyIDs bool) {
	t.Helper()
	var ids []string
	for info, err := range client.List(t.Context(), &sandbox.ListParams{Metadata: map[string]string{"who": "released"}}) {
		must.Do(t, err)
		ids = append(ids, info.ID)
	}
	if len(ids) != 1 {
		t.Fatalf("the paused sandboxes are %q, want one", ids)
	}
	var names []string
	for secret, err := range client.Secrets.List(t.Context(), nil) {
		must.Do(t, err)
		names = append(names, secret.Name)
	}
	if !slices.Equal(names, []string{"token"}) {
		t.Errorf("the secrets are %q, want token", names)
	}
	if !manyIDs {
		status, answer := s.ask(t, "POST", "/v2/sandboxes/"+ids[0]+"/connect", "{}")
		if message, _ := answer["message"].(string); status != http.StatusInternalServerError || !strings.Contains(message, "which is still paused") || !strings.Contains(message, "with 65536 ids") {
			t.Errorf("a resume with one id: got %d %v, want that the sandbox is of another kind", status, answer)
		}
		return
	}
	sb := s.resumed(t, ids[0])
	if got, want := sandboxtest.Run(t, sb, "cat deep/link; echo $GREETING; cat /mnt/data/d/file"), "kept\nhello\nin the volume"; got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	must.Do(t, sb.Kill(t.Context()))
}

// writeReleasedState packs the state directory of a server of this version, and the server's key. It does not
// replace a file.
func writeReleasedState(t *testing.T, to string) {
	t.Helper()
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is there already (%v): a release writes its state directory once", to, err)
	}
	dir := t.TempDir()
	s := startServer(t, stateVariable+"="+filepath.Join(dir, "state"))
	client, err := sandbox.NewClient(s.option(), sandbox.WithEnvFile(""))
	must.Do(t, err)
	defer client.Close()
	volume, err := client.Volumes.Create(t.Context(), "data")
	must.Do(t, err)
	must.Do(t, volume.Write(t.Context(), "d/file", []byte("in the volume"), nil))
	_, err = client.Secrets.Create(t.Context(), "token", &sandbox.SecretParams{Value: "a value"})
	must.Do(t, err)
	sb, err := client.Create(t.Context(), sandbox.WithMetadata(map[string]string{"who": "released"}),
		sandbox.WithEnvs(map[string]string{"GREETING": "hello"}), sandbox.WithVolume("data", "/mnt/data"))
	must.Do(t, err)
	sandboxtest.Run(t, sb, "echo kept > notes.txt; mkdir deep && ln -s ../notes.txt deep/link")
	s.pause(t, sb.ID(), `{"memory":false}`)
	s.stop(t)
	_ = sb.Close() // its server is gone
	must.Do(t, os.WriteFile(filepath.Join(dir, "key"), []byte(s.key), 0o600))
	must.Do(t, os.MkdirAll(releasedStates, 0o755))
	runTar(t, "-czf", to, "-C", dir, "--owner=0", "--group=0", "--numeric-owner", "key", "state")
}

func runTar(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "tar", args...).CombinedOutput(); err != nil {
		t.Fatalf("tar %q: %v\n%s", args, err, out)
	}
}
