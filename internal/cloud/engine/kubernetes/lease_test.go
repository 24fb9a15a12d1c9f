package kubernetes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestRenewSparesRecords checks that the time of shutdown of a record is not moved, even if the record
// is being stored when that time is renewed.
func TestRenewSparesRecords(t *testing.T) {
	t.Parallel()
	entered, answer := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-answer
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(withRecord(t, keysFor(t, longSecret, "agents"), "one", anyRecord()))
	}))
	defer server.Close()
	s, err := engineOn(t, server.URL, longSecret).unconnected(engine.SandboxOptions{ID: "one"}, "sandbox-one")
	must.Do(t, err)
	defer s.end()
	errs := make(chan error, 2)
	go func() { errs <- lasting{s}.Keep(t.Context(), anyRecord()) }()
	patience.Receive(t, "the request that stores the record", entered)
	go func() { errs <- s.renew(t.Context()) }()
	close(answer)
	for range 2 {
		must.Do(t, patience.Receive(t, "the end of both", errs))
	}
	if len(entered) > 0 {
		t.Error("the time of shutdown was moved after the record was stored")
	}
}
