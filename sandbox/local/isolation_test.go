//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestWithoutNamespaces checks that the usual calls work without namespaces, too:
// commands, files by relative and absolute path, and code.
func TestWithoutNamespaces(t *testing.T) {
	t.Parallel()
	for _, isolation := range []local.Isolation{local.Restricted, local.None} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			cloud := sandboxtest.New(t, local.WithIsolation(isolation))
			if got := cloud.Isolation(); got != isolation {
				t.Fatalf("isolation is %q", got)
			}
			t.Logf("%+v", cloud.Report())
			sb := cloud.Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
			home := sandboxtest.Run(t, sb, "pwd")
			if !strings.HasSuffix(home, "/home/user") || home == "/home/user" {
				t.Errorf("home is %s", home)
			}
			for _, user := range []string{"user", "root"} {
				result, err := sb.Commands.Run(t.Context(), `echo "$GREETING $USER $HOME $(mktemp -u) $https_proxy"; command -v python3`, &sandbox.CommandParams{User: user})
				must.Do(t, err)
				temp := strings.TrimSuffix(home, "home/user") + "tmp/"
				lines := strings.Split(result.Stdout, "\n")
				if want := "hello " + user + " " + home + " " + temp; !strings.HasPrefix(lines[0], want) {
					t.Errorf("got %q, want %q", lines[0], want)
				}
				if !strings.HasSuffix(lines[0], " ") {
					t.Errorf("a proxy that is not there: %q", lines[0])
				}
				if lines[1] != cloud.Report().Python {
					t.Errorf("python3 is %s, that of kernels %s", lines[1], cloud.Report().Python)
				}
			}
			// The id may have no name in the machine's list of accounts; the variables have one.
			if got := sandboxtest.Run(t, sb, `echo $LOGNAME; python3 -c 'import getpass, os; print(getpass.getuser(), os.path.expanduser("~"))'`); got != "user\nuser "+home {
				t.Errorf("the name is %q", got)
			}
			must.Do(t, sb.Files.Write(t.Context(), "data/in.txt", []byte("six seven"), nil))
			if got, err := sb.Files.Read(t.Context(), home+"/data/in.txt", nil); err != nil || string(got) != "six seven" {
				t.Errorf("%q, %v", got, err)
			}
			execution, err := sb.RunCode(t.Context(), "import os, pathlib, tempfile\ntempfile.TemporaryFile().close()\npathlib.Path('out.txt').write_text('done')\nlen(open('data/in.txt').read()), os.environ['GREETING']", nil)
			must.Do(t, err)
			if got := execution.Text(); got != "(9, 'hello')" {
				t.Errorf("code: %q, %v", got, execution.Error)
			}
			if got, err := sb.Files.Read(t.Context(), "out.txt", nil); err != nil || string(got) != "done" {
				t.Errorf("%q, %v", got, err)
			}
			outside := filepath.Join(t.TempDir(), "outside.txt")
			must.Do(t, os.WriteFile(outside, []byte("host"), 0o644))
			if got, err := sb.Files.Read(t.Context(), outside, nil); (err == nil) != (isolation == local.None) {
				t.Errorf("a file of the host: %q, %v", got, err)
			}
		})
	}
}

// TestPlacesAreSecret checks that, where sandboxes have no process namespaces of their
// own, a sandbox cannot find the directory of another one from the files of its
// processes in /proc.
func TestPlacesAreSecret(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithIsolation(local.Restricted))
	secret, curious := cloud.Create(t), cloud.Create(t)
	if _, err := secret.RunCode(t.Context(), "1", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Commands.Start(t.Context(), "exec sleep 1000", nil); err != nil {
		t.Fatal(err)
	}
	place := strings.TrimSuffix(sandboxtest.Run(t, secret, "pwd"), "/home/user")
	name := filepath.Base(place)
	if place == name || len(name) < 20 || strings.HasPrefix(sandboxtest.Run(t, curious, "pwd"), place) {
		t.Fatalf("the sandbox is in %s", place)
	}
	// The search must not find its own process.
	must.Do(t, curious.Files.Write(t.Context(), "name", []byte(name), nil))
	const search = `
import glob, pathlib
name, found, read = pathlib.Path("name").read_bytes(), [], 0
for path in glob.glob("/proc/[0-9]*/*") + glob.glob("/proc/net/*") + glob.glob("/proc/*"):
    try:
        with open(path, "rb", buffering=0) as file: content = file.read(1 << 20)
    except OSError: continue
    read += 1
    if name in content: found.append(path)
print(read > 100, found)`
	must.Do(t, curious.Files.Write(t.Context(), "search.py", []byte(search), nil))
	if got := sandboxtest.Run(t, curious, "timeout 60 python3 search.py"); got != "True []" {
		t.Errorf("got %s", got)
	}
}

// TestMarks checks the files by which programs recognise that they are in a sandbox.
func TestMarks(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithWarm(0)).Create(t)
	got := sandboxtest.Run(t, sb, `cd /run/e2b; echo $(cat .E2B_SANDBOX) $(cat .E2B_SANDBOX_ID) $(cat .E2B_TEMPLATE_ID) $E2B_TEMPLATE_ID; grep -c "^TEMPLATE_ID=$E2B_TEMPLATE_ID$" /.e2b`)
	fields := strings.Fields(got)
	if len(fields) != 5 {
		t.Fatalf("got %q, want five words", got)
	}
	if diff := cmp.Diff([]string{"true", sb.ID(), fields[3], fields[3], "1"}, fields); diff != "" {
		t.Errorf("the marks (-want +got):\n%s", diff)
	}
}
