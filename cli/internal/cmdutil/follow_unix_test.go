//go:build unix

package cmdutil

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestFollowFlag checks that a command that follows something ends as soon as the reader of its output
// has gone, and that nothing is left of the watch, however the command ends.
func TestFollowFlag(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		closes bool // the reader goes while the command runs
		want   error
	}{
		"the reader goes":   {[]string{"--follow"}, true, errNotRead},
		"in jsonl":          {[]string{"--follow", "-o", "jsonl"}, true, errNotRead},
		"the command ends":  {[]string{"--follow"}, false, nil},
		"it does not watch": {nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			reader, writer, err := os.Pipe()
			must.Do(t, err)
			defer writer.Close()
			defer reader.Close()
			ios := NewIOStreams(nil, writer, os.Stderr)
			f := NewFactory(ios, nil)
			root := &cobra.Command{Use: "e2bctl", SilenceUsage: true, SilenceErrors: true}
			f.AddFlags(root)
			runs := make(chan context.Context, 1)
			cmd := &cobra.Command{Use: "follow", RunE: func(cmd *cobra.Command, _ []string) error {
				runs <- cmd.Context()
				if !tt.closes {
					return nil
				}
				<-cmd.Context().Done()
				return context.Cause(cmd.Context())
			}}
			cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return f.Begin(cmd) }
			var follow bool
			f.AddFollowFlag(cmd, &follow, "follow", "f", "go on")
			root.AddCommand(cmd)
			root.SetArgs(append([]string{"follow"}, tt.args...))
			ended := make(chan error, 1)
			go func() { ended <- root.ExecuteContext(t.Context()) }()
			ctx := patience.Receive(t, "the command runs", runs)
			if tt.closes {
				must.Do(t, reader.Close())
			}
			if err := patience.Receive(t, "the command ends", ended); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if follows := tt.args != nil; (ctx.Err() != nil) != follows {
				t.Errorf("the context of the command ended: %v, want %v", ctx.Err(), follows)
			}
			if ios.OutClosed() != tt.closes {
				t.Errorf("OutClosed is %v, want %v", ios.OutClosed(), tt.closes)
			}
		})
	}
}
