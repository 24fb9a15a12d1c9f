package control

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestSecretCalls checks that no answer has a secret's value.
func TestSecretCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	if _, text := s.do(t, "GET", "/secrets", ""); text != "[]" {
		t.Errorf("got %s, want an empty list", text)
	}
	const value = "sk-never-shown"
	made := s.must(t, "POST", "/secrets", `{"name":"OpenAI","value":"`+value+`","metadata":{"team":"a"}}`, 201)
	id, _ := made["secretID"].(string)
	if made["name"] != "openai" || made["currentVersion"] != 1.0 || !strings.HasPrefix(id, "sec_") || made["updatedAt"] == "" {
		t.Errorf("got %v, want openai, version 1 and an id", made)
	}
	if got := s.must(t, "POST", "/secrets/openai", `{"value":"`+value+`2"}`, 200); got["currentVersion"] != 2.0 || got["metadata"].(map[string]any)["team"] != "a" {
		t.Errorf("got %v, want version 2 with the metadata", got)
	}
	if got := s.must(t, "POST", "/secrets/"+id, `{"value":"`+value+`3","metadata":{}}`, 200); len(got["metadata"].(map[string]any)) > 0 {
		t.Errorf("got %v, want no metadata", got)
	}
	if got := s.must(t, "GET", "/secrets/OPENAI", "", 200); got["secretID"] != id {
		t.Errorf("got %v, want %s", got, id)
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"POST", "/secrets", `{"name":"openai","value":"` + value + `"}`, 409, "already"},
		{"POST", "/secrets", `{"name":"a b","value":"` + value + `"}`, 400, "name must"},
		{"POST", "/secrets", `{"name":"sec_a","value":"` + value + `"}`, 400, "sec_"},
		{"POST", "/secrets", `{"name":"b","value":"` + value + `\n"}`, 400, "line breaks"},
		{"POST", "/secrets", `{"name":"b"}`, 400, "value must"},
		{"POST", "/secrets", `{"name":"b","value":["` + value + `"]}`, 400, "value must be a string, not array"},
		{"POST", "/secrets/nothing", `{"value":"` + value + `"}`, 404, "doesn't exist"},
		{"GET", "/secrets/nothing", "", 404, "doesn't exist"},
		{"DELETE", "/secrets/nothing", "", 404, "doesn't exist"},
		{"GET", "/secrets?limit=0", "", 400, "limit"},
		{"PATCH", "/secrets/openai", "", 405, "DELETE, GET, POST"},
	} {
		resp, text := s.do(t, tt.method, tt.path, tt.body)
		if resp.StatusCode != tt.status || !strings.Contains(text, tt.message) || strings.Contains(text, value) {
			t.Errorf("%s %s: got %d %s, want %d with %q and without the value", tt.method, tt.path, resp.StatusCode, text, tt.status, tt.message)
		}
	}
	s.must(t, "POST", "/secrets", `{"name":"b","value":"x"}`, 201)
	var names []string
	for token := ""; ; {
		resp, text := s.do(t, "GET", "/secrets?limit=1&nextToken="+token, "")
		var page []struct{ Name string }
		if err := json.Unmarshal([]byte(text), &page); err != nil || len(page) != 1 {
			t.Fatalf("got %d %s %v, want a page of one that is not stored", resp.StatusCode, text, resp.Header)
		}
		if strings.Contains(text, value) {
			t.Errorf("the list has the value: %s", text)
		}
		names = append(names, page[0].Name)
		if token = resp.Header.Get("X-Next-Token"); token == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "b openai" {
		t.Errorf("got %s, want b openai", got)
	}
	if resp, _ := s.do(t, "DELETE", "/secrets/"+id, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("delete: got %d, want 204", resp.StatusCode)
	}
	s.must(t, "GET", "/secrets/"+id, "", 404)
}
