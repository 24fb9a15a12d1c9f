package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// withoutResult returns the commands that have no result to print as JSON, with the reason. It
// is no variable, because processes that tests start as a command would make it, too.
func withoutResult() map[string]string {
	return map[string]string{
		"completion bash":       "a script for the shell",
		"completion fish":       "a script for the shell",
		"completion powershell": "a script for the shell",
		"completion zsh":        "a script for the shell",
		"help":                  "text for people",
		"volume cp":             "the files are the result",
		"sandbox":               "only fails: of the official command",
		"auth":                  "only fails: of the official command",
		"upload":                "only fails: of other commands",
		"cp":                    "the files are the result",
		"proc attach":           "what the process prints is the result",
		"proc kill":             "it needs a process that runs: proc.txtar reads its list",
		"fs cat":                "the files are the result",
		"local ask forget":      "TestAsk reads it: only a terminal allows a host for good",
		"local logs":            "the lines of the log are the result",
		"fs watch":              "it runs until it is stopped: fs.txtar reads its lines",
		"code repl":             "a terminal shows its output",
		"connect":               "a terminal shows its output",
		"port-forward":          "it runs until it is stopped: port-forward.txtar reads its line",
		"ssh-proxy":             "its output is for ssh: TestSSH reads it",
		"template migrate":      "only fails: of the official command",
	}
}

// testedElsewhere is the command whose JSON TestTrust reads: it changes the list of the machine.
const testedElsewhere = "local trust"

// jsonRun is a command line that works after the ones before it.
type jsonRun struct {
	command string   // its name
	rest    []string // its flags and arguments, in which $ is the kept value
	stdin   string
	keep    string // a member of the result that later ones need
}

// jsonRuns has every command that has a result.
var jsonRuns = []jsonRun{
	{command: "local env"},
	{command: "local prune"},
	{command: "local ask ls"},
	{command: "local setup"},
	{command: "mcp install", rest: []string{"cursor", "--yes"}},
	{command: "version"},
	{command: "doctor"},
	{command: "create", keep: "sandboxID"},
	{command: "ls"},
	{command: "info", rest: []string{"$sandboxID"}},
	{command: "exec", rest: []string{"$sandboxID", "true"}},
	{command: "run", rest: []string{"true"}},
	{command: "code run", rest: []string{"--sandbox", "$sandboxID", "-c", "6 * 7"}},
	{command: "fs mkdir", rest: []string{"${sandboxID}:dir"}},
	{command: "fs mv", rest: []string{"${sandboxID}:dir", "${sandboxID}:renamed"}},
	{command: "fs stat", rest: []string{"${sandboxID}:renamed"}},
	{command: "fs ls", rest: []string{"${sandboxID}:"}},
	{command: "sync", rest: []string{"$context", "${sandboxID}:synced"}},
	{command: "fs rm", rest: []string{"-r", "${sandboxID}:renamed"}},
	{command: "proc ls", rest: []string{"$sandboxID"}},
	{command: "wait", rest: []string{"$sandboxID"}},
	{command: "timeout", rest: []string{"$sandboxID", "10m"}},
	{command: "network get", rest: []string{"$sandboxID"}},
	{command: "network set", rest: []string{"$sandboxID", "--deny", "192.0.2.0/24"}},
	{command: "url", rest: []string{"$sandboxID", "3000"}},
	{command: "ssh-config", rest: []string{"$sandboxID"}},
	{command: "open", rest: []string{"$sandboxID", "3000"}},
	{command: "logs", rest: []string{"$sandboxID"}},
	{command: "metrics", rest: []string{"$sandboxID"}},
	{command: "events", rest: []string{"$sandboxID"}},
	{command: "fork", rest: []string{"$sandboxID"}},
	{command: "snapshot create", rest: []string{"$sandboxID", "--name", "kept"}, keep: "snapshotID"},
	{command: "snapshot ls"},
	{command: "snapshot rm", rest: []string{"$snapshotID"}},
	{command: "pause", rest: []string{"$sandboxID"}},
	{command: "resume", rest: []string{"$sandboxID"}},
	{command: "kill", rest: []string{"$sandboxID"}},
	{command: "template init", rest: []string{"$dir"}},
	{command: "template build", rest: []string{"made", "$context"}},
	{command: "template ls"},
	{command: "template info", rest: []string{"made"}},
	{command: "template status", rest: []string{"made"}},
	{command: "template logs", rest: []string{"made"}},
	{command: "template tag add", rest: []string{"made", "stable"}},
	{command: "template tag ls", rest: []string{"made"}},
	{command: "template tag rm", rest: []string{"made", "stable"}},
	{command: "template publish", rest: []string{"made"}},
	{command: "template unpublish", rest: []string{"made"}},
	{command: "template rm", rest: []string{"made"}},
	{command: "api-key create", rest: []string{"ci"}, keep: "id"},
	{command: "api-key ls"},
	{command: "api-key rename", rest: []string{"$id", "other"}},
	{command: "api-key delete", rest: []string{"$id"}},
	{command: "volume create", rest: []string{"data"}},
	{command: "volume ls"},
	{command: "volume rm", rest: []string{"data"}},
	{command: "secret create", rest: []string{"key"}, stdin: "value"},
	{command: "secret set", rest: []string{"key"}, stdin: "value"},
	{command: "secret ls"},
	{command: "secret rm", rest: []string{"key"}},
	{command: "local status"},
	{command: "local down"},
	{command: "local reset", rest: []string{"--yes"}},
}

// TestEveryCommandHasJSON runs every command with -o json against a local cloud. A new one
// needs a line above.
func TestEveryCommandHasJSON(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	kept := map[string]string{"dir": filepath.Join(t.TempDir(), "new"), "context": t.TempDir()}
	must.Do(t, os.WriteFile(filepath.Join(kept["context"], "Dockerfile"), []byte("FROM e2bdev/base\nRUN true\n"), 0o600))
	startLocalCloud(t)
	covered := map[string]bool{"local up": true, "serve": true, "resize": true} // above, in serve.txtar, and in resize.txtar
	for _, run := range jsonRuns {
		args := append(strings.Fields(run.command), "-o", "json")
		for _, arg := range run.rest {
			args = append(args, os.Expand(arg, func(name string) string { return kept[name] }))
		}
		var out, errs bytes.Buffer
		status := Run(t.Context(), strings.NewReader(run.stdin), &out, &errs, args)
		result, err := documents(out.Bytes())
		if status != 0 || err != nil || len(result) == 0 {
			t.Errorf("%q: status %d, %q (%v), stderr %q, want JSON", args, status, &out, err, &errs)
			continue
		}
		if run.keep != "" {
			of, _ := result[0].(map[string]any)
			kept[run.keep], _ = of[run.keep].(string)
		}
		covered[run.command] = true
	}
	without, all := withoutResult(), commandsWithRun(t)
	for name := range all {
		if without[name] == "" && name != testedElsewhere && !covered[name] {
			t.Errorf("nothing reads what e2bctl %s prints with -o json: add it to jsonRuns, or say in withoutResult why it has no result", name)
		}
	}
	for name := range without {
		if all[name] == nil {
			t.Errorf("withoutResult has %s, which is no command", name)
		}
	}
}

// A mistake in the command line of any command is JSON, too, wherever -o stands.
func TestEveryMistakeIsJSON(t *testing.T) {
	t.Parallel()
	for name, cmd := range commandsWithRun(t) {
		if strings.HasPrefix(name, "completion ") { // flags of the library's own command
			continue
		}
		for _, args := range [][]string{{"-o", "json"}, {"--output=json"}} {
			var out, errs bytes.Buffer
			status := Run(t.Context(), nil, &out, &errs, append(append(strings.Fields(name), "--no-such-flag"), args...))
			var failed struct {
				Error cmdutil.ErrorView `json:"error"`
			}
			err := json.Unmarshal(errs.Bytes(), &failed)
			if status != exitUsage || err != nil || failed.Error.Code != "usage" || out.Len() > 0 {
				t.Errorf("%s (%v): status %d, %q and %q (%v), want an error as JSON", cmd.CommandPath(), args, status, &out, &errs, err)
			}
		}
	}
}

// startLocalCloud starts a local cloud of this test's own, and points the commands at it.
func startLocalCloud(t *testing.T) {
	t.Helper()
	cache, err := os.UserCacheDir()
	must.Do(t, err)
	t.Setenv("XDG_CACHE_HOME", cache) // the prepared Python
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"} {
		dir := t.TempDir()
		must.Do(t, os.Chmod(dir, 0o700))
		t.Setenv(name, dir)
	}
	var up, env, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), "e2bctl", "local", "up", "--background", "-o", "json")
	command.Stdout, command.Stderr = &up, &errs
	if err := command.Run(); err != nil {
		t.Fatalf("local up: %v: %s", err, &errs)
	}
	t.Cleanup(func() {
		if status := Run(context.Background(), nil, io.Discard, &errs, []string{"local", "down"}); status != 0 {
			t.Errorf("local down: status %d, %s", status, &errs)
		}
	})
	if result, err := documents(up.Bytes()); err != nil || len(result) != 1 {
		t.Errorf("local up: got %q (%v), want one JSON document", &up, err)
	}
	var variables map[string]string
	if status := Run(t.Context(), nil, &env, &errs, []string{"local", "env", "-o", "json"}); status != 0 {
		t.Fatalf("local env: status %d, %s", status, &errs)
	}
	must.Do(t, json.Unmarshal(env.Bytes(), &variables))
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// documents returns the JSON documents in a text, which has nothing else.
func documents(text []byte) (all []any, err error) {
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return all, err
		}
		all = append(all, document)
	}
}

// commandsWithRun returns all commands that are no groups, by their names.
func commandsWithRun(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	root := newCmdRoot(cmdutil.NewFactory(cmdutil.NewIOStreams(nil, io.Discard, io.Discard), describe), nil)
	addCompletion(root, nil)
	all := map[string]*cobra.Command{}
	each(root, func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() {
			all[strings.TrimPrefix(cmd.CommandPath(), "e2bctl ")] = cmd
		}
	})
	if len(all) < 40 || all["local up"] == nil {
		t.Fatalf("%d commands were found, want all", len(all))
	}
	return all
}
