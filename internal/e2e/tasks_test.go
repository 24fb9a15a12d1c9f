//go:build linux

package e2e

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/agent"
)

// Code that continues between the steps of a run has no tools there, which the audit
// reports, and the guard still refuses the same code as in steps.
func TestTasksBetweenSteps(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	add := agent.MustTool("add", "", func(context.Context, struct{ A, B int }) (int, error) { return 3, nil })
	var audit bytes.Buffer
	r, err := agent.Begin(t.Context(), sb, &agent.Params{
		Tools: []agent.Tool{add}, Guard: &agent.Guard{Allow: []string{"asyncio"}}, Audit: &audit,
	})
	must.Do(t, err)
	defer r.Close()
	step, err := r.Exec(t.Context(), `import asyncio
seen = []
async def late():
    try: seen.append(add(1, 2))
    except Exception as error: seen.append(str(error))
    try: await asyncio.open_connection("127.0.0.1", 9)
    except Exception as error: seen.append(str(error))
task = asyncio.get_running_loop().create_task(late())
add(1, 2)`)
	if err != nil || step.Error != nil || step.Text() != "3" {
		t.Fatalf("got %+v, %v, want 3 and no error", step, err)
	}
	said := ""
	patience.Until(t, "the task to go on between steps", func() bool {
		step, err := r.Exec(t.Context(), "str(seen) if task.done() else ''")
		if err != nil || step.Error != nil {
			t.Fatalf("got %+v, %v, want no error", step.Error, err)
		}
		said = step.Text()
		return strings.Contains(said, "[")
	})
	for _, want := range []string{"add: no step of the run is under way", "connections are not allowed"} {
		if !strings.Contains(said, want) {
			t.Errorf("the task saw %s, want %q in it", said, want)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if want := `it was called between steps`; strings.Count(audit.String(), want) != 1 {
		t.Errorf("the audit is %s, want %q in it once", audit.String(), want)
	}
}
