package control

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

func (s *service) createWith(t *testing.T, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v2/sandboxes", strings.NewReader(body))
	must.Do(t, err)
	r.Header.Set("X-API-KEY", testKey)
	r.Header.Set("Idempotency-Key", key)
	resp, text := send(t, r)
	return resp.StatusCode, text
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body = `{"templateID":"base","metadata":{"a":"b"}}`
	var answers sync.Map
	var work sync.WaitGroup
	for range 8 { // at once
		work.Go(func() {
			status, text := s.createWith(t, "key-1", body)
			answers.Store(fmt.Sprint(status, text), true)
		})
	}
	work.Wait()
	count := 0
	answers.Range(func(any, any) bool { count++; return true })
	if count != 1 || len(s.fakes.IDs()) != 1 {
		t.Errorf("%d answers, %d sandboxes, want one", count, len(s.fakes.IDs()))
	}
	if status, text := s.createWith(t, "key-1", `{"templateID":"base"}`); status != 422 {
		t.Errorf("other request: %d %s, want 422", status, text)
	}
	if status, text := s.createWith(t, "key-2", body); status != 201 || len(s.fakes.IDs()) != 2 {
		t.Errorf("other key: %d %s, want 201 and a second sandbox", status, text)
	}
	for _, key := range []string{"A", "ä", strings.Repeat("a", 256)} {
		if status, text := s.createWith(t, key, body); status != 400 {
			t.Errorf("%.5q: got %d %s, want 400", key, status, text)
		}
	}
}

// TestIdempotencyOfSealed checks that a repeated request with a password counts as the same
// request, although the password is sealed differently each time.
func TestIdempotencyOfSealed(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body = `{"templateID":"base","network":{"egressProxy":{"address":"proxy.test:1080","username":"u","password":"p"}}}`
	for range 2 {
		if status, text := s.createWith(t, "key", body); status != 201 || len(s.fakes.IDs()) != 1 {
			t.Errorf("got %d %s and %d sandboxes, want 201 and one", status, text, len(s.fakes.IDs()))
		}
	}
	if status, text := s.createWith(t, "key", strings.Replace(body, "proxy.test", "other.test", 1)); status != 422 {
		t.Errorf("other proxy: %d %s, want 422", status, text)
	}
}

// TestIdempotencyOfFailures checks that a request that failed can be repeated with the same key.
func TestIdempotencyOfFailures(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fakes.Fail(http.ErrAbortHandler)
	if status, _ := s.createWith(t, "key", `{"templateID":"base"}`); status != 500 {
		t.Errorf("want a failure, got %d", status)
	}
	s.fakes.Fail(nil)
	if status, text := s.createWith(t, "key", `{"templateID":"base"}`); status != 201 {
		t.Errorf("got %d %s, want 201", status, text)
	}
}
