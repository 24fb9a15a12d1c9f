package templates_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestBuildsAreBounded adds builds up to the limit and one more.
func TestBuildsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir)
	builtIn := 2 * (1 + len(engine.Names))
	builds := make([]map[string]any, templates.MaxBuilds-builtIn-1)
	for i := range builds {
		builds[i] = map[string]any{"ID": fmt.Sprint(i), "Status": "ready"}
	}
	record, err := json.Marshal(map[string]any{"Version": 1, "Template": map[string]any{"ID": "many", "Builds": builds}})
	must.Do(t, err)
	_, err = s.store.Put(store.Templates, "many", record, "")
	must.Do(t, err)
	must.Do(t, s.store.Close())

	s = serve(t, dir)
	ref := templates.ParseReference("last")
	must.Do(t, s.CheckName(&ref))
	s.snapshot(t, "last")
	refusal := func(err error, want templates.Kind) {
		t.Helper()
		if e, ok := errors.AsType[*templates.Error](err); !ok || e.Kind != want {
			t.Errorf("got %v, want a refusal of the kind %d", err, want)
		}
	}
	other := templates.ParseReference("other")
	refusal(s.CheckName(&other), templates.Full)
	_, err = s.Add(&other, templates.Build{})
	refusal(err, templates.Full)
	_, _, err = s.Request(other, nil, templates.Build{})
	refusal(err, templates.Full)
	must.Do(t, s.Delete(templates.ParseReference("many"), func(string) bool { return false }))
	must.Do(t, s.CheckName(&other))
	for _, text := range []string{"", "a b", "elsewhere/other", "other:", "other:a b"} {
		bad := templates.ParseReference(text)
		refusal(s.CheckName(&bad), templates.Invalid)
		_, _, err := s.Request(bad, nil, templates.Build{})
		refusal(err, templates.Invalid)
	}
}
