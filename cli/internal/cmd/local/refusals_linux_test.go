package local

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/must"
)

// errorOf returns the error of a command line. A local cloud that it starts nevertheless ends at once.
func errorOf(t *testing.T, line string) string {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	return call{line: line}.run(ended, nil).err
}

// TestWithoutDirectories checks that each command names the directory that it needs and that does not exist.
func TestWithoutDirectories(t *testing.T) {
	const place, authority, state = "the address and key of a local cloud: ", "the certificate authority of a local cloud: ", "the state directory of a local cloud: "
	for _, tt := range []struct {
		missing []string // variables
		want    map[string]string
	}{
		{[]string{"XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "TMPDIR"}, map[string]string{
			"up": place, "up --background": place, "down": place, "env": place, "status": place, "logs": place, "prune": place, "reset --yes": place, "ask ls": place,
			"ask forget a.test": place,
		}},
		{[]string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR"}, map[string]string{
			"up": authority, "trust": authority, "prune": state, "reset --yes": state, "ask ls": state, "ask forget a.test": state,
		}},
	} {
		fresh(t)
		for _, name := range tt.missing {
			t.Setenv(name, os.DevNull+"/none")
		}
		for line, want := range tt.want {
			if got := errorOf(t, line); !strings.HasPrefix(got, want+"no directory can be made: ") {
				t.Errorf("%s without %q: got error %s, want %s", line, tt.missing, got, want)
			}
		}
	}
}

// TestPathsThatAreNotPossible checks that each path of the flags is looked up before anything is done.
func TestPathsThatAreNotPossible(t *testing.T) {
	dir := fresh(t)
	loop := filepath.Join(dir, "loop")
	must.Do(t, os.Symlink("loop", loop))
	for _, line := range []string{"up", "up --background", "down", "env", "logs", "prune", "reset --yes", "ask ls", "ask forget a.test"} {
		if got := errorOf(t, line+" --state-dir "+loop+"/x"); !strings.Contains(got, "too many links") {
			t.Errorf("%s with a loop of links: got error %s", line, got)
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, line := range []string{"prune", "reset --yes"} {
		if got := errorOf(t, line+" --state-dir "+filepath.Join(dir, "file")); !strings.Contains(got, filepath.Join(dir, "file")) {
			t.Errorf("%s with a file: got error %s", line, got)
		}
	}
	if got := errorOf(t, "reset --yes --state-dir "+dir); !strings.HasPrefix(got, "the state directory "+dir+": ") {
		t.Errorf("reset of another directory: got error %s", got)
	}
	here := filepath.Join(dir, "here")
	must.Do(t, os.Mkdir(here, 0o700))
	t.Chdir(here)
	must.Do(t, os.Remove(here))
	t.Setenv("KUBECONFIG", "")
	for _, line := range []string{
		"up --state-dir x", "up --image-dir x", "up --allow-mount x", "up --host-service a=unix:x", "down --state-dir x", "env --state-dir x", "logs --state-dir x", "prune --state-dir x",
		"reset --yes --state-dir x", "ask ls --state-dir x", "ask forget a.test --state-dir x",
	} {
		if got := errorOf(t, line); !strings.Contains(got, "getwd") {
			t.Errorf("%s in a directory that is gone: got error %s", line, got)
		}
	}
	t.Setenv("KUBECONFIG", "x")
	if got := errorOf(t, "up"); !strings.Contains(got, "getwd") {
		t.Errorf("KUBECONFIG in a directory that is gone: got error %s", got)
	}
}

// TestUpThatDoesNotStart checks the error of a local cloud whose port is taken, or which nobody could find, and that one in
// the background also tells it to the process that waits for it.
func TestUpThatDoesNotStart(t *testing.T) {
	dir := fresh(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	must.Do(t, err)
	must.Do(t, os.MkdirAll(filepath.Join(dir, "e2bctl", "local", "cloud.json", "taken"), 0o700))
	for flags, want := range map[string]struct{ out, err string }{
		"--port " + port: {"", "--port chooses another one"}, "--port " + port + " --log log": {`{"error":{"message":"`, "--port chooses another one"},
		"--port 0": {"", "cloud.json"}, "--log log": {`{"error":{"message":"`, "cloud.json"},
	} {
		got := call{line: "up --warm 0 --ephemeral " + flags}.run(t.Context(), nil)
		if !strings.Contains(got.err, want.err) || !strings.HasPrefix(got.out, want.out) || (got.out == "") != (want.out == "") {
			t.Errorf("%s: got %+v, want the error %q, and output that begins with %s", flags, got, want.err, want.out)
		}
	}
}

// TestSetupOfEngines checks what a setup prints for each engine, and the errors of flags that are not for it.
func TestSetupOfEngines(t *testing.T) {
	dir := fresh(t)
	t.Setenv("PATH", dir)
	t.Setenv("DOCKER_HOST", "unix://"+dir+"/none")
	t.Setenv("E2BCTL_PYTHON", dir+"/python")
	check(t, nil,
		call{line: "setup x", err: "want no arguments"},
		call{line: "setup --from x", err: "--from is not for the engine room"},
		call{line: "setup --engine docker --full", err: "--full is not for the engine docker"},
		call{line: "setup --engine docker --packages x", err: "--packages is not for the engine docker"},
		call{line: "setup --engine wasm --full=false", err: "--full is not for the engine wasm"},
		call{line: "setup --engine wasm --packages x", err: "--packages is not for the engine wasm"},
		call{line: "setup --engine gvisor --full", err: "--full is not for the engine gvisor"},
		call{line: "setup --engine gvisor --packages x", err: "--packages is not for the engine gvisor"},
		call{line: "setup --engine gvisor --from x", err: "--from is not for the engine gvisor"},
	)
	for line, want := range map[string]string{
		"--engine wasm --from " + dir + "/w": dir + "/w", "--engine gvisor": "gvisor: ", "": dir + "/python",
		"--full": "nothing is installed into E2BCTL_PYTHON", "--packages x": "nothing is installed into E2BCTL_PYTHON",
	} {
		if got := errorOf(t, "setup "+line); !strings.Contains(got, want) {
			t.Errorf("setup %s: got error %q, want %q in it", line, got, want)
		}
	}
	for flag, said := range map[string]bool{"": true, " -q": false} {
		got := call{line: "setup --engine docker --from " + dir + "/p" + flag}.run(t.Context(), nil)
		if strings.Contains(got.errs, "going on for this machine's processor") != said || got.err == "" != (got.out != "") {
			t.Errorf("docker%s: got %+v, want its progress: %t", flag, got, said)
		}
		if got.err != "" && !strings.Contains(got.err, dir+"/p") { // this program is not the first process of containers
			t.Errorf("docker%s: got error %s", flag, got.err)
		}
	}
	var out strings.Builder
	o := &setupOptions{IO: cmdutil.NewIOStreams(nil, &out, nil)}
	must.Do(t, o.prepared(wasmView{"/w"}, "/w", nil))
	o.JSON = true
	must.Do(t, o.prepared(dockerView{"/d"}, "/d", nil))
	must.Do(t, o.prepared(gvisorView{"/g"}, "/g", nil))
	must.Is(t, o.prepared(nil, "", errFull), errFull)
	if got, want := out.String(), "/w\n{\n  \"program\": \"/d\"\n}\n{\n  \"path\": \"/g\"\n}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSetupOfPython checks what a setup prints about the Python, and about a local cloud that it tries.
func TestSetupOfPython(t *testing.T) {
	fresh(t)
	python := os.Getenv("E2BCTL_PYTHON")
	var progress strings.Builder
	must.Do(t, tryCloud(t.Context(), &progress))
	if got := progress.String(); strings.Count(got, "\n") != 2 || !strings.HasSuffix(got, "\nA local cloud starts here\n") {
		t.Errorf("it said %q", got)
	}
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR"} {
		t.Setenv(name, os.DevNull+"/none")
	}
	const (
		trying = "Trying a local cloud, so that the first one that is used starts at once\n"
		failed = "e2bctl: local setup: the Python is prepared, but a local cloud does not start here: "
		note   = " lacks IPython, numpy, "
	)
	for flags, want := range map[string][]string{
		"": {trying + failed, note, "PYTHON\n"}, " -q": {failed, note, "PYTHON\n"},
		" -o json": {trying + failed, "", "{\n  \"path\": \"PYTHON\",\n  \"version\": \"3.12.1\",\n"},
	} {
		got := call{line: "setup" + flags}.run(t.Context(), names{"PYTHON", python})
		hasNote := strings.Contains(got.errs, note)
		if got.err != "" || !strings.HasPrefix(got.errs, want[0]) || hasNote != (want[1] != "") || !strings.HasPrefix(got.out, want[2]) {
			t.Errorf("%q: got %+v, want %q", flags, got, want)
		}
	}
}

// TestWhatIsLost checks the list of all that a reset removes.
func TestWhatIsLost(t *testing.T) {
	t.Parallel()
	one := func(bytes int64) localcloud.Taken { return localcloud.Taken{Count: 1, Bytes: bytes << 20} }
	var out strings.Builder
	sayLost(&out, localcloud.State{
		Dir: "/s", Kept: []localcloud.Kept{{ID: "a", Bytes: 1 << 20}}, Space: localcloud.Space{Layers: one(2), Uploads: one(3)}, Volumes: volumes.Space{Count: 1, Bytes: 4 << 20},
	}, localcloud.Record{URL: "http://a"}, false)
	const want = "This removes from /s:\n  1 paused sandbox, 1 MiB\n  1 layer of snapshots and templates, 2 MiB\n" +
		"  1 archive of builds, 3 MiB\n  1 volume, 4 MiB\n  all secrets, API keys, and the cloud's own key\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
}
