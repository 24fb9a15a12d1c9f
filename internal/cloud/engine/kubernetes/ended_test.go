package kubernetes

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestExplain checks which reason a server has for the end of a sandbox whose pod is gone.
func TestExplain(t *testing.T) {
	t.Parallel()
	k := keysFor(t, longSecret, "agents")
	there := func(ended string) *object {
		o := withRecord(t, k, "one", anyRecord())
		if o.UID = "object-1"; ended != "" {
			o.Annotations[annotationEnded] = ended
		}
		return o
	}
	another := there("")
	another.UID = "object-2"
	failed := errors.New("its pod ended: Evicted")
	for name, tt := range map[string]struct {
		seen   *object // by the watch
		answer any     // of the API server
		why    error
		want   error
	}{
		"the pod alone was deleted":          {nil, there(""), errDeleted, errDeleted},
		"it came back empty":                 {nil, there(""), errReplaced, errReplaced},
		"a server closed it":                 {nil, there(closedHere), errDeleted, engine.ErrElsewhere},
		"a server closed it, and it is gone": {there(closedHere), http.StatusNotFound, errDeleted, engine.ErrElsewhere},
		"another sandbox has its name":       {there(closedHere), another, errDeleted, engine.ErrElsewhere},
		"it ran out of memory":               {there(engine.ErrOutOfMemory.Error()), http.StatusNotFound, errDeleted, engine.ErrOutOfMemory},
		"somebody removed the object":        {there(""), http.StatusNotFound, errDeleted, errRemoved},
		"the pod says more":                  {there(closedHere), http.StatusNotFound, failed, failed},
	} {
		server := httptest.NewServer(&scripted{answers: []any{tt.answer}})
		e := engineOn(t, server.URL, longSecret)
		s, err := e.unconnected(engine.SandboxOptions{ID: "one"}, "sandbox-one")
		must.Do(t, err)
		s.object, e.sandboxes["sandbox-one"] = "object-1", s
		if tt.seen != nil {
			e.takeEnd(tt.seen)
		}
		if err := s.explain(tt.why); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
		s.end()
		server.Close()
	}
}
