package sandboxtest

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// Cloud is a cloud that lives as long as its test. Besides Options and Env it
// has what tests of failures need: Advance moves the clock of lifetimes,
// Inject makes requests fail, and Requests tells what was sent.
type Cloud struct{ *local.Cloud }

// New starts a cloud that logs to t and is closed when t ends, with all its
// sandboxes. Where the machine cannot have one the test is skipped, or fails
// when the variable CI is "true": nobody reads the skips there.
func New(t testing.TB, opts ...local.Option) *Cloud {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	cloud, err := local.Start(t.Context(), append([]local.Option{local.WithLogger(logger)}, opts...)...)
	switch {
	case impossible(err) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cloud.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Cloud{cloud}
}

// impossible tells that the machine, not the program, is the reason.
func impossible(err error) bool {
	return errors.Is(err, local.ErrNoIsolation) || errors.Is(err, local.ErrUnsupported)
}
