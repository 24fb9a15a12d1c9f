package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

func newCmdStatus(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the local clouds that run",
		Long: `Show each local cloud of this user that runs: its address, process, engine and
isolation, its sandboxes, its state directory and log, and the limits that nothing
enforces on this machine. Those that run beside the first one follow it.

The status is 0 if one runs, 3 if none does, and 7 if one does not answer in 5 seconds.`,
		Example: `  e2bctl local status
  e2bctl local status -q || e2bctl local up --background
  e2bctl local status --jq '.[].stateDir'`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return statusRun(cmd.Context(), f) },
	}
}

// statusView is a running local cloud as -o json shows it. It does not contain the key.
type statusView struct {
	URL           string    `json:"url"`
	Domain        string    `json:"domain"`
	PID           int       `json:"pid"`
	Since         time.Time `json:"since"`
	Engine        string    `json:"engine"`
	Isolation     string    `json:"isolation"`
	IsolationNote string    `json:"isolationNote,omitempty"`
	// the number of running sandboxes; null if the cloud does not answer
	Running     *int     `json:"running"`
	Paused      *int     `json:"paused"`
	StateDir    string   `json:"stateDir,omitempty"`
	Log         string   `json:"log,omitempty"`
	Ask         bool     `json:"ask"`
	NotEnforced []string `json:"notEnforced"`
	Notes       []string `json:"notes"` // notes about the cloud's Python and its state directory
}

func statusRun(ctx context.Context, f *cmdutil.Factory) error {
	records, err := localcloud.Running()
	views := make([]statusView, len(records))
	for i, record := range records {
		var silent error
		views[i], silent = statusOf(ctx, record)
		err = errors.Join(err, silent)
	}
	if len(views) == 0 && err == nil {
		err = noneRunsError{}
	}
	return errors.Join(writeStatus(f, views), err)
}

// noneRunsError means that no local cloud runs. It matches [fs.ErrNotExist] in errors.Is, which
// determines the exit status.
type noneRunsError struct{}

func (noneRunsError) Error() string        { return "no local cloud is running" }
func (noneRunsError) Hint() string         { return "e2bctl local up --background starts one." }
func (noneRunsError) Is(target error) bool { return target == fs.ErrNotExist }

// statusLimit bounds the wait for a local cloud's list of its sandboxes.
const statusLimit = 5 * time.Second

// statusOf returns the status of a local cloud, and asks the cloud for its sandboxes. If it returns
// an error, only the numbers of sandboxes are missing from the status.
func statusOf(ctx context.Context, r localcloud.Record) (statusView, error) {
	v := statusView{
		URL: r.URL, Domain: r.Domain, PID: r.PID, Since: r.Since, Engine: r.Engine, Isolation: r.Isolation, IsolationNote: r.IsolationNote,
		StateDir: r.State, Log: r.Log, Ask: r.Ask, NotEnforced: append([]string{}, r.NotEnforced...), Notes: []string{},
	}
	if r.PythonNote != "" {
		v.Notes = append(v.Notes, r.PythonNote)
	}
	v.Notes = append(v.Notes, r.StateNotes...)
	counts, err := countSandboxes(ctx, r)
	if err != nil {
		return v, fmt.Errorf("the local cloud on %s, process %d, does not answer: %w", r.URL, r.PID, err)
	}
	v.Running, v.Paused = new(counts[sandbox.StateRunning]), new(counts[sandbox.StatePaused])
	return v, nil
}

// countSandboxes returns the number of sandboxes in each state.
func countSandboxes(ctx context.Context, r localcloud.Record) (counts map[sandbox.SandboxState]int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	client, err := sandbox.NewClient(r.Option())
	if err != nil {
		return nil, err
	}
	defer cmdutil.Closing(client, &err)
	counts = map[sandbox.SandboxState]int{}
	for info, err := range client.List(ctx, &sandbox.ListParams{States: []api.SandboxState{api.StateRunning, api.StatePaused}}) {
		if err != nil {
			return nil, err
		}
		counts[info.State]++
	}
	return counts, nil
}

func writeStatus(f *cmdutil.Factory, views []statusView) error {
	if f.JSON() {
		return cmdutil.WriteJSON(f.IO.Out, views)
	}
	for i, v := range views {
		if f.Quiet() {
			if _, err := fmt.Fprintln(f.IO.Out, cmdutil.Printable(v.URL)); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			if _, err := fmt.Fprintln(f.IO.Out); err != nil {
				return err
			}
		}
		if err := cmdutil.WriteTable(f.IO.Out, f.IO.OutWidth, []string{"FIELD", "VALUE"}, v.rows(f.IO.OutIsTerminal)); err != nil {
			return err
		}
	}
	return nil
}

func (v *statusView) rows(terminal bool) [][]string {
	sandboxes := "unknown"
	if v.Running != nil && v.Paused != nil {
		sandboxes = fmt.Sprintf("%d running, %d paused", *v.Running, *v.Paused)
	}
	state := v.StateDir
	if state == "" {
		state = "none: nothing outlives it"
	}
	log := v.Log
	if log == "" {
		log = "none: it runs in the foreground"
	}
	rows := [][]string{
		{"URL", v.URL},
		{"Process", strconv.Itoa(v.PID)},
		{"Since", cmdutil.Moment(v.Since, time.Now(), terminal)},
		{"Engine", v.Engine},
		{"Isolation", v.Isolation},
		{"Sandboxes", sandboxes},
		{"State", state},
		{"Log", log},
	}
	if v.Ask {
		rows = append(rows, []string{"Hosts", "its terminal asks before one is reached"})
	}
	if v.IsolationNote != "" {
		rows = append(rows, []string{"Less isolated", v.IsolationNote})
	}
	for _, what := range v.NotEnforced {
		rows = append(rows, []string{"Not enforced", what})
	}
	for _, note := range v.Notes {
		rows = append(rows, []string{"Note", note})
	}
	return rows
}

// notEnforced returns the limits of sandboxes that nothing enforces, each with the reason.
func notEnforced(report local.Report) []string {
	var all []string
	for _, limit := range []struct{ name, how string }{
		{"memory", report.Memory}, {"processors", report.CPU}, {"processes", report.Processes}, {"disk", report.Disk},
	} {
		if why, ok := strings.CutPrefix(limit.how, "not enforced"); ok {
			all = append(all, limit.name+why)
		}
	}
	return all
}
