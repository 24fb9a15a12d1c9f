package kernelconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTimesOfRequests checks when the next requests are sent after one that was given up, their content, and when the
// wait for the interpreter ends.
func TestTimesOfRequests(t *testing.T) {
	t.Parallel()
	refuses := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "refused", http.StatusConflict) }
	const (
		code  = `{"code":"x","context_id":"c","language":"bash","env_vars":{"A":"1"}}`
		empty = `{"code":"","context_id":"c","language":"bash"}`
	)
	for name, tt := range map[string]struct {
		answers []http.HandlerFunc
		within  time.Duration // the limit of the caller
		want    []string
		cut     bool // another request has to wait, too
		err     error
		text    string
	}{
		"it runs code": {[]http.HandlerFunc{answersAll}, time.Hour, []string{"500ms " + empty, "500ms " + code, "500ms end"}, false, nil, ""},
		"after a while": {[]http.HandlerFunc{drops, drops, answersAll}, time.Hour,
			[]string{"500ms " + empty, "11s " + empty, "21.5s " + empty, "21.5s " + code, "21.5s end"}, false, nil, ""},
		"never":                         {[]http.HandlerFunc{drops}, time.Hour, []string{"500ms " + empty, "11s " + empty, "21.5s " + empty, "31.5s end"}, true, api.ErrRetryable, "within 30s"},
		"it refuses":                    {[]http.HandlerFunc{refuses}, time.Hour, []string{"500ms " + empty, "500ms " + code, "500ms end"}, false, api.ErrConflict, "refused"},
		"given up before the request":   {[]http.HandlerFunc{drops}, 400 * time.Millisecond, []string{"400ms end"}, true, context.DeadlineExceeded, "being interrupted"},
		"given up in the empty request": {[]http.HandlerFunc{drops}, 3 * time.Second, []string{"500ms " + empty, "3s end"}, true, context.DeadlineExceeded, "being interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onClock(t, func(t *testing.T, s *server) {
				s.execute = runsOn
				ks := s.kernels()
				call := HTTPCall{Code: "x", Context: "c", Language: "bash", Envs: map[string]string{"A": "1"}}
				_, err := ks.ExecuteOverHTTP(cancelling(t, time.Second), call)
				given, ok := errors.AsType[*InterruptedError](err)
				if !ok || given.Context != "c" || given.Starting || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the first call: got %+v, want that it was given up", err)
				}
				j, n := newJournal(), 0
				s.execute = func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					j.note("%s", body)
					n++
					tt.answers[min(n, len(tt.answers))-1](w, r)
				}
				started, err := ks.ExecuteOverHTTP(cancelling(t, tt.within), call)
				j.note("end")
				if !errors.Is(err, tt.err) || !strings.Contains(fmt.Sprint(err), tt.text) || started != (err == nil) {
					t.Errorf("got %v, started %v, want %v with %q", err, started, tt.err, tt.text)
				}
				if notSent := err != nil && tt.cut; errors.Is(err, ErrNotSent) != notSent || len(ks.requests) > 0 != tt.cut {
					t.Errorf("got %v and %d turns, want that it was not sent: %v", err, len(ks.requests), notSent)
				}
				j.check(t, tt.want...)
			})
		})
	}
}

// TestRequestGivenUpBeforeItsAnswer checks that the code of a request without an answer may run: the next request waits.
func TestRequestGivenUpBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	onClock(t, func(t *testing.T, s *server) {
		s.execute = func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		ks, began := s.kernels(), time.Now()
		started, err := ks.ExecuteOverHTTP(cancelling(t, time.Second), HTTPCall{Code: "x"})
		if !errors.Is(err, context.DeadlineExceeded) || started {
			t.Errorf("got %v, started %v, want that it was given up before its answer", err, started)
		}
		if turn := ks.requests["python"]; turn == nil || !turn.cut.Equal(began.Add(time.Second)) {
			t.Errorf("got the turn %+v, want a cut after a second", turn)
		}
	})
}

// TestPlacesInTheQueue checks the number of calls and requests before each one that waits.
func TestPlacesInTheQueue(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ks := s.kernels()
	enough := errors.New("enough")
	k := &Kernel{kernels: ks, id: testContext, turn: make(chan struct{}, 1)}
	must.Do(t, k.takeTurn(t.Context(), func(int) error { t.Error("the first call waits"); return nil }))
	turn, err := ks.takeRequestTurn(t.Context(), HTTPCall{Queued: func(int) error { t.Error("the first request waits"); return nil }})
	must.Do(t, err)
	var places []int
	var wait func(left int) error
	wait = func(left int) error {
		place := func(n int) error {
			places = append(places, n)
			if left == 1 {
				return enough
			}
			return wait(left - 1)
		}
		_, err := ks.takeRequestTurn(t.Context(), HTTPCall{Queued: place})
		return err
	}
	must.Is(t, wait(3), enough)
	wait = func(left int) error {
		return k.takeTurn(t.Context(), func(n int) error {
			places = append(places, n)
			if left == 1 {
				return enough
			}
			return wait(left - 1)
		})
	}
	must.Is(t, wait(3), enough)
	if got := fmt.Sprint(places); got != "[1 2 3 1 2 3]" {
		t.Errorf("the places in the queues are %s, want [1 2 3 1 2 3]", got)
	}
	k.release()
	ks.releaseRequestTurn(turn)
	if n := k.inTurn.Load(); n != 0 || len(k.turn) > 0 || len(ks.requests) > 0 {
		t.Errorf("%d calls and %d requests are left, want none", n, len(ks.requests))
	}
	// A call that left the turn, but is still counted, is one that runs.
	k.turn <- struct{}{}
	must.Is(t, k.waitForTurn(t.Context(), 0, func(n int) error { places = append(places, n); return enough }), enough)
	if last := places[len(places)-1]; last != 1 {
		t.Errorf("got the place %d, want 1", last)
	}
}
