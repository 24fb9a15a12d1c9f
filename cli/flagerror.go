package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// insteadOfFlag returns advice about a flag that related commands have but cmd cannot have. It
// returns "" for all other flags.
func insteadOfFlag(cmd *cobra.Command, name string) string {
	isUser, isDir := name == "u" || name == "user", name == "w" || name == "workdir"
	switch path := cmd.CommandPath(); {
	case path == "e2bctl create" && isUser:
		return "each command has its own user: e2bctl exec -u NAME, or e2bctl run -u NAME"
	case path == "e2bctl create" && isDir:
		return "each command has its own directory: e2bctl exec -w DIR"
	case path == "e2bctl code run" && isUser:
		return "a kernel runs as the user of the template; a command has its own user: e2bctl run -u NAME -- python3 FILE"
	case path == "e2bctl mcp install":
		return "flags of e2bctl mcp come after --"
	}
	return ""
}

// flagError replaces the flag library's text of an error by a text for users of cmd. The library's
// text names Go functions. The library also reports an unknown flag that the user meant for a
// script. flagError then adds advice.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		value := invalid.GetValue()
		if value == "" || strings.ContainsAny(value, " \n") {
			value = strconv.Quote(value)
		}
		return fmt.Errorf("--%s %s: %w", invalid.GetFlag().Name, value, wanted(invalid))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	if instead := insteadOfFlag(cmd, unknown.GetSpecifiedName()); instead != "" {
		return fmt.Errorf("%w: %s", unknown, instead)
	}
	if strings.Contains(cmd.Use, "<argument>") {
		return fmt.Errorf("%w; arguments of the code that begin with a dash come after --", unknown)
	}
	return err
}

// wanted returns an error that names the values that the flag accepts. The errors of e2bctl's own
// flag types already name the values, and are returned unchanged.
func wanted(invalid *pflag.InvalidValueError) error {
	if _, ok := errors.AsType[*strconv.NumError](invalid); !ok {
		return invalid.Unwrap()
	}
	switch invalid.GetFlag().Value.Type() {
	case "bool":
		return errors.New("want true or false")
	case "uint16":
		return errors.New("want a number from 0 to 65535")
	}
	return errors.New("want a number")
}
