package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestObservability(t *testing.T) {
	sandboxtest.New(t).Setenv(t)
	var out strings.Builder
	must.Do(t, observability(t.Context(), &out, false))
	got := regexp.MustCompile(`(?m) +[0-9.µ]+m?s *$`).ReplaceAllString(out.String(), " TIME")
	want := `the command knows its trace
=> 320
sandbox.create TIME
report TIME
  sandbox.command TIME
  sandbox.code TIME
  agent.step TIME
    agent.tool rate TIME
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// With -local it starts its own cloud.
func TestObservabilityLocal(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	if err := observability(t.Context(), &strings.Builder{}, true); err != nil {
		t.Error(err)
	}
}
