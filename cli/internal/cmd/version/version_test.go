package version

import (
	"cmp"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestVersion checks the output of e2bctl version, and the texts that other packages use. Binaries of tests have no
// commit.
func TestVersion(t *testing.T) {
	t.Parallel()
	run := func(args ...string) string {
		t.Helper()
		var out, errs cmdtest.Output
		err := cmdtest.Execute(t, cmdutil.NewIOStreams(nil, &out, &errs), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdVersion(f)} },
			append([]string{"version"}, args...)...)
		must.Do(t, err)
		if errs.String() != "" {
			t.Errorf("%v: got the message %q", args, errs.String())
		}
		return out.String()
	}
	var got buildVersion
	must.Do(t, json.Unmarshal([]byte(run("-o", "json")), &got))
	want := buildVersion{Version: got.Version, Commit: got.Commit, Modified: got.Modified, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if got != want || got.Version == "" {
		t.Errorf("got %+v, want %+v", got, want)
	}
	line := strings.Join([]string{got.Version, got.Go, got.System}, " ")
	if text := run(); text != "e2bctl "+line+"\n" || Line() != line || Number() != got.Version {
		t.Errorf("got %q, %q and %q, want %q and its first word", text, Line(), Number(), line)
	}
	build := cmp.Or(got.Commit, got.Version)
	if got.Modified {
		build = got.Commit + "+modified"
	}
	if Build() != build {
		t.Errorf("got the build %q, want %q", Build(), build)
	}
}
