package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCalls checks the requests, the output and the errors of the commands.
func TestCalls(t *testing.T) {
	cmdtest.Run(t, func(f *cmdutil.Factory) (all []*cobra.Command) {
		for _, command := range []func(*cmdutil.Factory) *cobra.Command{
			NewCmdConnect, NewCmdCopy, NewCmdCreate, NewCmdEvents, NewCmdExec, NewCmdFork, NewCmdInfo, NewCmdKill, NewCmdList, NewCmdLogs, NewCmdMetrics,
			NewCmdOpen, NewCmdPause, NewCmdPortForward, NewCmdResize, NewCmdResume, NewCmdRun, NewCmdSSHConfig, NewCmdSSHProxy, NewCmdSync, NewCmdTimeout, NewCmdURL, NewCmdWait,
		} {
			all = append(all, command(f))
		}
		return all
	})
}

// TestExtendedLifetime checks that --extend adds to the remaining time of a sandbox.
func TestExtendedLifetime(t *testing.T) {
	t.Setenv("E2B_API_KEY", "e2b_00")
	var asked struct {
		Timeout int `json:"timeout"`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_ = json.NewDecoder(r.Body).Decode(&asked)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		fmt.Fprintf(w, `{"sandboxID":"i1","endAt":%q}`, time.Now().Add(time.Hour).Format(time.RFC3339))
	}))
	defer server.Close()
	for args, least := range map[string]int{"": 90, "--extend": 90 + 3500} {
		words := []string{"--api-url", server.URL, "--no-env-file", "timeout", "i1", "90"}
		if args != "" {
			words = append(words, args)
		}
		must.Do(t, cmdtest.Execute(t, cmdutil.NewIOStreams(nil, io.Discard, io.Discard), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdTimeout(f)} }, words...))
		if asked.Timeout < least || asked.Timeout > least+110 {
			t.Errorf("%s: asked for %d seconds, want %d", args, asked.Timeout, least)
		}
	}
}
