package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// completionLimit bounds the time that somebody waits for after the tab key.
const completionLimit = 2 * time.Second

// live lists the choices for a word of the command line, each with a description after a tab.
type live func(context.Context, *cmdutil.Connection) ([]string, error)

// liveArgument describes the completion of a command's arguments.
type liveArgument struct {
	list     live
	isMany   bool // all arguments are alike
	ofPath   bool // a colon and a path follow
	andFiles bool // files of this machine are choices, too
}

// liveArguments returns how the arguments of a command are completed.
func liveArguments(command string) (liveArgument, bool) {
	switch command {
	case "info", "exec", "connect", "fork", "logs", "metrics", "port-forward", "open", "wait", "timeout", "network get", "snapshot create", "snapshot ls":
		return liveArgument{list: sandboxes()}, true
	case "kill":
		return liveArgument{list: sandboxes(), isMany: true}, true
	case "pause":
		return liveArgument{list: sandboxes(api.StateRunning), isMany: true}, true
	case "network set":
		return liveArgument{list: sandboxes(api.StateRunning)}, true
	case "resume":
		return liveArgument{list: sandboxes(api.StatePaused), isMany: true}, true
	case "fs cat", "fs watch", "fs ls", "fs stat", "fs mkdir", "fs mv", "fs rm":
		return liveArgument{list: sandboxes(), isMany: true, ofPath: true}, true
	case "url":
		return liveArgument{list: sandboxes(), ofPath: true}, true
	case "cp", "sync":
		return liveArgument{list: sandboxes(), isMany: true, ofPath: true, andFiles: true}, true
	case "create", "template info", "template status", "template logs", "template tag ls", "template tag add", "template tag rm":
		return liveArgument{list: templates}, true
	case "template rm", "template publish", "template unpublish":
		return liveArgument{list: templates, isMany: true}, true
	case "snapshot rm":
		return liveArgument{list: snapshots, isMany: true}, true
	case "volume rm":
		return liveArgument{list: volumes, isMany: true}, true
	case "volume ls":
		return liveArgument{list: volumes, ofPath: true}, true
	case "volume cp":
		return liveArgument{list: volumes, isMany: true, ofPath: true, andFiles: true}, true
	}
	return liveArgument{}, false
}

// addLiveCompletion lets shells complete what the service has, and the values of flags. It
// takes time that only completion needs.
func addLiveCompletion(f *cmdutil.Factory, root *cobra.Command) {
	complete := func(cmd *cobra.Command, flag string, choose cobra.CompletionFunc) {
		_, has := cmd.GetFlagCompletionFunc(flag)
		if cmd.Flag(flag) == nil || has {
			return
		}
		if err := cmd.RegisterFlagCompletionFunc(flag, choose); err != nil {
			panic(err) // the flag is there and has no choices yet
		}
	}
	fixed := func(values ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	complete(root, "output", fixed(cmdutil.OutputFormats()...))
	each(root, func(cmd *cobra.Command) {
		if argument, ok := liveArguments(strings.TrimPrefix(cmd.CommandPath(), "e2bctl ")); ok {
			cmd.ValidArgsFunction = argument.complete(f)
		}
		if flags := cmd.LocalNonPersistentFlags(); flags.Lookup("state") != nil {
			complete(cmd, "state", fixed(string(api.StateRunning), string(api.StatePaused)))
		}
		for _, flag := range []string{"template", "new"} {
			complete(cmd, flag, liveArgument{list: templates, isMany: true}.complete(f))
		}
		complete(cmd, "sandbox", liveArgument{list: sandboxes(), isMany: true}.complete(f))
	})
}

func (a liveArgument) complete(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if a.andFiles {
			directive = cobra.ShellCompDirectiveDefault
		}
		if !a.isMany && len(args) > 0 || a.ofPath && strings.Contains(word, ":") {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		var choices []string
		for _, choice := range f.Complete(ctx, cmd, a.list) {
			value, about, _ := strings.Cut(choice, "\t")
			if !strings.HasPrefix(value, word) || cmdutil.Printable(value) != value || slices.Contains(args, value) {
				continue
			}
			if a.ofPath {
				value += ":"
			}
			choices = append(choices, value+"\t"+strings.ReplaceAll(cmdutil.Printable(about), "\n", " "))
		}
		if a.ofPath && len(choices) > 0 {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return choices, directive
	}
}

// sandboxes returns a list of the sandboxes in these states, by default in any.
func sandboxes(states ...api.SandboxState) live {
	return func(ctx context.Context, conn *cmdutil.Connection) (choices []string, err error) {
		for info, err := range conn.List(ctx, &sandbox.ListParams{States: states}) {
			if err != nil {
				return choices, err
			}
			choices = append(choices, info.ID+"\t"+string(info.State)+", "+info.TemplateID)
		}
		return choices, nil
	}
}

func templates(ctx context.Context, conn *cmdutil.Connection) (choices []string, err error) {
	for t, err := range conn.Templates.List(ctx, nil) {
		if err != nil {
			return choices, err
		}
		if len(t.Names) == 0 {
			choices = append(choices, t.ID+"\t"+string(t.BuildStatus))
		}
		for _, name := range t.Names {
			choices = append(choices, name+"\t"+t.ID)
		}
	}
	return choices, nil
}

func snapshots(ctx context.Context, conn *cmdutil.Connection) (choices []string, err error) {
	for s, err := range conn.Snapshots.List(ctx, nil) {
		if err != nil {
			return choices, err
		}
		choices = append(choices, s.ID+"\t"+strings.Join(s.Names, ", "))
	}
	return choices, nil
}

func volumes(ctx context.Context, conn *cmdutil.Connection) (choices []string, err error) {
	all, err := conn.Volumes.List(ctx)
	for _, v := range all {
		choices = append(choices, v.Name+"\t"+v.ID)
	}
	return choices, err
}
