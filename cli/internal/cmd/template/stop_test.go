package template

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStoppedBuild checks that a command that is stopped tells how to follow its build, if the build has begun.
func TestStoppedBuild(t *testing.T) {
	t.Setenv("E2B_API_KEY", "e2b_00")
	const follow = "The build is not stopped: e2bctl template logs -f t1 b1 follows it.\n"
	for at, want := range map[string]string{
		"POST /v3/templates":                 "",
		"POST /v2/templates/t1/builds/b1":    follow, // it may have begun
		"GET /templates/t1/builds/b1/status": follow,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body) // the end of the connection is seen behind it
			must.Do(t, err)
			if r.Method+" "+r.URL.Path == at {
				cancel()
				<-r.Context().Done()
				return
			}
			w.WriteHeader(http.StatusAccepted)
			_, err = io.WriteString(w, `{"templateID":"t1","buildID":"b1","names":["web"],"tags":[]}`)
			must.Do(t, err)
		}))
		var out, errs strings.Builder
		ios := cmdutil.NewIOStreams(strings.NewReader("FROM e2bdev/base\n"), &out, &errs)
		err := cmdtest.ExecuteContext(ctx, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdTemplate(f)} },
			"--api-url", server.URL, "template", "build", "web", "-d", "-", "-q")
		cancel()
		server.Close()
		must.Is(t, err, context.Canceled)
		if out.Len() > 0 || errs.String() != want {
			t.Errorf("%s: printed %q and %q, want nothing and %q", at, out.String(), errs.String(), want)
		}
	}
}

// TestIgnoredFiles checks that the file beside the Dockerfile that names ignored files applies to a build and to a check.
func TestIgnoredFiles(t *testing.T) {
	t.Setenv("E2B_API_KEY", "e2b_00")
	service := httptest.NewServer(http.NotFoundHandler())
	defer service.Close()
	for ignored, all := range map[string]bool{"a": true, "b": false} {
		dir := t.TempDir()
		for name, text := range map[string]string{"Dockerfile": "FROM e2bdev/base\nCOPY a /\n", "a": "", "Dockerfile.dockerignore": ignored} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		for _, args := range [][]string{{"--check", filepath.Join(dir, "Dockerfile"), dir}, {"web", dir}} {
			ios := cmdutil.NewIOStreams(strings.NewReader(""), io.Discard, io.Discard)
			err := cmdtest.Execute(t, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdTemplate(f)} },
				append([]string{"--api-url", service.URL, "template", "build"}, args...)...)
			if got := err != nil && strings.Contains(err.Error(), "everything is ignored"); got != all {
				t.Errorf("%q, and %s is ignored: got error %v, want one about the file: %v", args, ignored, err, all)
			}
		}
	}
}
