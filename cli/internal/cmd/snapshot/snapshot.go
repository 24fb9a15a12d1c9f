// Package snapshot implements e2bctl snapshot: saved states of sandboxes, from which sandboxes are made.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// NewCmdSnapshot returns e2bctl snapshot.
func NewCmdSnapshot(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("snapshot", "Keep states of sandboxes, and make sandboxes from them", newCmdCreate(f), newCmdList(f), newCmdRemove(f))
}

// snapshotView is a snapshot as -o json shows it, with the field names of the API.
type snapshotView struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
	Memory     *bool    `json:"memory,omitempty"`
}

func viewOf(s sandbox.Snapshot) snapshotView {
	v := snapshotView{SnapshotID: s.ID, Names: s.Names, Memory: s.Memory}
	if v.Names == nil {
		v.Names = []string{}
	}
	return v
}

type createOptions struct {
	IO    *cmdutil.IOStreams
	JSON  bool
	Quiet bool
	Open  cmdutil.Opener
	ID    string
	Name  string
	Mode  mode
}

func newCmdCreate(f *cmdutil.Factory) *cobra.Command {
	opts := &createOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "create <id>",
		Short: "Make a snapshot of a running sandbox and print its ID",
		Long: `Make a snapshot of a running sandbox, which runs on, and print the snapshot's ID.
e2bctl create <snapshot> makes sandboxes from it, and it stays until e2bctl snapshot
rm deletes it. On the service they go on where the sandbox was, with its processes,
and so they do on the local cloud in gVisor; elsewhere the local cloud keeps the files,
and says so.`,
		Example: `  SNAPSHOT=$(e2bctl snapshot create "$ID")
  e2bctl snapshot create "$ID" --name prepared:v2
  e2bctl create prepared:v2`,
		Args: cmdutil.Wants("the ID of one sandbox", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet, opts.ID = f.JSON(), f.Quiet(), args[0]
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return createRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&opts.Name, "name", "n", "", "give it the `NAME`, or NAME:TAG")
	flags.Var(&opts.Mode, "mode", "what is kept: full, or filesystem for the files alone\n(default what the service can keep)")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func createRun(ctx context.Context, opts *createOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	made, err := conn.Snapshot(ctx, opts.ID, &sandbox.SnapshotParams{Name: opts.Name, Mode: sandbox.SnapshotMode(opts.Mode)})
	if err != nil {
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, viewOf(*made))
	}
	if made.Memory != nil && !*made.Memory && opts.Mode == "" && !opts.Quiet {
		fmt.Fprintln(opts.IO.Err, "Only the files were kept: processes do not go on in what is made from it.")
	}
	_, err = fmt.Fprintln(opts.IO.Out, cmdutil.Printable(made.ID))
	return err
}

type listOptions struct {
	Write  func(cmdutil.List) error
	Open   cmdutil.Opener
	Params sandbox.SnapshotListParams
}

func newCmdList(f *cmdutil.Factory) *cobra.Command {
	opts := &listOptions{Write: f.WriteList}
	var isLocal bool
	cmd := &cobra.Command{
		Use:     "ls [<id>]",
		Aliases: []string{"list"},
		Short:   "List snapshots",
		Long: `List the snapshots of your key, or those of one sandbox. Templates that were built are
in e2bctl template ls. -q prints their IDs only.`,
		Example: `  e2bctl snapshot ls
  e2bctl snapshot ls --name prepared -o json
  e2bctl snapshot ls "$ID" -q | xargs e2bctl snapshot rm`,
		Args: cmdutil.Wants("the ID of one sandbox at most", cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 1 {
				opts.Params.SandboxID = args[0]
				opts.Open, err = f.SandboxOpener(cmd, isLocal, args[0])
			} else {
				opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalRunning, nil)
			}
			if err != nil {
				return err
			}
			return listRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVarP(&opts.Params.Name, "name", "n", "", "only those of this `NAME`, or NAME:TAG")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func listRun(ctx context.Context, opts *listOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	views, ids, rows := []snapshotView{}, []string{}, [][]string{}
	for s, err := range conn.Snapshots.List(ctx, &opts.Params) {
		if err != nil {
			return err
		}
		v := viewOf(s)
		views, ids, rows = append(views, v), append(ids, v.SnapshotID), append(rows, []string{v.SnapshotID, strings.Join(v.Names, ", ")})
	}
	return opts.Write(cmdutil.List{Kind: "snapshots", Views: views, Names: ids, Header: []string{"ID", "NAMES"}, Rows: rows})
}

func newCmdRemove(f *cmdutil.Factory) *cobra.Command {
	return f.Connected(&cobra.Command{
		Use:     "rm <snapshot>...",
		Aliases: []string{"delete", "dl"},
		Short:   "Delete snapshots",
		Long: `Delete snapshots and print their IDs. With one that has a name, all of that name are
deleted, whatever their tags. One that sandboxes are made from, running or paused,
is not deleted.`,
		Example: `  e2bctl snapshot rm "$SNAPSHOT"`,
		Args:    cmdutil.Wants("the IDs or names of snapshots", cobra.MinimumNArgs(1)),
	}, cmdutil.LocalRunning, func(ctx context.Context, conn *cmdutil.Connection, args []string) error {
		return f.EachNamed(args, func(id string) error { return conn.Snapshots.Delete(ctx, id) })
	})
}

// mode is a flag value that accepts the part of a sandbox's state that a snapshot keeps.
type mode sandbox.SnapshotMode

func (m *mode) Type() string   { return "full|filesystem" }
func (m *mode) String() string { return string(*m) }

func (m *mode) Set(value string) error {
	switch kept := sandbox.SnapshotMode(value); kept {
	case sandbox.SnapshotFull, sandbox.SnapshotFilesystem:
		*m = mode(kept)
		return nil
	}
	return errors.New("want full or filesystem")
}
