package cli

import (
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmd/code"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/doctor"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/local"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/sandbox"
	"github.com/e2bctl/e2bctl/cli/internal/cmd/version"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

const rootExample = `  e2bctl run --local --upload .:app -w app --download app/report.xml:out/ -- make test
  ID=$(e2bctl create)
  e2bctl exec "$ID" -- uname -a
  e2bctl code run --local -c 'import sys; sys.version'
  eval "$(e2bctl local up --background)"`

func newCmdRoot(f *cmdutil.Factory) *cobra.Command {
	root := &cobra.Command{
		Use:           "e2bctl",
		Short:         "Drive E2B-style sandboxes, remote or on this machine",
		Long:          "e2bctl drives the sandboxes of E2B Cloud, of a self-hosted compatible service,\nor of the local cloud that it carries with it (--local).",
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(f.IO.In)
	root.SetOut(f.IO.Out)
	root.SetErr(f.IO.Err)

	f.AddFlags(root)
	root.AddCommand(
		sandbox.NewCmdRun(f),
		sandbox.NewCmdCreate(f),
		sandbox.NewCmdList(f),
		sandbox.NewCmdInfo(f),
		sandbox.NewCmdExec(f),
		code.NewCmdCode(f),
		sandbox.NewCmdKill(f),
		local.NewCmdLocal(f),
		doctor.NewCmdDoctor(f),
		version.NewCmdVersion(f),
		newCmdHelpTopic("exit-codes", "Exit statuses of e2bctl", exitCodesHelp),
		newCmdHelpTopic("environment", "Environment variables and where settings come from", environmentHelp),
		newCmdHelpTopic("output", "What goes to stdout and stderr", outputHelp),
	)
	root.Version = version.Line()
	root.SetVersionTemplate("e2bctl {{.Version}}\n")
	refuseUnknownTopics(root)
	return root
}

// markStarted makes every command record that its command line was understood:
// flags, their groups and arguments are all checked before RunE.
func markStarted(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		markStarted(child, started)
	}
}
