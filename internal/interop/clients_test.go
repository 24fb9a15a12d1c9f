package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// A client is the client of a run: an official SDK, the official command, or a library
// that builds on an SDK.
type client string

const (
	javascriptSDK  client = "js"
	blockingSDK    client = "python blocking"
	asyncSDK       client = "python asynchronous"
	theCommand     client = "command"
	libraries      client = "others"
	agentLibraries client = "openai-agents"
)

// clientRun is one client in one generation. Its folders pin it: newest, which create
// sandboxes with the second version of the API, or 2.45, the last that uses the first.
// byURL and byDomain tell how often it runs with the addresses of a cloud, and with
// nothing but its domain, the key and the certificates: then it speaks https, and each
// sandbox has a host name of its own.
type clientRun struct {
	client          client
	generation      string
	byURL, byDomain often
}

// often tells in which runs of the tests a client runs.
type often string

const (
	everyTime often = "every time"
	soak      often = "with SOAK=1"
)

// clientRuns are all the runs. Features that both SDKs of a language or both ways to the
// cloud share are tested every time by one of them.
var clientRuns = []clientRun{
	{javascriptSDK, "newest", everyTime, everyTime},
	{asyncSDK, "newest", everyTime, everyTime},
	{blockingSDK, "newest", everyTime, soak},
	{theCommand, "newest", everyTime, soak},
	{libraries, "newest", everyTime, soak},
	{agentLibraries, "newest", everyTime, soak},
	{javascriptSDK, "2.45", everyTime, soak},
	{blockingSDK, "2.45", everyTime, soak},
	{asyncSDK, "2.45", soak, soak},
	{theCommand, "2.45", soak, soak},
}

// now reports whether a client runs this time.
func (o often) now() bool { return o == everyTime || os.Getenv("SOAK") != "" }

// TestEverydayClients checks that the newest client of each kind runs every time, and the
// older of each language, too, and that a soak runs all of them in both ways.
func TestEverydayClients(t *testing.T) {
	t.Parallel()
	everyday := map[client][]string{}
	ofSoak := map[clientRun]bool{}
	for _, run := range clientRuns {
		if run.byURL == everyTime {
			everyday[run.client] = append(everyday[run.client], run.generation)
		}
		if run.byURL == "" || run.byDomain == "" {
			t.Errorf("%s runs %q by the addresses of a cloud and %q by its domain, want an answer for both", run.name(), run.byURL, run.byDomain)
		}
		ofSoak[clientRun{client: run.client, generation: run.generation}] = true
	}
	for _, one := range []client{javascriptSDK, blockingSDK, asyncSDK, theCommand, libraries, agentLibraries} {
		if got := everyday[one]; !slices.Contains(got, "newest") {
			t.Errorf("of %s, %q run every time, want the newest among them", one, got)
		}
	}
	for _, one := range []client{javascriptSDK, blockingSDK} {
		if got := everyday[one]; !slices.Contains(got, "2.45") {
			t.Errorf("of %s, %q run every time, want 2.45 among them", one, got)
		}
	}
	for _, one := range []client{javascriptSDK, blockingSDK, asyncSDK, theCommand} {
		for _, generation := range []string{"newest", "2.45"} {
			if !ofSoak[clientRun{client: one, generation: generation}] {
				t.Errorf("no soak runs %s of %s", one, generation)
			}
		}
	}
}

// TestClients has all clients use one cloud: if they disturb each other, this test fails.
func TestClients(t *testing.T) {
	t.Parallel()
	cloud := sharedCloud(t)
	for _, run := range clientRuns {
		if run.byURL.now() {
			t.Run(run.name(), func(t *testing.T) {
				t.Parallel()
				run.drive(t, cloud)
			})
		}
	}
	t.Run("domain", func(t *testing.T) {
		t.Parallel()
		needNames(t)
		addressed := byDomain(cloud)
		for _, run := range clientRuns {
			if run.byDomain.now() {
				t.Run(run.name(), func(t *testing.T) {
					t.Parallel()
					run.drive(t, addressed)
				})
			}
		}
	})
}

func (r clientRun) name() string { return fmt.Sprintf("%s %s", r.client, r.generation) }

// drive runs all cases of a client.
func (r clientRun) drive(t *testing.T, cloud []string) {
	t.Helper()
	switch r.client {
	case javascriptSDK:
		driveJS(t, cloud, r.generation, "cases")
	case blockingSDK:
		drivePython(t, cloud, r.generation, "cases", "blocking")
	case asyncSDK:
		drivePython(t, cloud, r.generation, "cases", "asynchronous")
	case theCommand:
		driveCommand(t, officialCommand(t, r.generation, cloud))
	case libraries:
		drivePython(t, cloud, "others", "othercases", "asynchronous")
	case agentLibraries:
		drivePython(t, cloud, "openai-agents", "agentcases", "asynchronous")
	default:
		t.Fatalf("no such client: %q", r.client)
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

// javascript returns the script that runs the cases with the packages installed in
// directory. Node looks for imports beside the file that imports them, so the cases are
// copied to a place where a link to the packages can be.
func javascript(t *testing.T, directory string) string {
	t.Helper()
	copied := t.TempDir()
	must.Do(t, os.CopyFS(copied, os.DirFS("js")))
	must.Do(t, os.Symlink(filepath.Join(directory, "node_modules"), filepath.Join(copied, "node_modules")))
	return filepath.Join(copied, "run.mjs")
}

// drive runs a client's cases with the variables of a cloud and makes each case
// a subtest. The client prints a line of JSON when a case starts and when it
// ends, in any order.
func drive(t *testing.T, cloud, env []string, program string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	// The cases wait as long as other tests do.
	env = append(env, fmt.Sprintf("PATIENCE=%v", patience.Limit.Seconds()))
	command.Env = slices.Concat(os.Environ(), env, cloud)
	var stderr strings.Builder
	command.Stderr = &stderr
	command.WaitDelay = time.Second
	stdout, err := command.StdoutPipe()
	must.Do(t, err)
	must.Do(t, command.Start())
	// A client that hangs is ended, so that its case is named: no case starts or ends for
	// longer than the limit of any wait.
	hang := time.AfterFunc(2*patience.Limit, cancel)
	defer hang.Stop()
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
		hang.Reset(2 * patience.Limit)
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
