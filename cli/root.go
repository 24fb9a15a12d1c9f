package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

const rootExample = `  e2bctl run --local --upload .:app -w app --download app/report.xml:out/ -- make test
  ID=$(e2bctl create)
  e2bctl exec "$ID" -- uname -a
  e2bctl code run --local -c 'import sys; sys.version'
  eval "$(e2bctl local up --background)"`

func newCmdRoot(f *Factory) *cobra.Command {
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

	flags := root.PersistentFlags()
	flags.VarP(&f.flags.output, "output", "o", "output format")
	flags.BoolVarP(&f.flags.quiet, "quiet", "q", false, "print IDs only, and no progress")
	flags.BoolVarP(&f.flags.verbose, "verbose", "v", false, "log requests on stderr, without secrets")
	flags.StringVar(&f.flags.envFile, "env-file", "", "read E2B_* from `FILE` instead of ./.env")
	flags.BoolVar(&f.flags.noEnvFile, "no-env-file", false, "read no .env file")
	flags.StringVar(&f.flags.apiURL, "api-url", "", "the service's API is at `URL` (E2B_API_URL)")
	flags.StringVar(&f.flags.domain, "domain", "", "the service's domain is `NAME` (E2B_DOMAIN)")
	root.MarkFlagsMutuallyExclusive("env-file", "no-env-file")

	root.AddCommand(
		newCmdRun(f),
		newCmdCreate(f),
		newCmdList(f),
		newCmdInfo(f),
		newCmdExec(f),
		newCmdCode(f),
		newCmdKill(f),
		newCmdLocal(f),
		newCmdDoctor(f),
		newCmdVersion(f),
		newCmdHelpTopic("exit-codes", "Exit statuses of e2bctl", exitCodesHelp),
		newCmdHelpTopic("environment", "Environment variables and where settings come from", environmentHelp),
		newCmdHelpTopic("output", "What goes to stdout and stderr", outputHelp),
	)
	root.Version = readBuildVersion().line()
	root.SetVersionTemplate("e2bctl {{.Version}}\n")
	refuseUnknownTopics(root)
	markStarted(f, root)
	return root
}

// markStarted makes every command record that its command line was understood:
// flags, their groups and arguments are all checked before RunE.
func markStarted(f *Factory, cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			f.started = true
			return run(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		markStarted(f, child)
	}
}

// newCmdGroup returns a command that only contains others. For an unknown one
// cobra would print help and succeed; a script must see that as a mistake.
func newCmdGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}
