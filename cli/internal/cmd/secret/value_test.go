package secret

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestValuesThatAreRead checks from where a value is read, how long it may be, and that only the end of its line is left out.
func TestValuesThatAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	must.Do(t, os.WriteFile(file, []byte("of a file\n"), 0o600))
	long := strings.Repeat("x", maxValue)
	broken := cmdutil.NewIOStreams(iotest.ErrReader(errors.New("no disk")), nil, nil)
	terminal := cmdutil.NewIOStreams(strings.NewReader("typed"), nil, nil)
	terminal.InIsTerminal = true
	input := func(text string) *cmdutil.IOStreams { return cmdutil.NewIOStreams(strings.NewReader(text), nil, nil) }
	for name, tt := range map[string]struct {
		streams *cmdutil.IOStreams
		file    string
		want    string // the value, or a part of the error
		usage   bool
	}{
		"plain":            {streams: input("key"), want: "key"},
		"a line":           {streams: input("key\n"), want: "key"},
		"a line of DOS":    {streams: input("key\r\n"), want: "key"},
		"lines":            {streams: input(" a\nb\n\n"), want: " a\nb\n"},
		"empty":            {streams: input(""), want: "the value is empty", usage: true},
		"an empty line":    {streams: input("\r\n"), want: "the value is empty", usage: true},
		"the longest":      {streams: input(long), want: long},
		"too long":         {streams: input(long + "x"), want: "the value has more than 1048576 bytes", usage: true},
		"broken":           {streams: broken, want: "read the value: no disk"},
		"typed":            {streams: terminal, want: "would be shown on the terminal", usage: true},
		"a file":           {streams: terminal, file: file, want: "of a file"},
		"no file":          {streams: input("key"), file: filepath.Join(dir, "none"), want: "none"},
		"a directory":      {streams: input("key"), file: dir, want: "read the value: "},
		"a file, no stdin": {streams: broken, file: file, want: "of a file"},
	} {
		got, err := readValue(t.Context(), &cobra.Command{Use: "create"}, tt.streams, tt.file)
		if err != nil {
			got = err.Error()
		}
		_, usage := errors.AsType[*cmdutil.UsageError](err)
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) || usage != tt.usage {
			t.Errorf("%s: got %.80q and error %v, a mistake in the command line: %v, want %.80q", name, got, err, usage, tt.want)
		}
	}
}
