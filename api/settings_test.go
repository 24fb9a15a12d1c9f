package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// closedTransport counts how often its idle connections were closed.
type closedTransport struct{ closed *int }

func (c closedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("unreachable")
}
func (c closedTransport) CloseIdleConnections() { *c.closed++ }

// TestSettingsOfAClient checks that each setting is the one that the client reports and uses, and that Close leaves the
// transport of the program alone.
func TestSettingsOfAClient(t *testing.T) {
	t.Parallel()
	closed := 0
	transport, logger := closedTransport{&closed}, slog.New(slog.DiscardHandler)
	c, err := NewClient(WithAPIKey(secret), WithDomain("d.test:1"), WithBaseURL("http://api.test/"), WithSandboxURL("http://s.test:2/"), WithVolumeURL("http://v.test/"), WithUserAgent("mine/1"), WithTransport(transport), WithLogger(logger), WithMaxRetries(7))
	must.Do(t, err)
	for name, got := range map[string][2]string{
		"domain": {c.Domain(), "d.test:1"}, "API": {c.BaseURL(), "http://api.test"}, "sandboxes": {c.SandboxURL(), "http://s.test:2"},
		"volumes": {c.volumeURL, "http://v.test"}, "agent": {c.UserAgent(), "mine/1 e2bctl-go/dev"}, "key": {string(c.key), secret},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: got %q, want %q", name, got[0], got[1])
		}
	}
	if c.Transport() != transport || c.Logger() != logger || c.retries != 7 {
		t.Errorf("got the transport %v, the logger %v and %d retries", c.Transport(), c.Logger(), c.retries)
	}
	must.Do(t, c.Close())
	must.Do(t, (*Client)(nil).Close())
	if closed > 0 {
		t.Error("Close closed connections of the program's transport")
	}
	usual, err := NewClient(WithAPIKey(secret))
	must.Do(t, err)
	got := []string{usual.SandboxURL(), usual.Domain(), usual.BaseURL()}
	if !slices.Equal(got, []string{"", defaultDomain, "https://api." + defaultDomain}) || usual.Logger() == nil || usual.retries != 3 {
		t.Errorf("got the settings %q and %d retries without options", got, usual.retries)
	}
	if own, ok := usual.Transport().(*http.Transport); !ok || own.MaxIdleConns != 512 || own.MaxIdleConnsPerHost != 512 || own == http.DefaultTransport {
		t.Errorf("got the transport %+v", usual.Transport())
	}
	must.Do(t, usual.Close())
}

// TestDialContext checks that the client's own pool opens its connections with the program's function.
func TestDialContext(t *testing.T) {
	t.Parallel()
	mine, asked := errors.New("mine"), ""
	c, err := NewClient(WithAPIKey(secret), WithMaxRetries(0), WithBaseURL("http://api.test"), WithDialContext(func(_ context.Context, network, address string) (net.Conn, error) {
		asked = network + " " + address
		return nil, mine
	}))
	must.Do(t, err)
	defer c.Close()
	_, err = c.Teams.List(t.Context())
	if must.Is(t, err, mine); asked != "tcp api.test:80" {
		t.Errorf("dialed %q", asked)
	}
}

// TestLogOfTheHTTPLibrary checks that each message of the HTTP library has its level, and is one short line.
func TestLogOfTheHTTPLibrary(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := restyLogger{slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for want, say := range map[string]func(string, ...any){"ERROR": l.Errorf, "WARN": l.Warnf, "DEBUG": l.Debugf} {
		log.Reset()
		say("a %s\n%s", "b", strings.Repeat("x", 2*maxMessage))
		if text := log.String(); !strings.Contains(text, "level="+want+" msg=\"a b") || strings.Count(text, "\n") != 1 || len(text) > maxMessage+200 {
			t.Errorf("%s: got %q", want, text)
		}
	}
}
