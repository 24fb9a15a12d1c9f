package lifecycle_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOnceNeedsAFingerprint checks that a request that cannot be told from other requests makes no
// sandbox, because a repeated request could then get the sandbox of another one. The test runs before
// the parallel ones, and closes its registry only at its end: if the registry cannot store a key, the
// panic ends this test, while the others would wait for the lock of their registries.
func TestOnceNeedsAFingerprint(t *testing.T) {
	f := &lifecycletest.Fakes{}
	r := lifecycle.New(lifecycle.Options{Store: store.Temporary(t.TempDir()), Launch: f.Launch})
	q := lifecycle.Request{Template: base, Lifetime: time.Hour}
	made, err := r.CreateOnce(t.Context(), "a good request", q)
	must.Do(t, err)
	q.Resources = engine.Resources{CPUs: math.NaN()}
	_, err = r.CreateOnce(t.Context(), "another request", q)
	if _, ok := errors.AsType[*json.UnsupportedValueError](err); !ok {
		t.Errorf("got error %v, want that the request has no fingerprint", err)
	}
	if ids := f.IDs(); len(ids) != 1 || ids[0] != made.ID {
		t.Errorf("the sandboxes are %v, want only %s", ids, made.ID)
	}
	must.Do(t, end(t, r))
}
