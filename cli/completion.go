package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// completionLimit bounds the time that a completion takes after the tab key was pressed.
const completionLimit = 2 * time.Second

// live lists the choices for a word of the command line. A choice may be followed by a tab
// character and a description.
type live func(context.Context, *cmdutil.Connection) ([]string, error)

// part lists items of a sandbox, such as its contexts, in the same form as live.
type part func(context.Context, *sandbox.Sandbox) ([]string, error)

// liveArgument describes the completion of a command's arguments.
type liveArgument struct {
	list     live
	isMany   bool // every argument has the same choices
	ofPath   bool // the choice is followed by a colon and a path
	of       part // lists the choices for the arguments after a sandbox; nil if no arguments or only more sandboxes follow
	andFiles bool // files of this machine are choices, too
}

// liveArguments describes the completion of the arguments of a command.
func liveArguments(command string) (liveArgument, bool) {
	switch command {
	case "info", "exec", "connect", "fork", "logs", "metrics", "events", "port-forward", "ssh-proxy", "proc ls", "code repl", "open", "wait", "timeout", "network get", "snapshot create", "snapshot ls":
		return liveArgument{list: sandboxes()}, true
	case "proc attach":
		return liveArgument{list: sandboxes(), of: processes}, true
	case "proc kill":
		return liveArgument{list: sandboxes(), of: processes, isMany: true}, true
	case "kill", "ssh-config":
		return liveArgument{list: sandboxes(), isMany: true}, true
	case "pause":
		return liveArgument{list: sandboxes(api.StateRunning), isMany: true}, true
	case "network set", "resize":
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

// addLiveCompletion lets shells complete the names of objects of the service, and the values of
// flags. Call it only when a shell asks for a completion, because it takes time.
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
	each(root, func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if values := choicesOf(flag); values != nil {
				complete(cmd, flag.Name, fixed(values...))
			}
		})
		if argument, ok := liveArguments(strings.TrimPrefix(cmd.CommandPath(), "e2bctl ")); ok {
			cmd.ValidArgsFunction = argument.complete(f)
		}
		if flags := cmd.LocalNonPersistentFlags(); flags.Lookup("state") != nil {
			complete(cmd, "state", fixed(string(api.StateRunning), string(api.StatePaused)))
		}
		for _, flag := range []string{"template", "new"} {
			complete(cmd, flag, liveArgument{list: templates, isMany: true}.complete(f))
		}
		if cmd.Name() == "wait" {
			complete(cmd, "for", cobra.FixedCompletions([]string{"running", "paused", "stopped", "port=", "file="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
		}
		complete(cmd, "context", completeContexts(f))
		complete(cmd, "sandbox", liveArgument{list: sandboxes(), isMany: true}.complete(f))
	})
}

// choicesOf returns the values of a flag that accepts only a fixed set of values. The name of the
// flag's type lists the values, such as kill|pause. choicesOf returns nil for other flags.
func choicesOf(flag *pflag.Flag) []string {
	if kind := flag.Value.Type(); strings.Contains(kind, "|") {
		return strings.Split(kind, "|")
	}
	return nil
}

func (a liveArgument) complete(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if a.andFiles {
			directive = cobra.ShellCompDirectiveDefault
		}
		most := 1
		if a.of != nil {
			most = 2
		}
		if !a.isMany && len(args) >= most || a.ofPath && strings.Contains(word, ":") {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		list := a.list
		if a.of != nil && len(args) > 0 {
			list = a.of.listIn(args[0])
		}
		var choices []string
		for _, choice := range f.Complete(ctx, cmd, list) {
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

// sandboxes returns a function that lists the sandboxes in the given states. If no state is given,
// the function lists all sandboxes.
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

// listIn returns a function that lists the items of a running sandbox. For a paused sandbox the
// function returns an empty list, and does not resume the sandbox.
func (p part) listIn(id string) live {
	return func(ctx context.Context, conn *cmdutil.Connection) (choices []string, err error) {
		info, err := conn.Info(ctx, id)
		if err != nil || info.State != api.StateRunning {
			return nil, err
		}
		sb, err := conn.Connect(ctx, id)
		if err != nil {
			return nil, err
		}
		defer cmdutil.Closing(sb, &err) // connected to, not created here: it keeps running
		return p(ctx, sb)
	}
}

func processes(ctx context.Context, sb *sandbox.Sandbox) (choices []string, err error) {
	all, err := sb.Commands.List(ctx, nil)
	for _, p := range all {
		choices = append(choices, strconv.Itoa(p.PID)+"\t"+strings.Join(append([]string{p.Cmd}, p.Args...), " "))
	}
	return choices, err
}

// completeContexts completes the contexts of the sandbox that the command line names.
func completeContexts(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if id := cmd.Flag("sandbox").Value.String(); id != "" {
			args = []string{id}
		}
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return liveArgument{list: part(contexts).listIn(args[0]), isMany: true}.complete(f)(cmd, nil, word)
	}
}

func contexts(ctx context.Context, sb *sandbox.Sandbox) (choices []string, err error) {
	all, err := sb.Contexts.List(ctx)
	for _, c := range all {
		choices = append(choices, string(c.ID)+"\t"+c.Language)
	}
	return choices, err
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
