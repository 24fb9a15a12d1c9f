package cmdutil

import (
	"errors"

	"github.com/spf13/cobra"
)

// AddOfficialName adds a second name to a flag of cmd: its name in E2B's official CLI. It also adds
// the shorthand of the official CLI unless shorthand is "". Help shows neither.
func AddOfficialName(cmd *cobra.Command, flag, name, shorthand string) {
	known := cmd.Flags().Lookup(flag)
	alias := cmd.Flags().VarPF(known.Value, name, shorthand, known.Usage)
	alias.NoOptDefVal, alias.Hidden = known.NoOptDefVal, true
	cmd.MarkFlagsMutuallyExclusive(flag, name)
}

// AddOfficialFormat adds --format of the official CLI to cmd, with the given shorthand unless that
// is "". Help does not show it.
func (f *Factory) AddOfficialFormat(cmd *cobra.Command, shorthand string) {
	cmd.Flags().VarPF(&officialFormat{&f.flags.output}, "format", shorthand, "json, or pretty for a table").Hidden = true
}

// officialFormat is a flag value that sets -o. It accepts the format names of E2B's official CLI.
type officialFormat struct{ output *outputFormat }

func (o *officialFormat) String() string { return "" }
func (o *officialFormat) Type() string   { return "json|pretty" }

func (o *officialFormat) Set(value string) error {
	switch value {
	case "json":
		return o.output.Set(string(outputJSON))
	case "pretty":
		return o.output.Set(string(outputTable))
	}
	return errors.New("want json or pretty")
}
