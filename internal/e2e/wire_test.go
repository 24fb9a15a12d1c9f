//go:build linux

package e2e

import (
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
)

// TestDirectoryOfCommands: a command that names no directory starts in that of the
// template, whoever runs it; a relative path is below the user's own home.
func TestDirectoryOfCommands(t *testing.T) {
	t.Parallel()
	for _, template := range []string{"base", "code-interpreter-v1"} {
		sb := shared(t).Create(t, sandbox.WithTemplate(template))
		for _, user := range []string{"user", "root"} {
			result, err := sb.Commands.Run(t.Context(), "pwd", &sandbox.CommandParams{User: user})
			if err != nil || result.Stdout != "/home/user\n" {
				t.Errorf("%s in %s: got %q, %v, want %q and no error", user, template, result.Stdout, err, "/home/user\n")
			}
			result, err = sb.Commands.Run(t.Context(), "pwd", &sandbox.CommandParams{User: user, Cwd: "~"})
			if want := map[string]string{"user": "/home/user\n", "root": "/root\n"}[user]; err != nil || result.Stdout != want {
				t.Errorf("home of %s in %s: got %q, %v, want %q and no error", user, template, result.Stdout, err, want)
			}
		}
	}
}
