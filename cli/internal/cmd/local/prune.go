package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
)

type pruneOptions struct {
	IO        *cmdutil.IOStreams
	JSON      bool
	Quiet     bool
	Report    func([]cmdutil.Outcome) error
	State     string
	IDs       []string
	All       bool
	OlderThan cmdutil.Duration
	Yes       bool
	Cache     bool
}

func newCmdPrune(f *cmdutil.Factory) *cobra.Command {
	opts := &pruneOptions{IO: f.IO, Report: f.Report}
	cmd := &cobra.Command{
		Use:   "prune [<id>...]",
		Short: "List what the state directory keeps, and remove what is not needed",
		Long: `List the paused sandboxes that the state directory of the local cloud keeps, with
the time of their pause and the space that their files take. With IDs, or with --all,
remove them: they cannot be resumed then. --all lists them and asks first; without a
terminal it needs --yes. The IDs of removed sandboxes are printed.

Listed with them is the space that snapshots, templates, the cache of builds and volumes
take. --cache removes that cache, so that all steps of builds run again; e2bctl snapshot
rm, template rm and volume rm remove the others.

It does not matter whether the local cloud runs. Where it does not, what one that was
killed has left half done is removed, too.`,
		Example: `  e2bctl local prune
  e2bctl local prune "$ID"
  e2bctl local prune --all --older-than 720h --yes
  e2bctl local prune --cache`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet, opts.IDs = f.JSON(), f.Quiet(), args
			switch {
			case opts.All && len(args) > 0:
				return cmdutil.Usagef(cmd, "want the IDs of sandboxes, or --all")
			case opts.OlderThan != 0 && len(args) > 0:
				return cmdutil.Usagef(cmd, "--older-than selects among all: leave out the IDs")
			case opts.All && !opts.Yes && !f.IO.InIsTerminal:
				return cmdutil.Usagef(cmd, "--all asks first, but there is no terminal: add --yes")
			}
			return pruneRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.State, "state-dir", "", "look into `DIR`; \"\": that of the local cloud that runs, or of the next")
	flags.BoolVarP(&opts.All, "all", "a", false, "remove all of them")
	flags.Var(&opts.OlderThan, "older-than", "only those that were paused longer ago")
	flags.BoolVar(&opts.Cache, "cache", false, "remove cached steps of builds, their archives, and container images")
	flags.BoolVarP(&opts.Yes, "yes", "y", false, "do not ask")
	return cmd
}

// keeper gives access to the data that outlives a local cloud, such as paused sandboxes. It uses
// the running cloud or, if none runs, the state directory.
type keeper struct {
	dir        string
	kept       []localcloud.Kept
	space      localcloud.Space
	volumes    localcloud.Taken
	remove     func(ctx context.Context, id string) error
	emptyCache func(ctx context.Context) error
	close      func() error
}

func pruneRun(ctx context.Context, opts *pruneOptions) (err error) {
	k, err := openKeeper(ctx, opts.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	if opts.Cache {
		if err := k.prune(ctx, opts); err != nil || len(opts.IDs) == 0 && !opts.All {
			return err
		}
	}
	if len(opts.IDs) > 0 {
		return k.removeAll(ctx, opts, opts.IDs)
	}
	kept := k.kept
	if opts.OlderThan != 0 {
		oldest := time.Now().Add(-time.Duration(opts.OlderThan))
		kept = slices.DeleteFunc(kept, func(v localcloud.Kept) bool { return v.Saved.After(oldest) })
	}
	if !opts.All {
		return k.list(opts, kept)
	}
	if len(kept) == 0 {
		if !opts.Quiet {
			fmt.Fprintf(opts.IO.Err, "No paused sandboxes in %s.\n", cmdutil.Printable(k.dir))
		}
		return nil
	}
	if !opts.Yes {
		if err := writeKept(opts.IO.Err, opts.IO.ErrWidth, kept, opts.IO.ErrIsTerminal); err != nil {
			return err
		}
		if err := cmdutil.Confirm(ctx, opts.IO, fmt.Sprintf("Remove these %d from %s?", len(kept), cmdutil.Printable(k.dir))); err != nil {
			return err
		}
	}
	ids := make([]string, len(kept))
	for i, v := range kept {
		ids[i] = v.ID
	}
	return k.removeAll(ctx, opts, ids)
}

// openKeeper returns the keeper for the data of a state directory.
func openKeeper(ctx context.Context, dir string) (*keeper, error) {
	dir, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	dir, record, _, err := stateOf(dir)
	if err != nil {
		return nil, err
	}
	if dir == record.State {
		return runningKeeper(ctx, record)
	}
	state, err := localcloud.ReadState(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &keeper{
		dir: dir, kept: state.Kept, space: state.Space, volumes: volumesOf(state), close: func() error { return nil },
		remove:     func(ctx context.Context, id string) error { return localcloud.RemoveKept(ctx, dir, id) },
		emptyCache: func(ctx context.Context) error { return localcloud.EmptyCache(ctx, dir) },
	}, nil
}

func volumesOf(state localcloud.State) localcloud.Taken {
	return localcloud.Taken{Count: state.Volumes.Count, Bytes: state.Volumes.Bytes}
}

// runningKeeper returns a keeper that asks the running local cloud, because the cloud's process has
// the state directory open. A sandbox with files in that directory is not necessarily paused: a
// resumed sandbox still has the files of its last pause.
func runningKeeper(ctx context.Context, record localcloud.Record) (_ *keeper, err error) {
	state, err := localcloud.ReadState(ctx, record.State)
	if err != nil {
		return nil, err
	}
	client, err := sandbox.NewClient(record.Option())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, client.Close())
		}
	}()
	k := &keeper{dir: record.State, volumes: volumesOf(state), emptyCache: record.EmptyCache, close: client.Close}
	if k.space, err = record.Space(ctx); err != nil {
		return nil, err
	}
	for info, err := range client.List(ctx, &sandbox.ListParams{States: []api.SandboxState{api.StatePaused}}) {
		if err != nil {
			return nil, err
		}
		view := localcloud.Kept{ID: info.ID, Saved: info.EndAt.UTC()}
		for _, files := range state.Kept {
			if files.ID == info.ID {
				view.Bytes = files.Bytes
			}
		}
		k.kept = append(k.kept, view)
	}
	k.remove = func(ctx context.Context, id string) error {
		if !slices.ContainsFunc(k.kept, func(v localcloud.Kept) bool { return v.ID == id }) {
			return &localcloud.NotKeptError{Dir: k.dir, ID: id}
		}
		return client.Kill(ctx, id)
	}
	return k, nil
}

// removeAll removes sandboxes. If ids contains an id several times, removeAll removes that sandbox
// once.
func (k *keeper) removeAll(ctx context.Context, opts *pruneOptions, ids []string) error {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	outcomes := make([]cmdutil.Outcome, len(ids))
	for i, id := range ids {
		err := k.remove(ctx, id)
		if opts.All && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, api.ErrNotFound)) {
			err = nil // it ended after the listing
		}
		outcomes[i] = cmdutil.Outcome{Name: id, Err: err}
	}
	return opts.Report(outcomes)
}

// prune removes the cache of builds.
func (k *keeper) prune(ctx context.Context, opts *pruneOptions) error {
	if err := k.emptyCache(ctx); err != nil {
		return err
	}
	bytes := k.space.Cache.Bytes + k.space.Uploads.Bytes
	switch {
	case opts.JSON && len(opts.IDs) == 0 && !opts.All: // in other cases the document lists the sandboxes
		return cmdutil.WriteJSON(opts.IO.Out, struct {
			StateDir     string `json:"stateDir"`
			RemovedBytes int64  `json:"removedBytes"`
		}{k.dir, bytes})
	case !opts.Quiet:
		fmt.Fprintf(opts.IO.Err, "removed %s of cached steps and archives of builds from %s\n", localcloud.Size(bytes), cmdutil.Printable(k.dir))
	}
	return nil
}

// keptView is the kept data, as -o json shows it.
type keptView struct {
	StateDir  string            `json:"stateDir"`
	Sandboxes []localcloud.Kept `json:"sandboxes"`
	localcloud.Space
	Volumes localcloud.Taken `json:"volumes"`
}

// list writes the sandboxes in kept, and the other kept data.
func (k *keeper) list(opts *pruneOptions, kept []localcloud.Kept) error {
	switch {
	case opts.JSON:
		return cmdutil.WriteJSON(opts.IO.Out, keptView{k.dir, append([]localcloud.Kept{}, kept...), k.space, k.volumes})
	case opts.Quiet:
		for _, v := range kept {
			if _, err := fmt.Fprintln(opts.IO.Out, cmdutil.Printable(v.ID)); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, one := range []struct {
		what string
		localcloud.Taken
	}{
		{"layers of snapshots, templates and sandboxes", k.space.Layers}, {"cached steps of builds", k.space.Cache},
		{"archives of builds", k.space.Uploads}, {"volumes", k.volumes},
	} {
		if one.Count > 0 {
			rows = append(rows, []string{one.what, strconv.Itoa(one.Count), localcloud.Size(one.Bytes)})
		}
	}
	if len(kept) == 0 && opts.IO.OutIsTerminal {
		fmt.Fprintf(opts.IO.Err, "No paused sandboxes in %s.\n", cmdutil.Printable(k.dir))
	} else if err := writeKept(opts.IO.Out, opts.IO.OutWidth, kept, opts.IO.OutIsTerminal); err != nil {
		return err
	}
	if opts.IO.OutIsTerminal && len(kept) > 0 {
		fmt.Fprintf(opts.IO.Err, "%s in %s\n", summary(kept), cmdutil.Printable(k.dir))
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(opts.IO.Out); err != nil {
		return err
	}
	return cmdutil.WriteTable(opts.IO.Out, opts.IO.OutWidth, []string{"BESIDES", "COUNT", "SIZE"}, rows)
}

// writeKept writes a table of the kept sandboxes; on a terminal its times are relative.
func writeKept(w io.Writer, width int, kept []localcloud.Kept, terminal bool) error {
	now := time.Now()
	rows := make([][]string, len(kept))
	for i, v := range kept {
		rows[i] = []string{v.ID, cmdutil.Moment(v.Saved, now, terminal), localcloud.Size(v.Bytes)}
	}
	return cmdutil.WriteTable(w, width, []string{"ID", "PAUSED", "SIZE"}, rows)
}
