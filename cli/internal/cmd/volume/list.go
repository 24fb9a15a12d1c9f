package volume

import (
	"context"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

func newCmdList(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "ls [<volume>:<directory>]",
		Aliases: []string{"list"},
		Short:   "List volumes, or what is in one",
		Long:    "List volumes or, with the name of one and a directory in it, what is there. -q prints IDs or paths only.",
		Example: `  e2bctl volume ls --local
  e2bctl volume ls --local data:/results`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if _, _, ok := cutPath(args[0]); ok {
					return nil
				}
			}
			return cmdutil.Wants("nothing, or one directory as <volume>:<directory>", cobra.NoArgs)(cmd, args)
		},
	}, func(ctx context.Context, volumes *sandbox.Volumes, args []string) error {
		if len(args) == 0 {
			return listVolumes(ctx, f, volumes)
		}
		name, dir, _ := cutPath(args[0])
		v, err := volumes.Open(ctx, name)
		if err != nil {
			return err
		}
		entries, err := v.List(ctx, dir, nil)
		if err != nil {
			return err
		}
		return writeEntries(f, entries)
	})
}

func listVolumes(ctx context.Context, f *cmdutil.Factory, volumes *sandbox.Volumes) error {
	all, err := volumes.List(ctx)
	if err != nil {
		return err
	}
	views, rows, ids := make([]volumeView, len(all)), make([][]string, len(all)), make([]string, len(all))
	for i, v := range all {
		views[i], rows[i], ids[i] = volumeView{v.ID, v.Name}, []string{v.ID, v.Name}, v.ID
	}
	return f.WriteList(cmdutil.List{Kind: "volumes", Views: views, Names: ids, Header: []string{"ID", "NAME"}, Rows: rows})
}

// entryView is an entry of a volume as -o json shows it, with the field names of the API.
type entryView struct {
	Name     string              `json:"name"`
	Type     api.VolumeEntryType `json:"type"`
	Path     string              `json:"path"`
	Size     int64               `json:"size"`
	Mode     uint32              `json:"mode"`
	UID      uint32              `json:"uid"`
	GID      uint32              `json:"gid"`
	Modified time.Time           `json:"mtime"`
	Target   string              `json:"target,omitempty"`
}

func writeEntries(f *cmdutil.Factory, entries []sandbox.VolumeEntry) error {
	now := time.Now()
	views, rows, paths := make([]entryView, len(entries)), make([][]string, len(entries)), make([]string, len(entries))
	for i, e := range entries {
		views[i] = entryView{e.Name, e.Type, e.Path, e.Size, e.Mode, e.UID, e.GID, e.ModifiedAt.UTC(), e.Target}
		paths[i] = e.Path
		rows[i] = []string{
			modeOf(e), strconv.FormatUint(uint64(e.UID), 10), strconv.FormatUint(uint64(e.GID), 10), strconv.FormatInt(e.Size, 10),
			cmdutil.Moment(e.ModifiedAt, now, f.IO.OutIsTerminal), e.Name,
		}
	}
	return f.WriteList(cmdutil.List{
		Kind: "files", Views: views, Names: paths, Header: []string{"MODE", "UID", "GID", "SIZE", "MODIFIED", "NAME"}, Rows: rows, LongNames: true,
		Spare: []string{"GID", "UID"},
	})
}

// modeOf returns the type and the permissions of an entry in the form of ls.
func modeOf(e sandbox.VolumeEntry) string {
	letter := map[api.VolumeEntryType]string{api.VolumeDirectory: "d", api.VolumeSymlink: "l", api.VolumeFile: "-"}[e.Type]
	if letter == "" {
		letter = "?"
	}
	return letter + strings.TrimPrefix(fs.FileMode(e.Mode&0o777).String(), "-")
}
