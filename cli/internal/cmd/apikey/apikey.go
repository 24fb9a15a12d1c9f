// Package apikey implements e2bctl api-key: the keys with which programs use a service.
package apikey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// NewCmdAPIKey returns e2bctl api-key.
func NewCmdAPIKey(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("api-key", "Manage the API keys of a service", newCmdCreate(f), newCmdDelete(f), newCmdList(f), newCmdRename(f))
}

// keyView is a key as -o json shows it, with the field names of the API.
type keyView struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Mask      string     `json:"mask"`
	CreatedAt time.Time  `json:"createdAt"`
	LastUsed  *time.Time `json:"lastUsed,omitempty"`
	Key       string     `json:"key,omitempty"` // only set for a key that was just made
}

func viewOf(k api.APIKey) keyView {
	v := keyView{ID: k.ID, Name: k.Name, Mask: k.Mask.String(), CreatedAt: k.CreatedAt.UTC(), Key: string(k.Key)}
	if k.LastUsed != nil {
		at := k.LastUsed.UTC()
		v.LastUsed = &at
	}
	return v
}

// command returns a command that makes calls about keys.
func command(f *cmdutil.Factory, cmd *cobra.Command, run func(ctx context.Context, keys *api.KeyService, args []string) error) *cobra.Command {
	return f.Connected(cmd, cmdutil.LocalRunning, func(ctx context.Context, conn *cmdutil.Connection, args []string) error {
		err := run(ctx, conn.API().Keys, args)
		if errors.Is(err, api.ErrUnauthorized) {
			return fmt.Errorf("%w; the service may manage keys only for someone who logs in, as E2B does on its website", err)
		}
		return err
	})
}

func newCmdList(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List API keys",
		Long:    "List the API keys, each with its mask: the visible part of the key. -q prints their IDs only.",
		Example: `  e2bctl api-key ls --local
  e2bctl api-key ls -o json`,
		Args: cmdutil.NoArguments,
	}, func(ctx context.Context, keys *api.KeyService, _ []string) error {
		all, err := keys.List(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		views, ids, rows := make([]keyView, len(all)), make([]string, len(all)), make([][]string, len(all))
		for i, k := range all {
			used := ""
			if k.LastUsed != nil {
				used = cmdutil.Moment(*k.LastUsed, now, f.IO.OutIsTerminal)
			}
			views[i], ids[i] = viewOf(k), k.ID
			rows[i] = []string{k.ID, k.Name, k.Mask.String(), cmdutil.Moment(k.CreatedAt, now, f.IO.OutIsTerminal), used}
		}
		return f.WriteList(cmdutil.List{
			Kind: "API keys", Views: views, Names: ids, Header: []string{"ID", "NAME", "KEY", "CREATED", "LAST USED"}, Rows: rows,
		})
	})
}

func newCmdCreate(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:   "create <name>",
		Short: "Create an API key and print it",
		Long:  "Create an API key and print it. It is not shown again: the service keeps no copy.",
		Example: `  E2B_API_KEY=$(e2bctl api-key create ci --local)
  e2bctl api-key create ci -o json`,
		Args: cmdutil.Wants("the name of the key", cobra.ExactArgs(1)),
	}, func(ctx context.Context, keys *api.KeyService, args []string) error {
		key, err := keys.Create(ctx, args[0])
		if err != nil {
			return err
		}
		f.Mask(string(key.Key))
		if f.JSON() {
			return cmdutil.WriteJSON(f.IO.Out, viewOf(*key))
		}
		if !f.Quiet() {
			fmt.Fprintf(f.IO.Err, "key %s has the ID %s; it is not shown again\n", cmdutil.Printable(key.Name), cmdutil.Printable(key.ID))
		}
		_, err = fmt.Fprintln(f.IO.Out, cmdutil.Printable(string(key.Key)))
		return err
	})
}

func newCmdRename(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "rename <id> <name>",
		Short:   "Rename an API key",
		Example: `  e2bctl api-key rename "$KEY_ID" deploy`,
		Args:    cmdutil.Wants("the ID of the key and its new name", cobra.ExactArgs(2)),
	}, func(ctx context.Context, keys *api.KeyService, args []string) error {
		return f.EachNamed(args[:1], func(id string) error { return keys.Rename(ctx, id, args[1]) })
	})
}

func newCmdDelete(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "delete <id>",
		Aliases: []string{"rm"},
		Short:   "Delete an API key",
		Long:    "Delete an API key: the service refuses it from then on.",
		Example: `  e2bctl api-key delete "$KEY_ID"`,
		Args:    cmdutil.Wants("the ID of one key", cobra.ExactArgs(1)),
	}, func(ctx context.Context, keys *api.KeyService, args []string) error {
		return f.EachNamed(args, func(id string) error { return keys.Delete(ctx, id) })
	})
}
