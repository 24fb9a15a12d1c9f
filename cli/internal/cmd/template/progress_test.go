package template

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// TestProgressOfABuild checks the lines of a build's log in each mode, and which lines of a failed build are shown at its end.
func TestProgressOfABuild(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.FixedZone("", 3600))
	logs := []api.BuildLogEntry{
		{Time: at, Level: api.BuildLogDebug, Message: "deep"}, {Time: at, Level: api.BuildLogInfo, Message: "run\x1b[2J", Step: "1"},
		{Time: at, Level: api.BuildLogWarn, Message: "old"}, {Time: at, Level: api.BuildLogError, Message: "no"},
	}
	const timed = "2026-11-22T09:00:00Z "
	for name, tt := range map[string]struct {
		mode            progressMode
		terminal, quiet bool
		want            []string
	}{
		"on a terminal":      {progressAuto, true, false, []string{"run[2J", "warn: old", "error: no"}},
		"in a file":          {progressAuto, false, false, []string{timed + "run[2J", timed + "warn: old", timed + "error: no"}},
		"plainly":            {progressPlain, true, false, []string{timed + "run[2J", timed + "warn: old", timed + "error: no"}},
		"quietly":            {progressAuto, true, true, []string{"failed", "deep", "run[2J", "warn: old", "error: no"}},
		"quietly, in a file": {progressJSON, false, true, []string{"failed", timed + "deep", timed + "run[2J", timed + "warn: old", timed + "error: no"}},
		"as JSON": {progressJSON, true, false, []string{
			`{"timestamp":"2026-11-22T09:00:00Z","level":"debug","message":"deep"}`, `{"timestamp":"2026-11-22T09:00:00Z","level":"info","message":"run\u001b[2J","step":"1"}`,
			`{"timestamp":"2026-11-22T09:00:00Z","level":"warn","message":"old"}`, `{"timestamp":"2026-11-22T09:00:00Z","level":"error","message":"no"}`,
		}},
	} {
		var errs strings.Builder
		ios := cmdutil.NewIOStreams(nil, io.Discard, &errs)
		ios.ErrIsTerminal = tt.terminal
		p := newProgress(ios, tt.mode, tt.quiet)
		for _, e := range logs {
			p.show(e)
		}
		p.failed(errors.New("another error"))
		if tt.quiet {
			if errs.Len() > 0 {
				t.Errorf("%s: got %q, want nothing before the end", name, errs.String())
			}
			errs.WriteString("failed\n")
		}
		p.failed(&template.BuildError{Logs: logs})
		if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for value, want := range map[string]bool{"auto": true, "plain": true, "json": true, "": false, "JSON": false, "tty": false} {
		mode := progressMode("before")
		if err := mode.Set(value); (err == nil) != want || (mode.String() == value) != want {
			t.Errorf("--progress %q: got %q and error %v, want it to be valid: %v", value, mode, err, want)
		}
	}
}

// TestDockerfilesThatAreFound checks which Dockerfile a build reads, and the file beside it.
func TestDockerfilesThatAreFound(t *testing.T) {
	t.Parallel()
	dir := func(names ...string) string {
		at := t.TempDir()
		for _, name := range names {
			must.Do(t, os.WriteFile(filepath.Join(at, name), []byte("FROM debian\n"), 0o600))
		}
		return at
	}
	for name, tt := range map[string]struct {
		o      buildOptions
		ignore bool
		want   error
	}{
		"Dockerfile":       {o: buildOptions{Dir: dir("Dockerfile")}},
		"its own":          {o: buildOptions{Dir: dir("e2b.Dockerfile", "Dockerfile", "e2b.Dockerfile.dockerignore")}, ignore: true},
		"another's ignore": {o: buildOptions{Dir: dir("Dockerfile", "e2b.Dockerfile.dockerignore", ".dockerignore")}},
		"none":             {o: buildOptions{Dir: dir("dockerfile.txt")}, want: fs.ErrNotExist},
		"a named one":      {o: buildOptions{Dir: dir(), Dockerfile: filepath.Join(dir("x"), "x")}},
		"one not there":    {o: buildOptions{Dir: dir("Dockerfile"), Dockerfile: filepath.Join(dir(), "x")}, want: fs.ErrNotExist},
		"from input":       {o: buildOptions{Dockerfile: "-", IO: cmdutil.NewIOStreams(strings.NewReader("FROM debian\n"), nil, nil)}},
	} {
		_, err := tt.o.definition(t.Context())
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || (tt.o.ignoreFile != "") != tt.ignore {
			t.Errorf("%s: got error %v and the file %q, want %v", name, err, tt.o.ignoreFile, tt.want)
		}
	}
}

// TestTagThatIsMissing checks the error of a tag that a template does not have.
func TestTagThatIsMissing(t *testing.T) {
	t.Parallel()
	err := &noTagError{"a", "b"}
	if err.Error() != "a has no tag b" || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || !strings.Contains(err.Hint(), "tag ls"+cmdutil.OnLocal+" a to") {
		t.Errorf("got %v with the hint %q", err, err.Hint())
	}
}
