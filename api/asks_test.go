package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// Questions are fetched and answered; a service that does not ask is told from one that
// does before anything is sent that it would ignore.
func TestAsk(t *testing.T) {
	t.Parallel()
	var calls []string
	features, questions := `{"ask":true}`, `{"questions":[{"id":7,"host":"a.test","port":443}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, r.Method+" "+r.URL.String()+" "+string(body))
		switch {
		case r.URL.Path == "/local/features" && features == "":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Path == "/local/features":
			_, _ = io.WriteString(w, features)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, questions)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	c, err := NewClient(WithAPIKey("e2b_00000000"), WithBaseURL(server.URL), WithMaxRetries(0))
	must.Do(t, err)
	defer c.Close()
	got, err := c.Sandboxes.Questions(t.Context(), "i1", &QuestionsParams{After: 6})
	must.Do(t, err)
	if diff := cmp.Diff([]Question{{ID: 7, Host: "a.test", Port: 443}}, got); diff != "" {
		t.Error(diff)
	}
	if err := c.Sandboxes.Answer(t.Context(), "i1", &AnswerParams{ID: 7, Allow: true}); err != nil {
		t.Error(err)
	}
	asking := &NetworkParams{Egress: Egress{DenyOut: []string{AllTraffic}, Ask: true}}
	if err := c.Sandboxes.SetNetwork(t.Context(), "i1", asking); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{
		`GET /local/sandboxes/i1/asks?after=6 `, `POST /local/sandboxes/i1/asks {"id":7,"allow":true}`,
		`GET /local/features `, `PUT /sandboxes/i1/network {"denyOut":["0.0.0.0/0"],"ask":true}`,
	}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, features = range []string{"", `{}`, `{"ask":false}`} {
		calls = nil
		_, created := c.Sandboxes.Create(t.Context(), &CreateParams{Egress: &asking.Egress})
		changed := c.Sandboxes.SetNetwork(t.Context(), "i1", asking)
		for _, err := range []error{created, changed} {
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Egress.Ask") {
				t.Errorf("%q: got %v, want errors.ErrUnsupported that names Egress.Ask", features, err)
			}
		}
		if len(calls) != 2 {
			t.Errorf("%q: got the calls %v, want two for the features alone", features, calls)
		}
	}
	questions = `{"questions":[null]}`
	if _, err := c.Sandboxes.Questions(t.Context(), "i1", nil); err == nil {
		t.Error("a null was taken for a question")
	}
	if err := c.Sandboxes.Answer(t.Context(), "../i1", nil); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want ErrInvalidArgument", err)
	}
}
