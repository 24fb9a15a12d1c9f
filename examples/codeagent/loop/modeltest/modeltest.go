// Package modeltest provides a model for tests. The model is at a real HTTP endpoint of the chat
// completions protocol, and the test determines its answers.
package modeltest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/e2bctl/e2bctl/examples/codeagent/loop"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Tokens is the number of tokens that every answer costs.
const Tokens = 100

// New starts an endpoint that requires the key and answers each conversation with the result of
// say. The endpoint is closed when t ends. It calls say from several goroutines if several agents
// use the model at the same time.
func New(t testing.TB, key sandbox.Key, say func(chat []loop.Message) string) *loop.Model {
	t.Helper()
	const name = "scripted"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var question struct {
			Model    string
			Messages []loop.Message
		}
		switch err := json.NewDecoder(r.Body).Decode(&question); {
		case r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions":
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer "+string(key):
			w.WriteHeader(http.StatusUnauthorized)
			answer(w, map[string]any{"error": map[string]any{"message": "no such key"}})
		case err != nil || question.Model != name || len(question.Messages) < 2:
			t.Errorf("the model %q got %d messages, %v", question.Model, len(question.Messages), err)
			w.WriteHeader(http.StatusBadRequest)
		default:
			answer(w, map[string]any{
				"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": loop.Message{Role: "assistant", Content: say(question.Messages)}}},
				"usage":   map[string]any{"prompt_tokens": Tokens - 10, "completion_tokens": 10, "total_tokens": Tokens},
			})
		}
	}))
	t.Cleanup(server.Close)
	return &loop.Model{URL: server.URL + "/v1", Key: key, Name: name}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // on an error the client is gone
}

// Turn returns the number of the next answer of the model in a conversation, from 0.
func Turn(chat []loop.Message) int { return len(chat)/2 - 1 }

// Code returns an answer of a model that is one block of code.
func Code(python string) string { return "Next:\n```python\n" + python + "\n```\n" }
