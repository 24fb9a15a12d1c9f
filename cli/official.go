package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// newCmdOfficial returns a hidden command whose name comes from E2B's official CLI or a similar
// CLI. Its error names the e2bctl command to use instead.
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

// hereOf returns the e2bctl command that replaces the command "sandbox VERB" of the official CLI,
// or "" if there is none. verb may be an alias of the official CLI. A flag that both commands have
// has the same meaning in both.
func hereOf(verb string) string {
	switch verb {
	case "create", "cr", "spawn", "sp":
		return "create"
	case "list", "ls":
		return "ls"
	case "info", "in":
		return "info"
	case "connect", "cn":
		return "connect"
	case "exec", "ex":
		return "exec"
	case "kill", "kl":
		return "kill"
	case "pause", "ps":
		return "pause"
	case "resume", "rs":
		return "resume"
	case "fork", "fk":
		return "fork"
	case "snapshot", "snap":
		return "snapshot"
	case "logs", "lg":
		return "logs"
	case "metrics", "mt":
		return "metrics"
	}
	return ""
}

// translate converts a command line of the official CLI to the equivalent command line of e2bctl:
// "sandbox list" becomes "ls". It returns other command lines unchanged.
func translate(args []string) []string {
	at := firstWord(args)
	if at+1 >= len(args) || args[at] != "sandbox" && args[at] != "sbx" {
		return args
	}
	verb := hereOf(args[at+1])
	if verb == "" {
		return args
	}
	return slices.Concat(args[:at], []string{verb}, args[at+2:])
}

// firstWord returns the index of the first argument that is neither a global flag nor the value
// of one.
func firstWord(args []string) (at int) {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return 0
	}
	root := &cobra.Command{}
	cmdutil.NewFactory(cmdutil.NewIOStreams(nil, io.Discard, io.Discard), describe).AddFlags(root)
	flags := root.PersistentFlags()
	for at < len(args) && strings.HasPrefix(args[at], "-") {
		name, isLong := strings.CutPrefix(args[at], "--")
		flag := flags.Lookup(name)
		if !isLong && len(args[at]) == 2 {
			flag = flags.ShorthandLookup(args[at][1:])
		}
		at++
		if flag != nil && flag.NoOptDefVal == "" {
			at++ // its value
		}
	}
	return at
}

// insteadOf returns the replacement for a command of the official CLI.
func insteadOf(group, verb string) string {
	switch group {
	case "auth":
		return "set E2B_API_KEY to your key; e2bctl doctor checks it, and --local needs none"
	case "upload":
		return "use e2bctl cp, or e2bctl volume cp for the files of a volume"
	}
	return "its commands stand at the top: e2bctl connect, create, exec, fork, info, kill, logs, ls, metrics, pause, resume, snapshot"
}
