// Package proc implements e2bctl proc: the processes of a sandbox.
package proc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/shell"
	"github.com/e2bctl/e2bctl/sandbox"
)

// NewCmdProc returns e2bctl proc.
func NewCmdProc(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("proc", "List, end and watch processes of a sandbox", newCmdAttach(f), newCmdKill(f), newCmdList(f))
}

// command returns a command whose first argument is the ID of a sandbox. It resumes a paused
// sandbox. It calls run with the other arguments.
func command(f *cmdutil.Factory, cmd *cobra.Command, run func(ctx context.Context, sb *sandbox.Sandbox, args []string) error) *cobra.Command {
	var isLocal bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.WithSandbox(cmd, isLocal, args[0], func(ctx context.Context, sb *sandbox.Sandbox) error {
			return run(ctx, sb, args[1:])
		})
	}
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// wants returns a check of a command's arguments. The first argument must be the ID of a sandbox.
// The others must be process IDs. Their number must be between least and most.
func wants(what string, least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < 1+least || len(args) > 1+most {
			return errors.New("want " + what)
		}
		for _, arg := range args[1:] {
			if _, err := parsePID(arg); err != nil {
				return err
			}
		}
		return nil
	}
}

func parsePID(text string) (int, error) {
	pid, err := strconv.ParseInt(text, 10, 32)
	if err != nil || pid < 1 {
		return 0, fmt.Errorf("%s: want the number of a process, as e2bctl proc ls shows it", text)
	}
	return int(pid), nil
}

// processView is a process as -o json shows it. It omits the environment variables, because they
// may contain secrets.
type processView struct {
	PID  int      `json:"pid"`
	Tag  string   `json:"tag,omitempty"`
	Cmd  string   `json:"cmd"`
	Args []string `json:"args"`
	Cwd  string   `json:"cwd,omitempty"`
}

func newCmdList(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "ls <id>",
		Aliases: []string{"list"},
		Short:   "List the processes that were started in a sandbox",
		Long: `List the processes that were started in a sandbox and still run: commands and
terminals, of e2bctl or of any SDK. Their own children, and kernels, are not
listed. The command is the line that a shell runs; -o wide shows the whole program
with its arguments. -q prints numbers only.`,
		Example: `  e2bctl proc ls "$ID"
  e2bctl proc ls "$ID" --jq '.[] | select(.tag == "web") | .pid'`,
		Args: cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1)),
	}, func(ctx context.Context, sb *sandbox.Sandbox, _ []string) error {
		list, err := sb.Commands.List(ctx, nil)
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b sandbox.ProcessInfo) int { return a.PID - b.PID })
		return writeProcesses(f, list)
	})
}

func writeProcesses(f *cmdutil.Factory, list []sandbox.ProcessInfo) error {
	views, pids, rows := make([]processView, len(list)), make([]string, len(list)), make([][]string, len(list))
	for i, p := range list {
		views[i] = processView{p.PID, p.Tag, p.Cmd, append([]string{}, p.Args...), p.Cwd}
		pids[i] = strconv.Itoa(p.PID)
		rows[i] = []string{pids[i], p.Tag, p.Cwd, commandOf(p, f.Wide())}
	}
	return f.WriteList(cmdutil.List{
		Kind: "processes", Views: views, Names: pids, Header: []string{"PID", "TAG", "DIRECTORY", "COMMAND"}, Rows: rows,
	})
}

// commandOf returns the program of a process with its arguments. SDKs start a command as a line for
// a login shell. For such a shell commandOf returns only the line, unless whole is set.
func commandOf(p sandbox.ProcessInfo, whole bool) string {
	if !whole && len(p.Args) == 3 && p.Cmd == "/bin/bash" && p.Args[0] == "-l" && p.Args[1] == "-c" {
		return p.Args[2]
	}
	words := []string{shell.Quote(p.Cmd)}
	for _, arg := range p.Args {
		words = append(words, shell.Quote(arg))
	}
	return strings.Join(words, " ")
}
