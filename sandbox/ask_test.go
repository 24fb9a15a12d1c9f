package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// asks makes the service ask about hosts once.
func (s *service) asks(hosts ...string) {
	ended := make(chan struct{})
	s.t.Cleanup(func() { close(ended) })
	var once sync.Once
	s.control = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/local/features":
			w.WriteHeader(200)
			fmt.Fprint(w, `{"ask":true}`)
		case !strings.HasSuffix(r.URL.Path, "/asks"):
		case r.Method == http.MethodPost:
			w.WriteHeader(204)
		default:
			w.WriteHeader(200)
			var questions []string
			once.Do(func() {
				for i, host := range hosts {
					questions = append(questions, fmt.Sprintf(`{"id":%d,"host":%q,"port":443}`, i+1, host))
				}
			})
			fmt.Fprintf(w, `{"questions":[%s]}`, strings.Join(questions, ","))
			if questions == nil {
				select {
				case <-r.Context().Done():
				case <-ended:
				}
			}
		}
	}
}

// TestAsk checks that each question is answered, whatever Ask does, and that an Ask that
// never returns does not hold up Close.
func TestAsk(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.asks("yes.test", "no.test", "panic.test", "exit.test", "never.test")
	log := &lockedBuffer{}
	asked, ended, forever := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer close(forever)
	c := s.client(WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	sb, err := c.Create(t.Context(), WithNetwork(Network{DenyOut: []string{"10.0.0.0/8"}}), WithAsk(func(ctx context.Context, host string, port int) bool {
		switch host {
		case "panic.test":
			panic("no idea")
		case "exit.test":
			runtime.Goexit()
		case "never.test":
			close(asked)
			<-ctx.Done()
			close(ended)
			<-forever
		}
		return host == "yes.test" && port == 443
	}))
	must.Do(t, err)
	defer sb.Close()
	if n := s.seen(`POST /v2/sandboxes {"templateID":"code-interpreter-v1","timeout":300,"network":{"denyOut":["10.0.0.0/8","0.0.0.0/0"],"ask":true}}`); n != 1 {
		t.Errorf("got %v, want a creation that asks and denies the rest", s.calls)
	}
	for id, allow := range map[int]bool{1: true, 2: false, 3: false, 4: false} {
		want := fmt.Sprintf(`POST /local/sandboxes/%s/asks {"id":%d,"allow":%t}`, testID, id, allow)
		patience.Until(t, want, func() bool { return s.seen(want) == 1 })
	}
	if got := log.String(); !strings.Contains(got, "no idea") || !strings.Contains(got, "ask_test.go") {
		t.Errorf("logged is %q, want the panic with its stack", got)
	}
	<-asked
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	if n := s.seen(`POST /local/sandboxes/` + testID + `/asks {"id":5`); n != 0 {
		t.Errorf("the last question was answered %d times, want 0", n)
	}
}

// A service that does not ask would leave hosts unasked: the error names the field, and
// nothing was made or changed.
func TestAskUnsupported(t *testing.T) {
	t.Parallel()
	s := newService(t)
	ask := WithAsk(func(context.Context, string, int) bool { return true })
	for _, answer := range []struct {
		status int
		text   string
	}{{404, `{"code":404,"message":"no such path"}`}, {200, `{}`}} {
		s.control = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/local/features" {
				w.WriteHeader(answer.status)
				fmt.Fprint(w, answer.text)
			}
		}
		if _, err := s.client().Create(t.Context(), ask); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "Egress.Ask") {
			t.Errorf("%d: got %v, want errors.ErrUnsupported that names Egress.Ask", answer.status, err)
		}
		if n := s.seen("POST"); n != 0 {
			t.Errorf("%d: made %d sandboxes, want 0", answer.status, n)
		}
	}
	if _, err := s.client().Connect(t.Context(), testID, ask); !errors.Is(err, errors.ErrUnsupported) || s.seen("/connect") != 0 {
		t.Errorf("connect: got %v and %d requests, want errors.ErrUnsupported and none, which would resume it", err, s.seen("/connect"))
	}
	s.control = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/local/features" {
			w.WriteHeader(500)
		}
	}
	if _, err := s.client().Create(t.Context(), ask); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want the error of the service", err)
	}
}

// TestAskLater checks that a sandbox that was connected to asks, too, about hosts that its rules
// do not name.
func TestAskLater(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.asks("a.test")
	c := s.client()
	sb, err := c.Connect(t.Context(), testID, WithAsk(func(context.Context, string, int) bool { return true }))
	must.Do(t, err)
	defer sb.Close()
	answered := `POST /local/sandboxes/` + testID + `/asks {"id":1,"allow":true}`
	patience.Until(t, "the question is answered", func() bool { return s.seen(answered) == 1 })
	silent, err := c.Connect(t.Context(), testID)
	must.Do(t, err)
	defer silent.Close()
	for sb, want := range map[*Sandbox]string{
		sb:     `{"allowOut":["b.test"],"denyOut":["0.0.0.0/0"],"ask":true}`,
		silent: `{"allowOut":["b.test"],"denyOut":["0.0.0.0/0"]}`,
	} {
		must.Do(t, sb.SetNetwork(t.Context(), Network{AllowOut: []string{"b.test"}, DenyOut: []string{AllTraffic}}))
		if n := s.seen("PUT /sandboxes/" + testID + "/network " + want); n != 1 {
			t.Errorf("got %v, want the rules %s", s.calls, want)
		}
	}
}
