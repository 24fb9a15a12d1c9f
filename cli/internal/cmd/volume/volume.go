// Package volume implements e2bctl volume: files that outlive sandboxes.
package volume

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// NewCmdVolume returns e2bctl volume.
func NewCmdVolume(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("volume", "Manage volumes: files that outlive sandboxes and that they share", newCmdCopy(f), newCmdCreate(f), newCmdList(f), newCmdDelete(f))
}

// volumeView is a volume as -o json shows it, with the field names of the API.
type volumeView struct {
	ID   string `json:"volumeID"`
	Name string `json:"name"`
}

// command returns a command that makes calls about volumes.
func command(f *cmdutil.Factory, cmd *cobra.Command, run func(ctx context.Context, volumes *sandbox.Volumes, args []string) error) *cobra.Command {
	return f.Connected(cmd, cmdutil.LocalStarting, func(ctx context.Context, conn *cmdutil.Connection, args []string) error {
		return run(ctx, conn.Volumes, args)
	})
}

func newCmdCreate(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:   "create <name>",
		Short: "Create an empty volume and print its ID",
		Long: `Create an empty volume and print its ID. The name has letters, digits, - and _, and
no other volume has it; e2bctl create --volume shows the volume in a sandbox.`,
		Example: `  e2bctl volume create --local data
  ID=$(e2bctl create --local --volume data:/data)`,
		Args: cmdutil.Wants("the name of the volume", cobra.ExactArgs(1)),
	}, func(ctx context.Context, volumes *sandbox.Volumes, args []string) error {
		v, err := volumes.Create(ctx, args[0])
		if err != nil {
			return err
		}
		if f.JSON() {
			return cmdutil.WriteJSON(f.IO.Out, volumeView{v.ID(), v.Name()})
		}
		_, err = fmt.Fprintln(f.IO.Out, cmdutil.Printable(v.ID()))
		return err
	})
}

func newCmdDelete(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "rm <volume>...",
		Aliases: []string{"delete"},
		Short:   "Delete volumes and all that is in them",
		Long: `Delete volumes, by their names or IDs, and all that is in them. A local cloud
refuses it (status 5) while a sandbox, running or paused, has the volume.`,
		Example: `  e2bctl volume rm --local data`,
		Args:    cmdutil.Wants("the names or IDs of volumes", cobra.MinimumNArgs(1)),
	}, func(ctx context.Context, volumes *sandbox.Volumes, args []string) error {
		return f.EachNamed(args, func(name string) error { return volumes.Delete(ctx, name) })
	})
}

// cutPath splits NAME:PATH into its parts. ok reports whether text has that form.
func cutPath(text string) (volume, path string, ok bool) {
	volume, path, ok = strings.Cut(text, ":")
	return volume, path, ok && volume != "" && path != "" && !strings.ContainsAny(volume, `/\`)
}
