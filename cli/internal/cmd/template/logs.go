package template

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// buildArguments checks the arguments of commands about one build.
var buildArguments = cmdutil.Wants("the ID or name of a template, and one build of it at most", cobra.RangeArgs(1, 2))

// findBuild returns the build that the arguments name. If they name only a template, it returns the
// template's newest build.
func findBuild(ctx context.Context, templates *api.TemplateService, args []string) (templateID, buildID string, err error) {
	detail, err := find(ctx, templates, args[0])
	switch {
	case err != nil:
		return "", "", err
	case len(args) == 2:
		return detail.ID, args[1], nil
	case len(detail.Builds) == 0:
		return "", "", fmt.Errorf("template %s has no builds", cmdutil.Printable(args[0]))
	}
	return detail.ID, detail.Builds[0].ID, nil
}

// statusView is the progress of a build as -o json shows it, with the field names of the API.
type statusView struct {
	TemplateID string       `json:"templateID"`
	BuildID    string       `json:"buildID"`
	Status     string       `json:"status"`
	Reason     *failureView `json:"reason,omitempty"`
}

type failureView struct {
	Message string `json:"message"`
	Step    string `json:"step,omitempty"`
}

func newCmdStatus(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:   "status <template> [build]",
		Short: "Show how far a build of a template is",
		Long: `Show how far a build of a template is, the newest one unless another is named: waiting,
building, ready or error. -q prints that word only. The exit status is 0 for each of
them; e2bctl template logs -f waits, and fails if the build does.`,
		Example: `  e2bctl template status web
  e2bctl template status web -q`,
		Args: buildArguments,
	}, func(ctx context.Context, templates *api.TemplateService, args []string) error {
		templateID, buildID, err := findBuild(ctx, templates, args)
		if err != nil {
			return err
		}
		state, err := templates.BuildStatus(ctx, templateID, buildID, nil)
		if err != nil {
			return err
		}
		return writeStatus(f, statusViewOf(templateID, buildID, state))
	})
}

func statusViewOf(templateID, buildID string, state *api.BuildState) statusView {
	v := statusView{TemplateID: templateID, BuildID: buildID, Status: string(state.Status)}
	if state.Failure != nil {
		v.Reason = &failureView{state.Failure.Message, state.Failure.Step}
	}
	return v
}

func writeStatus(f *cmdutil.Factory, v statusView) error {
	switch {
	case f.JSON():
		return cmdutil.WriteJSON(f.IO.Out, v)
	case f.Quiet():
		_, err := fmt.Fprintln(f.IO.Out, cmdutil.Printable(v.Status))
		return err
	}
	rows := [][]string{{"Template", v.TemplateID}, {"Build", v.BuildID}, {"Status", v.Status}}
	if v.Reason != nil {
		if v.Reason.Step != "" {
			rows = append(rows, []string{"Step", v.Reason.Step})
		}
		rows = append(rows, []string{"Reason", v.Reason.Message})
	}
	return cmdutil.WriteTable(f.IO.Out, f.IO.OutWidth, []string{"FIELD", "VALUE"}, rows)
}

func newCmdLogs(f *cmdutil.Factory) *cobra.Command {
	var follow bool
	cmd := f.Connected(&cobra.Command{
		Use:     "logs <template> [build]",
		Aliases: []string{"log"},
		Short:   "Print the log of a build of a template",
		Long: `Print the log of a build of a template, the newest one unless another is named. With
-f it goes on until the build ends, and the exit status is 1 if it failed. -o json
prints one object a line.`,
		Example: `  e2bctl template logs web
  e2bctl template logs -f web`,
		Args: buildArguments,
	}, cmdutil.LocalRunning, func(ctx context.Context, conn *cmdutil.Connection, args []string) error {
		client := conn.API()
		templateID, buildID, err := findBuild(ctx, client.Templates, args)
		if err != nil {
			return err
		}
		print := printerOf(f)
		if follow {
			return template.Wait(ctx, client.Templates, &template.Built{TemplateID: templateID, BuildID: buildID}, &template.WaitParams{Log: print})
		}
		for offset := 0; ; {
			state, err := client.Templates.BuildStatus(ctx, templateID, buildID, &api.BuildStatusParams{LogsOffset: offset})
			if err != nil || len(state.Logs) == 0 {
				return err
			}
			offset += len(state.Logs)
			for _, e := range state.Logs {
				print(e)
			}
		}
	})
	f.AddFollowFlag(cmd, &follow, "follow", "f", "go on until the build ends")
	return cmd
}

// printerOf returns a function that prints the lines of a log to stdout, in the output format of
// the command.
func printerOf(f *cmdutil.Factory) func(api.BuildLogEntry) {
	return func(e api.BuildLogEntry) {
		if f.JSON() {
			text, _ := json.Marshal(entryViewOf(e)) // texts and a time: it cannot fail
			fmt.Fprintf(f.IO.Out, "%s\n", text)
			return
		}
		fmt.Fprintln(f.IO.Out, lineOf(e, true))
	}
}
