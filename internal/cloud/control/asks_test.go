package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/must"
)

// seenContext is a context that calls seen whenever its Done is called.
type seenContext struct {
	context.Context //nolint:containedctx // it is one

	seen func()
}

func (c seenContext) Done() <-chan struct{} {
	c.seen()
	return c.Context.Done()
}

// asking returns the id of a sandbox with rules that ask, and a function that has it ask about a host, once.
// At the end of the test it no longer asks.
func (s *service) asking(t *testing.T, host string) (id string, ask func()) {
	t.Helper()
	id = s.mustCreate(t, `{"templateID":"base","network":{"ask":true,"allowOut":["a.test"],"denyOut":["0.0.0.0/0"]}}`)
	asks, err := s.registry.Asks(id)
	must.Do(t, err)
	var asked sync.WaitGroup
	t.Cleanup(asked.Wait) // the context of the test has ended by then
	return id, sync.OnceFunc(func() {
		asked.Go(func() { _, _ = asks.Allow(t.Context(), network.Target{Host: host, Port: 443}, nil) })
	})
}

// TestAsksWait checks that a request for questions waits until there is a question.
func TestAsksWait(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, ask := s.asking(t, "late.test")
	r := httptest.NewRequestWithContext(seenContext{t.Context(), ask}, "GET", "/local/sandboxes/"+id+"/asks", nil)
	r.SetPathValue("id", id)
	w := httptest.NewRecorder()
	if err := s.asks(w, r); err != nil || !strings.Contains(w.Body.String(), "late.test") {
		t.Errorf("got %s and error %v, want the question that came while it waited", w.Body, err)
	}
}

// TestNoAsks checks that an answer without questions has an empty list.
func TestNoAsks(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", "/local/sandboxes/"+id+"/asks", nil)
	r.SetPathValue("id", id)
	w := httptest.NewRecorder()
	if err := s.asks(w, r); err != nil || w.Body.String() != `{"questions":[]}` {
		t.Errorf("got %s and error %v, want an empty list", w.Body, err)
	}
}

// question returns the id of the open question of a sandbox. It fails the test unless there is
// exactly one, about this host and port.
func (s *service) question(t *testing.T, path, host string, port int) (id string) {
	t.Helper()
	resp, text := s.do(t, "GET", path, "")
	var got struct {
		Questions []struct {
			ID   json.Number
			Host string
			Port int
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || resp.StatusCode != 200 || len(got.Questions) != 1 {
		t.Fatalf("got %d %s, want one question", resp.StatusCode, text)
	}
	if q := got.Questions[0]; q.Host != host || q.Port != port {
		t.Fatalf("got %s, want a question about port %d of %s", text, port, host)
	}
	return got.Questions[0].ID.String()
}

// TestAsks checks that a question about a sandbox reaches each client that asks for it,
// and that the answer holds for the sandbox.
func TestAsks(t *testing.T) {
	t.Parallel()
	s := start(t)
	const features = `{"architecture":"s390x","ask":true,"engines":true,"idle":true,"image":true,"mounts":true,"requests":true,"resize":true,"resources":true,"stages":true}`
	if _, got := s.do(t, "GET", "/local/features", ""); got != features {
		t.Errorf("got the features %s, want %s", got, features)
	}
	id := s.mustCreate(t, `{"templateID":"base","network":{"ask":true,"allowOut":["a.test"],"denyOut":["0.0.0.0/0"]}}`)
	spec := s.fakes.Spec(id)
	if !spec.Egress.Asks() || spec.Asks == nil {
		t.Fatalf("got rules that ask: %t, and %v to ask with, want both", spec.Egress.Asks(), spec.Asks)
	}
	if network, _ := s.must(t, "GET", "/sandboxes/"+id, "", 200)["network"].(map[string]any); network["ask"] != true {
		t.Errorf("reported is %v, want ask", network)
	}
	rules := make(chan string)
	path := "/local/sandboxes/" + id + "/asks"
	last := "0"
	for host, allow := range map[string]bool{"yes.test": true, "no.test": false} {
		go func() {
			rule, _ := spec.Asks.Allow(t.Context(), network.Target{Host: host, Port: 443}, nil)
			rules <- rule
		}()
		last = s.question(t, path+"?after="+last, host, 443)
		answer := fmt.Sprintf(`{"id":%s,"allow":%t}`, last, allow)
		s.must(t, "POST", path, answer, 204)
		if rule := <-rules; (rule == "") != allow {
			t.Errorf("%s: got the denial %q, want allowed %t", host, rule, allow)
		}
		s.must(t, "POST", path, answer, 409)
	}

	// Answers hold over a pause, changes of the rules and a resume.
	s.must(t, "PUT", "/sandboxes/"+id+"/network", `{}`, 204)
	if s.fakes.Fake(id).Rules().Asks() {
		t.Error("it asks after a change to rules that do not")
	}
	s.must(t, "PUT", "/sandboxes/"+id+"/network", `{"ask":true,"denyOut":["0.0.0.0/0"]}`, 204)
	if !s.fakes.Fake(id).Rules().Asks() {
		t.Error("it does not ask after a change to rules that do")
	}
	s.must(t, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`, 204)
	s.must(t, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":60}`, 201)
	again := s.fakes.Spec(id)
	if rule, err := again.Asks.Allow(t.Context(), network.Target{Host: "yes.test", Port: 443}, nil); rule != "" || err != nil || !again.Egress.Asks() {
		t.Errorf("after a resume: got %q, %v, want no denial", rule, err)
	}

	// Children ask again.
	_, text := s.do(t, "POST", "/sandboxes/"+id+"/fork", `{"timeout":60}`)
	var forks []struct{ Sandbox struct{ SandboxID string } }
	if err := json.Unmarshal([]byte(text), &forks); err != nil || len(forks) != 1 {
		t.Fatalf("got %s, %v, want one fork", text, err)
	}
	child := s.fakes.Spec(forks[0].Sandbox.SandboxID)
	if !child.Egress.Asks() || child.Asks == spec.Asks {
		t.Errorf("the child asks %t with the answers of its parent %t, want true and false", child.Egress.Asks(), child.Asks == spec.Asks)
	}

	gone := "/local/sandboxes/" + strings.Repeat("x", 21) + "/asks"
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", path + "?after=x", "", 400},
		{"GET", path + "?after=-1", "", 400},
		{"POST", path, `{"id":"x"}`, 400},
		{"POST", path, "", 400},
		{"GET", gone, "", 404},
		{"POST", gone, `{"id":1}`, 404},
		{"POST", "/v2/sandboxes", `{"templateID":"base","network":{"ask":true}}`, 400},
		{"PUT", "/sandboxes/" + id + "/network", `{"ask":true}`, 400},
		{"PUT", "/sandboxes/" + id + "/network", `{"ask":1}`, 400},
	} {
		if resp, text := s.do(t, tt.method, tt.path, tt.body); resp.StatusCode != tt.status {
			t.Errorf("%s %s %s: got %d %s, want %d", tt.method, tt.path, tt.body, resp.StatusCode, text, tt.status)
		}
	}
}
