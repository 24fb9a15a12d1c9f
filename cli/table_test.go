package cli

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// tableRun is a command line that prints a table, or makes something for a later one.
type tableRun struct {
	file    string // the file below internal/cmd that writes the table; "" makes something
	command string // the arguments, in which $ is the kept value
	keep    string // the name of the ID that is printed and that later tables show
	refused bool   // it shows the plan, and asks for confirmation
	stays   bool   // it runs until the end of the test, and its process is listed by proc ls
}

// tableRuns has a line for each file that writes tables.
var tableRuns = []tableRun{
	{command: "create -m job=a-job-with-a-long-name,owner=somebody -m purpose=to-fill-the-table", keep: "sandbox"},
	{command: "create", keep: "paused"},
	{file: "sandbox/metrics.go", command: "metrics --since 1h $sandbox"},
	{file: "sandbox/events.go", command: "events"},
	{file: "sandbox/list.go", command: "ls"},
	{file: "sandbox/info.go", command: "info $sandbox"},
	{command: "network set $sandbox --internet off --allow a-host-with-a-long-name.example,192.0.2.0/24"},
	{file: "network/get.go", command: "network get $sandbox"},
	{command: "cp $context/Dockerfile ${sandbox}:a-directory/a-file-with-a-long-name"},
	{file: "files/files.go", command: "fs ls ${sandbox}:a-directory"},
	{file: "files/files.go", command: "fs ls --depth 2 ${sandbox}:"},
	{command: "exec $sandbox sleep 1000", stays: true},
	{file: "proc/proc.go", command: "proc ls $sandbox"},
	{file: "files/files.go", command: "fs stat ${sandbox}:a-directory/a-file-with-a-long-name"},
	{command: "snapshot create $sandbox --name a-snapshot-with-a-long-name:v1", keep: "snapshot"},
	{file: "snapshot/snapshot.go", command: "snapshot ls"},
	{command: "template build a-template-with-a-long-name $context"},
	{command: "template tag add a-template-with-a-long-name a-tag-with-a-long-name", keep: "build"},
	{file: "template/list.go", command: "template ls"},
	{file: "template/info.go", command: "template info a-template-with-a-long-name"},
	{file: "template/logs.go", command: "template status a-template-with-a-long-name"},
	{file: "template/tag.go", command: "template tag ls a-template-with-a-long-name"},
	{command: "api-key create a-key-with-a-long-name"},
	{file: "apikey/apikey.go", command: "api-key ls"},
	{command: "secret create a-secret-with-a-long-name"},
	{file: "secret/secret.go", command: "secret ls"},
	{command: "volume create a-volume-with-a-long-name", keep: "volume"},
	{command: "volume cp $context/Dockerfile a-volume-with-a-long-name:/a-file-with-a-long-name"},
	{file: "volume/list.go", command: "volume ls"},
	{file: "volume/list.go", command: "volume ls a-volume-with-a-long-name:/"},
	{command: "pause $paused"},
	{file: "local/prune.go", command: "local prune"},
	{file: "local/status.go", command: "local status"},
	{file: "local/prune.go", command: "local prune --all", refused: true},
	{file: "sandbox/list.go", command: "kill --all", refused: true},
	{file: "doctor/doctor.go", command: "doctor"},
}

// Every table fits a terminal of 60 columns, and its IDs are whole.
func TestTablesFitATerminal(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	kept := map[string]string{"context": t.TempDir()}
	must.Do(t, os.WriteFile(filepath.Join(kept["context"], "Dockerfile"), []byte("FROM e2bdev/base\nRUN true\n"), 0o600))
	startLocalCloud(t)
	printed, rest := "", filesWithTables(t)
	for _, r := range tableRuns {
		command := os.Expand(r.command, func(name string) string { return kept[name] })
		if r.stays {
			runBeside(t, command, kept["sandbox"])
			continue
		}
		var out, errs bytes.Buffer
		ios := cmdutil.NewIOStreams(strings.NewReader("value"), &out, &errs)
		if r.file != "" {
			ios.InIsTerminal, ios.OutIsTerminal, ios.ErrIsTerminal = true, true, true
			ios.OutWidth, ios.ErrWidth = 60, 60
		}
		if status := run(t.Context(), ios, strings.Fields(command)); (status != 0) != r.refused {
			t.Errorf("e2bctl %s: status %d, %s", command, status, &errs)
		}
		if r.keep != "" {
			kept[r.keep] = strings.TrimSpace(out.String())
		}
		table := out.String()
		if r.refused {
			table = errs.String()
			table = table[:strings.LastIndex(strings.TrimSuffix(table, "\n"), "\n")+1] // without the question
		}
		if r.file != "" && len(strings.Fields(table)) < 4 {
			t.Errorf("e2bctl %s prints %q, want a table", command, table)
		}
		for line := range strings.Lines(table) {
			n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			if r.file != "" && n > 60 && !endsInLongWord(line) {
				t.Errorf("e2bctl %s prints a line of %d columns, want 60 at most:\n%s", command, n, table)
			}
		}
		printed += table
		delete(rest, r.file)
	}
	for _, name := range []string{"sandbox", "paused", "snapshot", "build", "volume"} {
		if id := kept[name]; id == "" || strings.Count(printed, id) < 2 {
			t.Errorf("no table shows the ID of the %s, %q, as a whole", name, id)
		}
	}
	for file := range rest {
		t.Errorf("%s writes a table that nothing reads here: add its command to tableRuns", file)
	}
}

// runBeside runs a command until t ends. It returns when a process runs in the sandbox.
func runBeside(t *testing.T, command, sandbox string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	running.Go(func() {
		run(ctx, cmdutil.NewIOStreams(strings.NewReader(""), io.Discard, io.Discard), strings.Fields(command))
	})
	patience.Until(t, "a process runs in the sandbox", func() bool {
		var out bytes.Buffer
		return run(t.Context(), cmdutil.NewIOStreams(strings.NewReader(""), &out, io.Discard), []string{"proc", "ls", sandbox, "-q"}) == 0 && out.Len() > 0
	})
}

// endsInLongWord reports whether a line ends in a word that is too long for any line,
// such as a path.
func endsInLongWord(line string) bool {
	words := strings.Fields(line)
	return utf8.RuneCountInString(words[len(words)-1]) > 45
}

// filesWithTables returns the files of commands that write tables.
func filesWithTables(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	commands := os.DirFS("internal/cmd")
	err := fs.WalkDir(commands, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := fs.ReadFile(commands, path)
		if bytes.Contains(text, []byte("cmdutil.WriteTable(")) || bytes.Contains(text, []byte("cmdutil.Rows{")) || bytes.Contains(text, []byte("WriteList(")) || bytes.Contains(text, []byte("tabwriter")) {
			found[path] = true
		}
		return err
	})
	if err != nil || len(found) < 10 {
		t.Fatalf("%d files write tables (%v), want all", len(found), err)
	}
	return found
}
