package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// newCmdOfficial returns a hidden command with a name of the official CLI, or of similar
// ones, which names the replacement here.
func newCmdOfficial(name string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Aliases:            aliases,
		Short:              "Say what takes the place of " + name,
		Hidden:             true,
		DisableFlagParsing: true,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			// Its --help does not belong to the requested command, but -o json works.
			cmd.DisableFlagParsing = false
			if err := cmd.ParseFlags(args); err != nil {
				return cmdutil.Usagef(cmd.Root(), "%w", err)
			}
			verb := cmd.Flags().Arg(0)
			return cmdutil.Usagef(cmd.Root(), "there is no e2bctl %s: %s", strings.TrimSpace(cmd.CalledAs()+" "+verb), insteadOf(name, verb))
		},
	}
}

func newCmdOfficialSandbox(*cmdutil.Factory) *cobra.Command {
	return newCmdOfficial("sandbox", "sbx")
}

func newCmdOfficialAuth(*cmdutil.Factory) *cobra.Command {
	return newCmdOfficial("auth", "login", "logout")
}

func newCmdCopying(*cmdutil.Factory) *cobra.Command { return newCmdOfficial("upload", "download") }

// insteadOf returns the replacement for a command of the official CLI.
func insteadOf(group, verb string) string {
	switch group {
	case "auth":
		return "set E2B_API_KEY to your key; e2bctl doctor checks it, and --local needs none"
	case "upload":
		return "use e2bctl cp, or e2bctl volume cp for the files of a volume"
	}
	switch verb {
	case "create", "cr", "spawn", "sp":
		return "use e2bctl create"
	case "list", "ls":
		return "use e2bctl ls"
	case "info", "in":
		return "use e2bctl info"
	case "exec", "ex":
		return "use e2bctl exec"
	case "kill", "kl":
		return "use e2bctl kill"
	case "pause", "ps":
		return "use e2bctl pause"
	case "resume", "rs":
		return "use e2bctl resume"
	case "connect", "cn":
		return "use e2bctl connect"
	case "fork", "fk":
		return "use e2bctl fork"
	case "snapshot", "snap":
		return "use e2bctl snapshot"
	case "logs", "lg":
		return "use e2bctl logs"
	case "metrics", "mt":
		return "use e2bctl metrics"
	}
	return "its commands stand at the top: e2bctl connect, create, exec, fork, info, kill, logs, ls, metrics, pause, resume, snapshot"
}
