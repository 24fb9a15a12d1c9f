package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// scripted is a connection whose client sends some messages, and then ends its input.
type scripted struct {
	sdk.Connection
	messages []jsonrpc.Message
	failed   error // the error of writes
}

func (s *scripted) Connect(context.Context) (sdk.Connection, error) { return s, s.failed }

func (s *scripted) Read(context.Context) (jsonrpc.Message, error) {
	if len(s.messages) == 0 {
		return nil, io.EOF
	}
	m := s.messages[0]
	s.messages = s.messages[1:]
	return m, nil
}

func (s *scripted) Write(context.Context, jsonrpc.Message) error { return s.failed }
func (s *scripted) Close() error                                 { return nil }

// request returns a call, or without an id a notification.
func request(t *testing.T, id any, method, params string) *jsonrpc.Request {
	t.Helper()
	r := &jsonrpc.Request{Method: method, Params: json.RawMessage(params)}
	var err error
	if id != nil {
		r.ID, err = jsonrpc.MakeID(id)
		must.Do(t, err)
	}
	return r
}

// TestEndOfInput checks for how long the end of the input is kept from the library: until all calls are answered or
// cancelled, or nobody can read the answers.
func TestEndOfInput(t *testing.T) {
	t.Parallel()
	answerTo := func(t *testing.T, c sdk.Connection, ids ...any) {
		for _, id := range ids {
			_ = c.Write(t.Context(), &jsonrpc.Response{ID: request(t, id, "", "").ID}) // some tests let it fail
		}
	}
	for name, tt := range map[string]struct {
		before, after []any // ids of the calls that are answered before the end of the input, and a second after it
		cancelled     string
		failed        error
		end           func(c sdk.Connection, cancel context.CancelFunc)
		want          time.Duration
	}{
		"all answered":        {before: []any{1.0, "1"}, want: 0},
		"answered later":      {after: []any{1.0, "1"}, want: time.Second},
		"one answered later":  {before: []any{"1"}, after: []any{1.0}, want: time.Second},
		"never answered":      {after: []any{1.0}, want: time.Minute},
		"another is answered": {before: []any{"1"}, after: []any{2.0}, want: time.Minute},
		"cancelled":           {before: []any{1.0}, cancelled: `{"requestId":"1"}`, want: 0},
		"cancelled by number": {before: []any{"1"}, cancelled: `{"requestId":1}`, want: 0},
		"another cancelled":   {before: []any{"1"}, cancelled: `{"requestId":2}`, want: time.Minute},
		"nobody reads":        {after: []any{1.0}, failed: io.ErrClosedPipe, want: time.Second},
		"closed":              {end: func(c sdk.Connection, _ context.CancelFunc) { _ = c.Close() }, want: time.Second},
		"stopped":             {end: func(_ sdk.Connection, cancel context.CancelFunc) { cancel() }, want: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &scripted{messages: []jsonrpc.Message{request(t, 1.0, "ping", ""), request(t, "1", "ping", ""), request(t, nil, "notifications/other", `{"requestId":1}`)}}
			if tt.cancelled != "" {
				inner.messages = append(inner.messages, request(t, nil, "notifications/cancelled", tt.cancelled))
			}
			read := len(inner.messages)
			c, err := (&answering{Transport: inner, out: io.Discard, patience: time.Minute}).Connect(t.Context())
			must.Do(t, err)
			for range read {
				if m, err := c.Read(t.Context()); m == nil || err != nil {
					t.Fatalf("%s: got %v and error %v, want a message", name, m, err)
				}
			}
			answerTo(t, c, tt.before...)
			inner.failed = tt.failed
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Second, func() {
				answerTo(t, c, tt.after...)
				if tt.end != nil {
					tt.end(c, cancel)
				}
			})
			began := time.Now()
			if m, err := c.Read(ctx); m != nil || !errors.Is(err, io.EOF) {
				t.Errorf("%s: got %v and error %v, want the end", name, m, err)
			}
			if took := time.Since(began); took != tt.want {
				t.Errorf("%s: the end came after %v, want %v", name, took, tt.want)
			}
			<-time.After(time.Minute)
			must.Do(t, errors.Join(c.Close(), c.Close()))
		})
	}
	broken := errors.New("no connection")
	if c, err := (&answering{Transport: &scripted{failed: broken}}).Connect(t.Context()); c != nil || !errors.Is(err, broken) {
		t.Errorf("got %v and error %v, want %v", c, err, broken)
	}
}
