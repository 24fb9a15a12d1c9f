package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

func ExamplePackages_Install() {
	ctx := context.Background()
	err := sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		installed, err := sb.Packages.Install(ctx, []string{"humanize==4.*", "yaml"}, &sandbox.InstallParams{
			Output: os.Stderr, // what pip prints, as it comes
		})
		if refused, ok := errors.AsType[*sandbox.RequirementError](err); ok {
			return fmt.Errorf("nothing was sent: %s", refused.Reason) // for the model
		}
		if errors.Is(err, sandbox.ErrRetryable) {
			return fmt.Errorf("the index did not answer: %w", err)
		}
		if err != nil {
			return err
		}
		for _, one := range installed.Packages {
			fmt.Println(one.Name, one.Version)
		}
		for _, one := range installed.Renamed {
			fmt.Printf("%s was taken for %s\n", one.Import, one.Distribution) // yaml, PyYAML
		}
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

// A lock is made once and kept beside the program; this program makes it if there
// is none.
func ExamplePackages_Lock() {
	const file = "requirements.lock"
	ctx := context.Background()
	err := sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		var lock sandbox.LockFile
		switch text, err := os.ReadFile(file); {
		case err == nil:
			if err := lock.UnmarshalText(text); err != nil {
				return err
			}
		case errors.Is(err, os.ErrNotExist):
			made, err := sb.Packages.Lock(ctx, []string{"humanize==4.*"}, nil)
			if err != nil {
				return err
			}
			if text, err = made.MarshalText(); err != nil {
				return err
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				return err
			}
			lock = *made
		default:
			return err
		}
		// The same files as before, taken from this machine if an earlier sandbox
		// installed them.
		run, err := agent.Begin(ctx, sb, &agent.Params{
			Lock: &lock, Packages: []string{"humanize"}, // what code may import
			Guard: &agent.Guard{Presets: []agent.Preset{agent.DataAnalysis}},
		})
		if err != nil {
			return err
		}
		defer run.Close()
		step, err := run.Exec(ctx, "import humanize; humanize.intcomma(12345)")
		if err != nil {
			return err
		}
		fmt.Println(step.Observation())
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
