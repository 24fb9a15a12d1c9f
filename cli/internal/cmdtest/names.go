package cmdtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// checkNames compares the names of commands and flags with testdata/names.txt. The texts of their help are compared elsewhere.
func checkNames(t *testing.T, commands func(*cmdutil.Factory) []*cobra.Command) {
	t.Helper()
	f := cmdutil.NewFactory(cmdutil.NewIOStreams(nil, nil, nil), nil)
	var got strings.Builder
	for _, cmd := range commands(f) {
		writeNames(&got, cmd)
	}
	file := filepath.Join("testdata", "names.txt")
	if os.Getenv("UPDATE_CALLS") != "" {
		must.Do(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(want) != got.String() {
		t.Errorf("%s: got\n%s\nwant\n%s", file, &got, want)
	}
}

// writeNames writes a line for a command and each command in it.
func writeNames(to *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(to, "%s: %s", cmd.CommandPath(), strings.Join(append(cmd.Aliases, cmd.SuggestFor...), " "))
	if cmd.Short == "" {
		to.WriteString(", no short")
	}
	if cmd.Long != "" {
		to.WriteString(", long")
	}
	if cmd.Example != "" {
		to.WriteString(", example")
	}
	if cmd.Hidden {
		to.WriteString(", hidden")
	}
	to.WriteString(";")
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		to.WriteString(" --" + flag.Name)
		if flag.Shorthand != "" {
			to.WriteString(" -" + flag.Shorthand)
		}
		if flag.Hidden {
			to.WriteString(" (hidden)")
		}
	})
	to.WriteString("\n")
	for _, below := range cmd.Commands() {
		writeNames(to, below)
	}
}
