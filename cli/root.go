package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmd/apikey"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/code"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/doctor"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/files"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/local"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/mcp"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/network"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/proc"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/sandbox"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/secret"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/serve"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/snapshot"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/template"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/version"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/volume"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

const rootExample = `  e2bctl run --local --upload .:app -w app --download app/report.xml:out/ -- make test
  ID=$(e2bctl create)
  e2bctl cp -r src "$ID":app
  e2bctl exec "$ID" -- uname -a
  e2bctl code run --local -c 'import sys; sys.version'
  eval "$(e2bctl local up --background)"`

// commands contains the top-level commands, each with its names: the name and then the aliases.
var commands = []struct {
	names []string
	build func(*cmdutil.Factory) *cobra.Command
}{
	{[]string{"run"}, sandbox.NewCmdRun},
	{[]string{"create"}, sandbox.NewCmdCreate},
	{[]string{"ls", "list"}, sandbox.NewCmdList},
	{[]string{"info", "inspect"}, sandbox.NewCmdInfo},
	{[]string{"exec"}, sandbox.NewCmdExec},
	{[]string{"connect", "shell", "attach", "cn"}, sandbox.NewCmdConnect},
	{[]string{"cp"}, sandbox.NewCmdCopy},
	{[]string{"sync"}, sandbox.NewCmdSync},
	{[]string{"fs"}, files.NewCmdFiles},
	{[]string{"proc"}, proc.NewCmdProc},
	{[]string{"network"}, network.NewCmdNetwork},
	{[]string{"port-forward", "forward"}, sandbox.NewCmdPortForward},
	{[]string{"ssh-config"}, sandbox.NewCmdSSHConfig},
	{[]string{"ssh-proxy"}, sandbox.NewCmdSSHProxy},
	{[]string{"url"}, sandbox.NewCmdURL},
	{[]string{"open"}, sandbox.NewCmdOpen},
	{[]string{"wait"}, sandbox.NewCmdWait},
	{[]string{"timeout"}, sandbox.NewCmdTimeout},
	{[]string{"resize"}, sandbox.NewCmdResize},
	{[]string{"pause"}, sandbox.NewCmdPause},
	{[]string{"resume"}, sandbox.NewCmdResume},
	{[]string{"fork"}, sandbox.NewCmdFork},
	{[]string{"kill", "rm"}, sandbox.NewCmdKill},
	{[]string{"logs"}, sandbox.NewCmdLogs},
	{[]string{"events"}, sandbox.NewCmdEvents},
	{[]string{"metrics", "stats"}, sandbox.NewCmdMetrics},
	{[]string{"code"}, code.NewCmdCode},
	{[]string{"snapshot"}, snapshot.NewCmdSnapshot},
	{[]string{"template", "tpl"}, template.NewCmdTemplate},
	{[]string{"api-key"}, apikey.NewCmdAPIKey},
	{[]string{"volume"}, volume.NewCmdVolume},
	{[]string{"secret"}, secret.NewCmdSecret},
	{[]string{"local"}, local.NewCmdLocal},
	{[]string{"serve"}, serve.NewCmdServe},
	{[]string{"mcp"}, mcp.NewCmdMCP},
	{[]string{"doctor"}, doctor.NewCmdDoctor},
	{[]string{"version"}, version.NewCmdVersion},
	{[]string{"sandbox", "sbx"}, newCmdOfficialSandbox},
	{[]string{"auth", "login", "logout"}, newCmdOfficialAuth},
	{[]string{"upload", "download"}, newCmdCopying},
}

// newCmdRoot returns the command for a command line. If the first word names a command, only that
// command is built, because building all of them would take most of the time of a short command.
// Help, completion and error messages need all commands.
func newCmdRoot(f *cmdutil.Factory, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "e2bctl",
		Short:         "Drive E2B-style sandboxes, remote or on this machine",
		Long:          "e2bctl drives the sandboxes of E2B Cloud, of a self-hosted compatible service,\nor of the local cloud that is built into it (--local).",
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(f.IO.In)
	root.SetOut(f.IO.Out)
	root.SetErr(f.IO.Err)
	root.SetFlagErrorFunc(flagError)
	f.AddFlags(root)

	for _, command := range commands {
		if len(args) > 0 && slices.Contains(command.names, args[0]) {
			root.AddCommand(command.build(f))
			root.CompletionOptions.DisableDefaultCmd = true
			return root
		}
	}
	for _, command := range commands {
		root.AddCommand(command.build(f))
	}
	root.AddCommand(
		newCmdHelpTopic("exit-codes", "Exit statuses of e2bctl", exitCodesHelp),
		newCmdHelpTopic("environment", "Environment variables and where settings come from", environmentHelp),
		newCmdHelpTopic("output", "What goes to stdout and stderr", outputHelp),
		newCmdHelpTopic("ci", "What scripts of CI systems need", ciHelp),
	)
	root.Flags().Bool(versionFlag, false, "version for e2bctl")
	refuseUnknownTopics(root)
	return root
}

// addCompletion adds the library's own completion command, but makes it refuse unknown shells:
// by itself it would print help and succeed.
func addCompletion(root *cobra.Command, args []string) {
	root.InitDefaultCompletionCmd(args...)
	for _, command := range root.Commands() {
		if command.Name() == "completion" {
			cmdutil.MakeGroup(command)
		}
	}
}

// onStart makes every command call begin before it runs, at the beginning of RunE. By then flags,
// groups of flags and arguments have been checked. A command whose begin fails does not run.
func onStart(cmd *cobra.Command, begin func(*cobra.Command) error) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := begin(cmd); err != nil {
				return err
			}
			return run(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		onStart(child, begin)
	}
}

func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		each(child, visit)
	}
}
