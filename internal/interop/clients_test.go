package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// generations are the folders of pinned SDKs: the newest, which create
// sandboxes with the second version of the API, and the last ones that use the
// first.
var generations = []string{"newest", "2.45"}

// patience is how long all cases of one client may take. They take seconds; the
// limit ends a client that hangs, so that its case is named.
const patience = 4 * time.Minute

// TestClients shares one cloud among all clients: if they disturb each other,
// this test finds out.
func TestClients(t *testing.T) {
	t.Parallel()
	cloud := localUp(t)
	buildGateway(t, cloud)
	driveAll(t, cloud)
}

// TestClientsByDomain has the clients know only the domain, the key and the
// certificates: they speak https, and each sandbox has a host name of its own.
func TestClientsByDomain(t *testing.T) {
	t.Parallel()
	needNames(t)
	cloud := localUp(t)
	addressed := byDomain(cloud)
	buildGateway(t, cloud)
	driveAll(t, addressed)
}

// others are the libraries that build on an SDK, by their pins, with the folders of
// their cases.
var others = map[string]string{"others": "othercases", "openai-agents": "agentcases"}

// driveAll runs the cases of all generations of the official SDKs and the
// command, and of the libraries.
func driveAll(t *testing.T, cloud []string) {
	t.Helper()
	for _, generation := range generations {
		t.Run("js-"+generation, func(t *testing.T) {
			t.Parallel()
			driveJS(t, cloud, generation, "cases")
		})
		t.Run("python-"+generation, func(t *testing.T) {
			t.Parallel()
			for _, style := range []string{"blocking", "asynchronous"} {
				t.Run(style, func(t *testing.T) {
					t.Parallel()
					drivePython(t, cloud, generation, "cases", style)
				})
			}
		})
		t.Run("command-"+generation, func(t *testing.T) {
			t.Parallel()
			driveCommand(t, officialCommand(t, generation, cloud))
		})
	}
	for pins, folder := range others {
		t.Run(pins, func(t *testing.T) {
			t.Parallel()
			drivePython(t, cloud, pins, folder, "asynchronous")
		})
	}
}

// driveJS runs the cases of a folder with the packages pinned for a generation.
func driveJS(t *testing.T, cloud []string, generation, folder string) {
	t.Helper()
	drive(t, cloud, nil, node(t, generation), javascript(t, installJS(t, generation)), folder)
}

// drivePython runs the cases of a folder with the packages of some pins.
func drivePython(t *testing.T, cloud []string, pins, folder, style string) {
	t.Helper()
	interpreter, packages := installPython(t, pins)
	env := []string{
		"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1",
		"NO_PROXY=*", "no_proxy=*", // they only talk to this machine
	}
	drive(t, cloud, env, interpreter, filepath.Join("python", "run.py"), folder, style)
}

// javascript returns the script that runs the cases with the packages installed
// in directory. Node looks for imports beside the file that imports them, so
// the cases are copied to a place where a link to the packages can stand.
func javascript(t *testing.T, directory string) string {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS("js")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(directory, "node_modules"), filepath.Join(copied, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(copied, "run.mjs")
}

// drive runs a client's cases with the variables of a cloud and makes each case
// a subtest. The client prints a line of JSON when a case starts and when it
// ends, in any order.
func drive(t *testing.T, cloud, env []string, program string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = slices.Concat(os.Environ(), env, cloud)
	var stderr strings.Builder
	command.Stderr = &stderr
	command.WaitDelay = time.Second
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	running, ended := map[string]bool{}, 0
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var line struct {
			Started, Ended, Error string
			Seconds               float64
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("the client printed %q", lines.Text())
			continue
		}
		if line.Started != "" {
			running[line.Started] = true
			continue
		}
		delete(running, line.Ended)
		ended++
		t.Run(line.Ended, func(t *testing.T) {
			if line.Error != "" {
				t.Errorf("after %.2f s: %s, want nothing", line.Seconds, line.Error)
			}
		})
	}
	if err := command.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, stderr.String())
	}
	for name := range running {
		t.Errorf("%s did not end", name)
	}
	if ended == 0 {
		t.Error("the client ran no case")
	}
}
