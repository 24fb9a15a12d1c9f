package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestMany runs more lines than the cloud has places.
func TestMany(t *testing.T) {
	sandboxtest.New(t, local.WithMaxSandboxes(2)).Setenv(t)
	client, err := sandbox.NewClient()
	must.Do(t, err)
	var out strings.Builder
	if err := many(t.Context(), client, 4, strings.NewReader("1 + 1\nprint(2)\n3 / 0\n4\n5\n6"), &out); err != nil {
		t.Error(err)
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(got)
	want := []string{"1 + 1: 2", "3 / 0: ZeroDivisionError: division by zero", "4: 4", "5: 5", "6: 6", "print(2): 2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := many(t.Context(), client, 0, strings.NewReader("1"), &out); err == nil {
		t.Error("none at once: no error")
	}
}
