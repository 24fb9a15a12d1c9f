package sandbox

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/must"
)

// dripping is a transport on which the sandbox's answers never end: a blank
// arrives each second. With a status of 0 the answers do not even begin.
type dripping struct{ status int }

func (d dripping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("E2b-Sandbox-Port") == "" {
		return memory(func(*http.Request) (int, string) { return http.StatusCreated, `{"sandboxID":"i1"}` }).RoundTrip(r)
	}
	if d.status == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	header := http.Header{"Content-Type": {r.Header.Get("Content-Type")}}
	return &http.Response{StatusCode: d.status, Header: header, Body: dripBody{r.Context()}, Request: r}, nil
}

type dripBody struct {
	ctx context.Context //nolint:containedctx // the request's
}

func (d dripBody) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		return copy(p, " "), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (dripBody) Close() error { return nil }

// No answer that is read whole blocks its caller forever.
func TestDrippingAnswers(t *testing.T) {
	t.Parallel()
	code := func(ctx context.Context, sb *Sandbox) error {
		_, err := sb.RunCode(ctx, "1", nil)
		return err
	}
	contexts := func(ctx context.Context, sb *Sandbox) error {
		_, err := sb.Contexts.List(ctx)
		return err
	}
	for name, test := range map[string]struct {
		call   func(context.Context, *Sandbox) error
		status int
		limit  time.Duration
	}{
		"contexts":           {contexts, 200, time.Minute},
		"contexts, no head":  {contexts, 0, restHead},
		"contexts, an error": {contexts, 500, time.Minute},
		"code, an error":     {code, 500, time.Minute},
		"read, an error": {func(ctx context.Context, sb *Sandbox) error {
			_, err := sb.Files.Read(ctx, "x", nil)
			return err
		}, 500, time.Minute},
		"list": {func(ctx context.Context, sb *Sandbox) error {
			_, err := sb.Files.List(ctx, "x", nil)
			return err
		}, 200, time.Minute},
		"list, an error": {func(ctx context.Context, sb *Sandbox) error {
			_, err := sb.Files.List(ctx, "x", nil)
			return err
		}, 502, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(dripping{test.status}), WithDefaults(WithCodeTransport(CodeTransportHTTP)))
				must.Do(t, err)
				defer c.Close()
				sb, err := c.Create(t.Context())
				must.Do(t, err)
				defer sb.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				start := time.Now()
				err = test.call(ctx, sb)
				// After that the client checks whether the sandbox still exists.
				if took := time.Since(start); err == nil || took < test.limit || took > test.limit+20*time.Second {
					t.Errorf("%v after %v, want an error after %v", err, took, test.limit)
				}
				if slow, ok := errors.AsType[*httpwait.SlowError](err); test.status == 200 && (!ok || !errors.Is(err, api.ErrTimeout) || !strings.Contains(err.Error(), slow.Error())) {
					t.Errorf("%v does not say that the answer was too slow", err)
				}
			})
		})
	}
}
