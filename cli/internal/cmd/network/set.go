package network

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

func newCmdSet(f *cmdutil.Factory) *cobra.Command {
	var rules cmdutil.NetworkRules
	var internet toggle
	cmd := &cobra.Command{
		Use:   "set <id>",
		Short: "Change what a running sandbox may reach",
		Long: `Change the rules for the connections of a running sandbox, and print its ID. A list
that is given replaces the present one, and "" clears it. Rules that no flag names stay: the
other list, the headers and the rest. The service takes only all rules together, so they are
read first: a change that another program makes at that moment is lost. The local cloud cuts
open connections; a service may leave them open.

--internet off denies everything that is not allowed. Names in --allow need it. A
sandbox that was created with --no-internet has access after --internet on until it is
paused, and each later change needs --internet on again.`,
		Example: `  e2bctl network set "$ID" --internet off --allow pypi.org,files.pythonhosted.org
  e2bctl network set "$ID" --internet on --allow "" --deny 10.0.0.0/8`,
	}
	set := command(f, cmd, func() error { return check(cmd, rules, internet) }, func(ctx context.Context, conn *cmdutil.Connection, id string) error {
		if err := conn.UpdateNetwork(ctx, id, &sandbox.UpdateNetworkParams{AllowOut: rules.Allow, DenyOut: rules.Deny, Internet: internet.on}); err != nil {
			return err
		}
		if !f.JSON() {
			_, err := fmt.Fprintln(f.IO.Out, cmdutil.Printable(id))
			return err
		}
		info, err := conn.Info(ctx, id)
		if err != nil {
			return err
		}
		return cmdutil.WriteJSON(f.IO.Out, viewOf(info))
	})
	flags := set.Flags()
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name {
		case "allow-out": // the names that e2bctl create has
			name = "allow"
		case "deny-out":
			name = "deny"
		}
		return pflag.NormalizedName(name)
	})
	rules.Add(flags, "allow", "deny", "--internet off")
	flags.Var(&internet, "internet", "whether it reaches what no rule names")
	return set
}

// check refuses a command line that changes nothing or contradicts itself.
func check(cmd *cobra.Command, rules cmdutil.NetworkRules, internet toggle) error {
	switch {
	case rules.Allow == nil && rules.Deny == nil && internet.on == nil:
		return cmdutil.Usagef(cmd, "want a change: --allow, --deny or --internet")
	case internet.on != nil && *internet.on && slices.Contains(rules.Deny, sandbox.AllTraffic):
		return cmdutil.Usagef(cmd, "--deny %s is --internet off: leave one of them out", sandbox.AllTraffic)
	}
	return nil
}

// toggle is a flag value that accepts on or off. Its field on is nil if the flag was not given.
type toggle struct{ on *bool }

func (*toggle) Type() string { return "on|off" }

func (t *toggle) String() string {
	switch {
	case t.on == nil:
		return ""
	case *t.on:
		return "on"
	}
	return "off"
}

func (t *toggle) Set(value string) error {
	if value != "on" && value != "off" {
		return errors.New("want on or off")
	}
	t.on = new(value == "on")
	return nil
}
