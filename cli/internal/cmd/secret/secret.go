// Package secret implements e2bctl secret: values that the service puts into requests of sandboxes,
// and that no sandbox can read.
package secret

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// NewCmdSecret returns e2bctl secret.
func NewCmdSecret(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.NewGroup("secret", "Manage secrets: values that sandboxes use and never see", newCmdCreate(f), newCmdList(f), newCmdSet(f), newCmdDelete(f))
}

// secretView is a secret as -o json shows it, with the field names of the API.
type secretView struct {
	ID        string            `json:"secretID"`
	Name      string            `json:"name"`
	Version   int               `json:"currentVersion"`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt time.Time         `json:"createdAt"`
	UpdatedAt time.Time         `json:"updatedAt"`
}

func viewOf(s sandbox.Secret) secretView {
	return secretView{s.ID, s.Name, s.Version, s.Metadata, s.CreatedAt.UTC(), s.UpdatedAt.UTC()}
}

// command returns a command that makes calls about secrets.
func command(f *cmdutil.Factory, cmd *cobra.Command, run func(ctx context.Context, secrets *sandbox.Secrets, args []string) error) *cobra.Command {
	return prepared(f, cmd, nil, run)
}

// prepared is like [command], but the command calls prepare before it starts a local cloud. A nil
// prepare is not called.
func prepared(f *cmdutil.Factory, cmd *cobra.Command, prepare func() error, run func(ctx context.Context, secrets *sandbox.Secrets, args []string) error) *cobra.Command {
	var isLocal bool
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if prepare != nil {
			if err := prepare(); err != nil {
				return err
			}
		}
		open, err := f.Opener(cmd, isLocal, cmdutil.LocalStarting, nil)
		if err != nil {
			return err
		}
		conn, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer cmdutil.Closing(conn, &err)
		return run(cmd.Context(), conn.Secrets, args)
	}
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// aboutValue is the help text about the sources of a value.
const aboutValue = `The value comes from stdin or from a file, without the line
break at its end: arguments of commands can be seen by every user of the machine.`

func newCmdCreate(f *cmdutil.Factory) *cobra.Command {
	return setting(f, &cobra.Command{
		Use:   "create <name>",
		Short: "Store a secret and print its ID",
		Long: `Store a secret and print its ID. The name has letters, digits, - and _, and no
other secret has it. ` + aboutValue + `
Nobody can read it back: sandboxes with rules for headers use it.`,
		Example: `  e2bctl secret create openai --local < key.txt
  e2bctl secret create openai --local --file key.txt`,
		Args: cmdutil.Wants("the name of the secret", cobra.ExactArgs(1)),
	}, (*sandbox.Secrets).Create)
}

func newCmdSet(f *cmdutil.Factory) *cobra.Command {
	return setting(f, &cobra.Command{
		Use:   "set <secret>",
		Short: "Give a secret another value",
		Long: `Give a secret, by its name or ID, another value, and print its ID. Requests of
sandboxes that are sent from then on have it. ` + aboutValue,
		Example: `  e2bctl secret set openai --local < key.txt`,
		Args:    cmdutil.Wants("the name or ID of the secret", cobra.ExactArgs(1)),
	}, (*sandbox.Secrets).Update)
}

// setting returns a command that sets the value of a secret.
func setting(f *cmdutil.Factory, cmd *cobra.Command, set func(*sandbox.Secrets, context.Context, string, *sandbox.SecretParams) (*sandbox.Secret, error)) *cobra.Command {
	var file string
	var value string
	cmd = prepared(f, cmd, func() (err error) {
		value, err = readValue(cmd.Context(), cmd, f.IO, file)
		return err
	}, func(ctx context.Context, secrets *sandbox.Secrets, args []string) error {
		s, err := set(secrets, ctx, args[0], &sandbox.SecretParams{Value: value})
		if err != nil {
			return err
		}
		if f.JSON() {
			return cmdutil.WriteJSON(f.IO.Out, viewOf(*s))
		}
		_, err = fmt.Fprintln(f.IO.Out, cmdutil.Printable(s.ID))
		return err
	})
	cmd.Flags().StringVar(&file, "file", "", "read the value from this file instead of stdin")
	return cmd
}

// maxValue bounds a value, in bytes. Services accept only much shorter values.
const maxValue = 1 << 20

// readValue reads a value from a file, or from stdin if file is "".
func readValue(ctx context.Context, cmd *cobra.Command, streams *cmdutil.IOStreams, file string) (string, error) {
	var from io.ReadCloser
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		from = f
	} else if streams.InIsTerminal {
		return "", cmdutil.Usagef(cmd, "the value would be shown on the terminal: pass it on stdin (`< key.txt`), or by --file")
	} else {
		from = streams.Reading(ctx)
	}
	defer from.Close()
	text, err := io.ReadAll(io.LimitReader(from, maxValue+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the value: %w", err)
	case len(text) > maxValue:
		return "", cmdutil.Usagef(cmd, "the value has more than %d bytes", maxValue)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" {
		return "", cmdutil.Usagef(cmd, "the value is empty: pass it on stdin (`< key.txt`), or by --file")
	}
	return value, nil
}

func newCmdList(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List secrets, without their values",
		Long:    "List secrets, newest first, without their values. -q prints their IDs only.",
		Example: `  e2bctl secret ls --local
  e2bctl secret ls -o json`,
		Args: cmdutil.NoArguments,
	}, func(ctx context.Context, secrets *sandbox.Secrets, _ []string) error {
		views, ids, rows, now := []secretView{}, []string{}, [][]string{}, time.Now()
		for s, err := range secrets.List(ctx, nil) {
			if err != nil {
				return err
			}
			views, ids = append(views, viewOf(s)), append(ids, s.ID)
			rows = append(rows, []string{
				s.ID, s.Name, strconv.Itoa(s.Version),
				cmdutil.Moment(s.CreatedAt, now, f.IO.OutIsTerminal), cmdutil.Moment(s.UpdatedAt, now, f.IO.OutIsTerminal),
			})
		}
		return f.WriteList(cmdutil.List{
			Kind: "secrets", Views: views, Names: ids, Header: []string{"ID", "NAME", "VERSION", "CREATED", "UPDATED"}, Rows: rows,
		})
	})
}

func newCmdDelete(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:     "rm <secret>...",
		Aliases: []string{"delete"},
		Short:   "Delete secrets",
		Long:    "Delete secrets, by their names or IDs, and print these. Requests of sandboxes that\nneed one fail from then on.",
		Example: `  e2bctl secret rm --local openai`,
		Args:    cmdutil.Wants("the names or IDs of secrets", cobra.MinimumNArgs(1)),
	}, func(ctx context.Context, secrets *sandbox.Secrets, args []string) error {
		return f.EachNamed(args, func(name string) error { return secrets.Delete(ctx, name) })
	})
}
