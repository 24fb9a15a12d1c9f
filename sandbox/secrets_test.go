package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// Params end in logs and errors of programs: the value of a secret must not.
func TestSecretParamsHideTheValue(t *testing.T) {
	t.Parallel()
	const value = "sk-2718281828"
	p := SecretParams{Value: value, Metadata: map[string]string{"kept": "m"}}
	for what, params := range map[string]any{
		"sandbox": p, "a pointer": &p, "inside": struct{ Params SecretParams }{p},
		"api": api.SecretParams(p), "a pointer of api": new(api.SecretParams(p)),
	} {
		encoded, err := json.Marshal(params)
		must.Do(t, err)
		var text, lines bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).InfoContext(t.Context(), "m", "params", params)
		slog.New(slog.NewJSONHandler(&lines, nil)).InfoContext(t.Context(), "m", "params", params)
		shown := map[string]string{"json": string(encoded), "slog text": text.String(), "slog json": lines.String()}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			shown[verb] = fmt.Sprintf(verb, params)
		}
		for how, got := range shown {
			if strings.Contains(got, value) || strings.Contains(got, fmt.Sprintf("%x", value)) {
				t.Errorf("%s, %s: the value shows: %s", what, how, got)
			}
		}
		if got := shown["%+v"]; !strings.Contains(got, "Value:[redacted] Metadata:map[kept:m]") {
			t.Errorf("%s: got %s, want the other field and that there is a value", what, got)
		}
	}
}
