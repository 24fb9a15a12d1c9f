package api

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSecrets checks the requests about secrets, and that nothing printed contains the value.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const value = "sk-never-shown"
	var seen []string
	one := `{"secretID":"sec_1","name":"openai","currentVersion":2,"metadata":{"a":"b"},"createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:06Z"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
		switch {
		case strings.HasSuffix(r.URL.Path, "/nothing"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":404,"message":"no such secret"}`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodGet && r.URL.Path == "/secrets":
			if r.URL.Query().Get("nextToken") == "" {
				w.Header().Set("X-Next-Token", "more")
			}
			_, _ = io.WriteString(w, "["+one+"]")
		default:
			_, _ = io.WriteString(w, one)
		}
	}))
	defer server.Close()
	var log bytes.Buffer
	c, err := NewClient(WithAPIKey(secret), WithBaseURL(server.URL), WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	must.Do(t, err)
	defer c.Close()
	params := &SecretParams{Value: value, Metadata: map[string]string{"a": "b"}}
	made, err := c.Secrets.Create(t.Context(), "OpenAI", params)
	if err != nil || made.ID != "sec_1" || made.Version != 2 || made.Metadata["a"] != "b" {
		t.Errorf("create: got %+v, %v", made, err)
	}
	for _, metadata := range []map[string]string{nil, {}} {
		if _, err := c.Secrets.Update(t.Context(), "openai", &SecretParams{Value: value, Metadata: metadata}); err != nil {
			t.Error(err)
		}
	}
	if got, err := c.Secrets.Get(t.Context(), "openai"); err != nil || got.Name != "openai" {
		t.Errorf("get: got %+v, %v", got, err)
	}
	count := 0
	for _, err := range c.Secrets.List(t.Context(), &SecretListParams{PageSize: 1}) {
		if err != nil {
			t.Error(err)
		}
		count++
	}
	if count != 2 {
		t.Errorf("the list has %d secrets, want 2", count)
	}
	if err := c.Secrets.Delete(t.Context(), "openai"); err != nil {
		t.Error(err)
	}
	_, err = c.Secrets.Update(t.Context(), "nothing", params)
	if !errors.Is(err, ErrNotFound) || strings.Contains(err.Error(), value) {
		t.Errorf("update of nothing: got %v, want ErrNotFound without the value", err)
	}
	for _, id := range []string{"", "a/b", "..", "a b"} {
		if err := c.Secrets.Delete(t.Context(), id); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%q: got %v, want ErrInvalidArgument", id, err)
		}
	}
	want := []string{
		`POST /secrets {"name":"OpenAI","value":"` + value + `","metadata":{"a":"b"}}`,
		`POST /secrets/openai {"value":"` + value + `"}`,
		`POST /secrets/openai {"value":"` + value + `","metadata":{}}`,
		"GET /secrets/openai",
		"GET /secrets?limit=1",
		"GET /secrets?limit=1&nextToken=more",
		"DELETE /secrets/openai",
		`POST /secrets/nothing {"value":"` + value + `","metadata":{"a":"b"}}`,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if strings.Contains(log.String(), value) {
		t.Errorf("the log has the value: %s", &log)
	}
}
