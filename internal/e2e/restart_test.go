//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// ask sends a request to the API as any client may, and returns the answer.
func (s *server) ask(t *testing.T, method, path, body string) (int, map[string]any) {
	t.Helper()
	status, answer, err := s.try(t, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, answer
}

func (s *server) try(t *testing.T, method, path, body string) (int, map[string]any, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("X-API-KEY", string(s.key))
	response, err := clienttest.New(t).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	answer := map[string]any{}
	if bytes.HasPrefix(text, []byte("{")) {
		err = json.Unmarshal(text, &answer)
	}
	return response.StatusCode, answer, err
}

// pause pauses a sandbox, which must succeed.
func (s *server) pause(t *testing.T, id, body string) {
	t.Helper()
	if status, answer := s.ask(t, "POST", "/sandboxes/"+id+"/pause", body); status != http.StatusNoContent {
		t.Fatalf("pause: got %d %v, want %d", status, answer, http.StatusNoContent)
	}
}

// resumed connects to a paused sandbox and returns a handle of it.
func (s *server) resumed(t *testing.T, id string) *sandbox.Sandbox {
	t.Helper()
	if status, answer := s.ask(t, "POST", "/v2/sandboxes/"+id+"/connect", "{}"); status != http.StatusCreated {
		t.Fatalf("connect to the paused sandbox: got %d %v, want %d", status, answer, http.StatusCreated)
	}
	sb, err := sandbox.Connect(t.Context(), id, s.option())
	must.Do(t, err)
	t.Cleanup(func() { sb.Close() })
	return sb
}

// sleepers is a command that counts the processes of sleep.
const sleepers = "grep -sl '^sleep$' /proc/[0-9]*/comm | wc -l"

// TestRestart checks that paused sandboxes exist after a restart, however the server
// ended: with their files, their metadata, their variables and their tokens, but without
// their processes, and without claiming to have them.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*server, *testing.T){"killed": (*server).kill, "stopped": (*server).stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := filepath.Join(t.TempDir(), "state")
			before := startServer(t, stateVariable+"="+state)
			sb, err := sandbox.Create(t.Context(), before.option(),
				sandbox.WithMetadata(map[string]string{"who": "me"}), sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
			must.Do(t, err)
			sandboxtest.Run(t, sb, "echo kept > notes.txt; mkdir deep && ln -s ../notes.txt deep/link; (sleep 5000 &)")
			before.pause(t, sb.ID(), `{"memory":true}`)
			_, told := before.ask(t, "GET", "/sandboxes/"+sb.ID(), "")
			end(before, t)
			_ = sb.Close() // its server is gone
			if kept := keptDirectories(t, state); len(kept) != 1 {
				t.Errorf("files are kept in %v, want one directory", kept)
			}

			after := startServer(t, stateVariable+"="+state)
			_, info := after.ask(t, "GET", "/sandboxes/"+sb.ID(), "")
			if info["state"] != "paused" || info["metadata"].(map[string]any)["who"] != "me" || info["envdAccessToken"] != told["envdAccessToken"] {
				t.Errorf("after the restart it is %v, want paused with what it had: %v", info, told)
			}
			again := after.resumed(t, sb.ID())
			if got, want := sandboxtest.Run(t, again, "cat deep/link; echo $GREETING; "+sleepers), "kept\nhello\n0"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if err := again.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if status, _ := after.ask(t, "GET", "/sandboxes/"+sb.ID(), ""); status != http.StatusNotFound {
				t.Errorf("after its kill got %d, want %d", status, http.StatusNotFound)
			}
			stopWithNothingKept(t, after, state)
		})
	}
}

// keptDirectories returns the directories of saved files in a state directory.
func keptDirectories(t *testing.T, state string) (found []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(state, "*", "*", "files"))
	must.Do(t, err)
	return found
}

// stopWithNothingKept stops a server whose sandboxes have been killed, and fails the test
// if files of theirs are left. It waits for their removal first: a server that is stopped
// during the removal leaves the rest to the next one.
func stopWithNothingKept(t *testing.T, s *server, state string) {
	t.Helper()
	patience.Until(t, "no files of killed sandboxes are kept", func() bool { return len(keptDirectories(t, state)) == 0 })
	s.stop(t)
	if kept := keptDirectories(t, state); len(kept) > 0 {
		t.Fatalf("directories are left: %v", kept)
	}
}

// TestKilledWhilePausing kills the server at any moment of a pause. A pause that was
// answered is complete after the restart. One that was not is complete or missing.
func TestKilledWhilePausing(t *testing.T) {
	t.Parallel()
	rounds := 4
	if os.Getenv("SOAK") != "" {
		rounds = 100
	}
	state := filepath.Join(t.TempDir(), "state")
	for range rounds {
		before := startServer(t, stateVariable+"="+state)
		sb, err := sandbox.Create(t.Context(), before.option())
		must.Do(t, err)
		sandboxtest.Run(t, sb, "head -c 20000000 /dev/urandom > big; for i in $(seq 300); do echo $i > small-$i; done; sha256sum big > sum")
		family := descendants(t, before.pid())
		answered := make(chan bool, 1)
		go func() {
			status, _, err := before.try(t, "POST", "/sandboxes/"+sb.ID()+"/pause", "{}")
			answered <- err == nil && status == http.StatusNoContent
		}()
		select { // at an unknown moment, on purpose
		case <-time.After(time.Duration(rand.Int64N(int64(250 * time.Millisecond)))):
		case <-t.Context().Done():
		}
		before.kill(t)
		acknowledged := <-answered
		_ = sb.Close()
		patience.Until(t, "its processes have ended", func() bool { return len(living(family)) == 0 })

		after := startServer(t, stateVariable+"="+state)
		status, info := after.ask(t, "GET", "/sandboxes/"+sb.ID(), "")
		switch {
		case status == http.StatusOK:
			again := after.resumed(t, sb.ID())
			if got, want := sandboxtest.Run(t, again, "sha256sum -c sum; ls small-* | wc -l"), "big: OK\n300"; got != want {
				t.Errorf("acknowledged: %v; got %q, want %q", acknowledged, got, want)
			}
			if err := again.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		case acknowledged:
			t.Errorf("an acknowledged pause was lost: %d %v", status, info)
		case info["reason"] != "server_gone":
			t.Errorf("got %d %v, want the reason server_gone", status, info)
		}
		stopWithNothingKept(t, after, state)
	}
}

// TestKilledWhileChanging kills the server at any moment of a resume, a kill and a second
// pause of a sandbox whose files are kept. Only a kill that was acknowledged or begun may
// remove the files, and they are never incomplete.
func TestKilledWhileChanging(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv("SOAK") != "" {
		rounds = 50
	}
	state := filepath.Join(t.TempDir(), "state")
	for range rounds {
		for name, change := range map[string]struct{ method, path string }{
			"connect": {"POST", "/v2/sandboxes/%s/connect"}, "kill": {"DELETE", "/sandboxes/%s"}, "pause": {"POST", "/sandboxes/%s/pause"},
		} {
			before := startServer(t, stateVariable+"="+state)
			sb, err := sandbox.Create(t.Context(), before.option())
			must.Do(t, err)
			sandboxtest.Run(t, sb, "head -c 5000000 /dev/urandom > big; sha256sum big > sum")
			before.pause(t, sb.ID(), `{"memory":false}`)
			if name == "pause" {
				sandboxtest.Run(t, before.resumed(t, sb.ID()), "echo more > more")
			}
			answered := make(chan int, 1)
			go func() {
				status, _, err := before.try(t, change.method, fmt.Sprintf(change.path, sb.ID()), "{}")
				if err != nil {
					status = 0
				}
				answered <- status
			}()
			select {
			case <-time.After(time.Duration(rand.Int64N(int64(100 * time.Millisecond)))):
			case <-t.Context().Done():
			}
			before.kill(t)
			told := <-answered
			_ = sb.Close()

			after := startServer(t, stateVariable+"="+state)
			status, info := after.ask(t, "GET", "/sandboxes/"+sb.ID(), "")
			switch {
			case status == http.StatusOK && told == http.StatusNoContent && name == "kill":
				t.Error("a sandbox whose kill was acknowledged is there")
			case status == http.StatusOK:
				again := after.resumed(t, sb.ID())
				if got := sandboxtest.Run(t, again, "sha256sum -c sum"); got != "big: OK" {
					t.Errorf("%s: got %q, want the files", name, got)
				}
				if more := sandboxtest.Run(t, again, "cat more 2>/dev/null || true"); told == http.StatusNoContent && name == "pause" && more != "more" {
					t.Errorf("after an acknowledged second pause there is %q, want more", more)
				}
				if err := again.Kill(t.Context()); err != nil {
					t.Error(err)
				}
			case name != "kill":
				t.Errorf("killed during a %s: got %d %v, want the sandbox", name, status, info)
			}
			stopWithNothingKept(t, after, state)
		}
	}
}

// TestFrozenAndKilled checks that nothing of a frozen sandbox outlives its server.
func TestFrozenAndKilled(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	sb, err := sandbox.Create(t.Context(), server.option())
	must.Do(t, err)
	sandboxtest.Run(t, sb, "for i in $(seq 20); do (sleep 5000 &); done")
	server.pause(t, sb.ID(), "{}")
	family := descendants(t, server.pid())
	if len(family) < 20 {
		t.Errorf("only %d processes are seen, want at least 20", len(family))
	}
	server.kill(t)
	_ = sb.Close()
	patience.Until(t, "its processes have ended", func() bool { return len(living(family)) == 0 })
}

// TestStateDirectoryFull checks that a pause for which the disk has no space fails and
// says so, and that the sandbox continues.
func TestStateDirectoryFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	state := t.TempDir()
	if err := unix.Mount("tmpfs", state, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=8m,mode=0700"); err != nil {
		pinned.Skip(t, "mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	server := startServer(t, stateVariable+"="+state)
	sb, err := sandbox.Create(t.Context(), server.option())
	must.Do(t, err)
	sandboxtest.Run(t, sb, "head -c 20000000 /dev/urandom > big; (sleep 5000 &)")
	for _, body := range []string{`{"memory":true}`, `{"memory":false}`} {
		status, answer := server.ask(t, "POST", "/sandboxes/"+sb.ID()+"/pause", body)
		if message := fmt.Sprint(answer["message"]); status < 500 || !strings.Contains(message, "no space left") {
			t.Errorf("pause %s: got %d %v, want an error that says no space left", body, status, answer)
		}
		if got := sandboxtest.Run(t, sb, sleepers); got != "1" {
			t.Errorf("after the failed pause %s processes run, want 1", got)
		}
	}
	sandboxtest.Run(t, sb, "rm big; echo small > small")
	server.pause(t, sb.ID(), "{}")
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	server.stop(t)
}

// TestStateDirectoryTaken checks that a second server on a state directory is refused,
// and that the error names its user.
func TestStateDirectoryTaken(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	first := startServer(t, stateVariable+"="+state)
	second := exec.CommandContext(t.Context(), os.Args[0])
	second.Env = first.command.Env
	var stderr strings.Builder
	second.Stderr = &stderr
	err := second.Run()
	if err == nil || !strings.Contains(stderr.String(), state) {
		t.Errorf("the second server: %v, %q, want an error that names %s", err, stderr.String(), state)
	}
	first.stop(t)
	startServer(t, stateVariable+"="+state).stop(t)
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		t.Error("the state directory is gone")
	}
}
