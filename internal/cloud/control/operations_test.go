package control

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestOperation checks that each call of the API has the name of its operation.
func TestOperation(t *testing.T) {
	t.Parallel()
	s := start(t)
	value := regexp.MustCompile(`\{\w+\}`)
	for call, operation := range s.operationsByCall() {
		method, path, _ := strings.Cut(call, " ")
		if strings.HasPrefix(path, "tags") || strings.HasPrefix(path, "files") || strings.HasPrefix(path, "builds") {
			path = "/templates/some/" + path
		}
		if path == pathUploads {
			path += "hash"
		}
		r := httptest.NewRequestWithContext(t.Context(), method, value.ReplaceAllString(path, "some"), nil)
		if got := s.Operation(r); got != operation {
			t.Errorf("%s %s is %q, want %s", method, r.URL.Path, got, operation)
		}
	}
	for _, call := range []string{"GET /", "PUT /sandboxes", "GET /templates/x/y", "POST /templates/x/tags", "GET /admin/x", "GET /teams/x/metrics", "GET /volumecontent/x/y", "GET /sandboxes/x/y"} {
		method, path, _ := strings.Cut(call, " ")
		if got := s.Operation(httptest.NewRequestWithContext(t.Context(), method, path, nil)); got != "" {
			t.Errorf("%s is %q, want no operation", call, got)
		}
	}
	if all := Operations(); len(all) == 0 || all[0] == "" {
		t.Errorf("the names are %q, want no empty one", all)
	}
	// Calls without a name are not served.
	for _, call := range append(s.table(), s.slowTable()...) {
		if call.operation != "" || call.path == pathBelowTemplate {
			continue
		}
		w := httptest.NewRecorder()
		if err := call.handler(w, httptest.NewRequestWithContext(t.Context(), call.method, "/", http.NoBody)); err == nil || !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%s %s has no name, and answers %v", call.method, call.path, err)
		}
	}
}
