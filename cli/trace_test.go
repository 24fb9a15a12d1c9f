package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/patience"
)

// collector takes the spans of OTLP's JSON: each name, with the name of its parent.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	names   map[string]string
	parents map[string]string
}

func newCollector(t *testing.T) *collector {
	c := &collector{names: map[string]string{}, parents: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var sent struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct{ Name, SpanID, ParentSpanID string }
				}
			}
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Errorf("the collector got %s: %v", body, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range sent.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, span := range scope.Spans {
					c.names[span.SpanID], c.parents[span.SpanID] = span.Name, span.ParentSpanID
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// tree returns the parent of each span by their names.
func (c *collector) tree() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]string{}
	for id, name := range c.names {
		all[name] = c.names[c.parents[id]]
	}
	return all
}

// traceparentFails is a command that fails with 3 if TRACEPARENT names a sampled trace.
const traceparentFails = `case $TRACEPARENT in 00-*-01) exit 3;; esac`

func TestCommandsAreTraced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		status int
		want   map[string]string
	}{
		"run": {[]string{"run", "-t", "base", traceparentFails}, 3, map[string]string{
			"e2bctl run": "", "sandbox.create": "e2bctl run", "sandbox.command": "e2bctl run",
		}},
		"ls":             {[]string{"ls"}, 0, map[string]string{"e2bctl ls": ""}},
		"version":        {[]string{"version"}, 0, map[string]string{}},
		"a wrong option": {[]string{"ls", "--wrong"}, 2, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := newService(t), newCollector(t)
			cmd := exec.CommandContext(t.Context(), "e2bctl", append([]string{"--no-env-file"}, test.args...)...)
			cmd.Env = append(s.env(), "HOME="+t.TempDir(), "PATH=/usr/bin:/bin", "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL)
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != test.status {
				t.Errorf("got status %d, want %d: %s", got, test.status, out)
			}
			if diff := cmp.Diff(test.want, c.tree()); diff != "" {
				t.Errorf("spans by parent (-want +got):\n%s", diff)
			}
		})
	}
}

// A collector that never answers delays a command only for a while, and is not mentioned.
// Package tracing checks the delay in a bubble.
func TestSilentCollector(t *testing.T) {
	t.Parallel()
	s := newService(t)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	ctx := patience.Context(t)
	run := func(more ...string) (time.Duration, string) {
		cmd := exec.CommandContext(ctx, "e2bctl", "--no-env-file", "ls")
		cmd.Env = append(append(s.env(), "HOME="+t.TempDir()), more...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		begun := time.Now()
		if err := cmd.Run(); err != nil {
			t.Errorf("%v: %s", err, &stderr)
		}
		return time.Since(begun), stderr.String()
	}
	plain, _ := run()
	took, said := run("OTEL_EXPORTER_OTLP_ENDPOINT=" + silent.URL)
	t.Logf("the command took %v, and %v without a collector", took, plain)
	if took < time.Second || said != "" {
		t.Errorf("the command took %v and said %q, want a second for the collector and nothing", took, said)
	}
	if _, said := run("OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318"); !strings.Contains(said, "not traced") {
		t.Errorf("it said %q, want that the address is wrong", said)
	}
}
