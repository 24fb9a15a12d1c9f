package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// recorded is a service that answers every call in the same way, and the calls it got.
func recorded(t *testing.T, status int, answer string) (*Client, func() []string) {
	t.Helper()
	calls := make(chan string, 100)
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		calls <- strings.TrimSpace(r.Method + " " + r.URL.Path + " " + string(body))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	})
	return c, func() (got []string) {
		for len(calls) > 0 {
			got = append(got, <-calls)
		}
		return got
	}
}

// TestPauseSendsWhatWasAskedFor checks that fields without a value are not sent, because the
// defaults of the service may change.
func TestPauseSendsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	c, calls := recorded(t, 204, "")
	for want, p := range map[string]*PauseParams{
		`{}`:                           nil,
		`{"memory":true}`:              {Mode: PauseFull},
		`{"memory":false}`:             {Mode: PauseFilesystem},
		`{"requireHealthyGuest":true}`: {RequireHealthyGuest: true},
	} {
		must.Do(t, c.Sandboxes.Pause(t.Context(), "i1", p))
		if diff := cmp.Diff([]string{"POST /sandboxes/i1/pause " + want}, calls()); diff != "" {
			t.Error(diff)
		}
	}
	if err := c.Sandboxes.Pause(t.Context(), "i1", &PauseParams{Mode: "disk"}); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), `"disk"`) {
		t.Errorf("got %v, want ErrInvalidArgument that names the mode", err)
	}
	if err := c.Sandboxes.Pause(t.Context(), "../x", nil); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want ErrInvalidArgument for an id that is none", err)
	}
	if got := calls(); got != nil {
		t.Errorf("bad arguments were sent: %q", got)
	}
}

func TestPauseIsNotRepeated(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{409: ErrConflict, 503: ErrUnavailable, 404: ErrNotFound} {
		c, calls := recorded(t, status, fmt.Sprintf(`{"code":%d,"message":"m"}`, status))
		if err := c.Sandboxes.Pause(t.Context(), "i1", nil); !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", status, err, want)
		}
		if n := len(calls()); n != 1 {
			t.Errorf("%d: %d calls, want 1", status, n)
		}
	}
	// A cut connection says nothing about whether the sandbox was paused.
	var cut atomic.Int32
	c := service(t, func(http.ResponseWriter, *http.Request) {
		cut.Add(1)
		panic(http.ErrAbortHandler)
	})
	if err := c.Sandboxes.Pause(t.Context(), "i1", nil); !errors.Is(err, ErrUnavailable) || cut.Load() != 1 {
		t.Errorf("%d calls: %v, want ErrUnavailable and one call", cut.Load(), err)
	}
}

func TestConnectSends(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{false, true} {
		prefix := map[bool]string{false: "/v2", true: ""}[legacy]
		c, calls := recorded(t, 201, `{"sandboxID":"i1"}`)
		c.legacy.Store(legacy)
		for want, p := range map[string]*ConnectParams{
			`{"timeout":300}`:                nil,
			`{"timeout":61}`:                 {Lifetime: time.Minute + 1},
			`{"timeout":300,"memory":false}`: {Reboot: true},
		} {
			_, err := c.Sandboxes.Connect(t.Context(), "i1", p)
			must.Do(t, err)
			if diff := cmp.Diff([]string{"POST " + prefix + "/sandboxes/i1/connect " + want}, calls()); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func TestCreateSendsTheLifecycle(t *testing.T) {
	t.Parallel()
	c, calls := recorded(t, 201, `{"sandboxID":"i1"}`)
	for want, p := range map[string]*CreateParams{
		``: {},
		`,"autoPause":true,"autoResume":{"enabled":true}`:                           {AutoPause: new(true), AutoResume: new(true)},
		`,"autoPause":false,"autoPauseMemory":false,"autoResume":{"enabled":false}`: {AutoPause: new(bool), AutoPauseMemory: new(bool), AutoResume: new(bool)},
	} {
		_, err := c.Sandboxes.Create(t.Context(), p)
		must.Do(t, err)
		if diff := cmp.Diff([]string{`POST /v2/sandboxes {"templateID":"base","timeout":300` + want + `}`}, calls()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestGetOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	c, _ := recorded(t, 200, `{"sandboxID":"i1","state":"paused","pauseMode":"filesystem","envdUnresponsiveAtPause":true,
		"lifecycle":{"autoResume":true,"onTimeout":"pause","later":1}}`)
	got, err := c.Sandboxes.Get(t.Context(), "i1")
	must.Do(t, err)
	want := &SandboxInfo{
		ID: "i1", State: StatePaused, PauseMode: PauseFilesystem, EnvdUnresponsiveAtPause: true,
		Lifecycle: &Lifecycle{OnTimeout: OnTimeoutPause, AutoResume: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhyASandboxEnded(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 13, 30, 0, 5000, time.UTC)
	for body, want := range map[string]Error{
		`"reason":"out_of_memory","endedAt":"2026-11-22T13:30:00.000005Z"`: {Reason: EndOutOfMemory, EndedAt: at},
		`"reason":"abducted"`:              {Reason: "abducted"},
		`"reason":"expired","endedAt":"x"`: {Reason: EndExpired},
		`"reason":{"a":1},"endedAt":5`:     {},
		`"reason":null`:                    {},
	} {
		c, _ := recorded(t, 404, `{"code":404,"message":"m",`+body+`}`)
		_, err := c.Sandboxes.Get(t.Context(), "i1")
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("got %v, want an *Error", err)
		}
		if e.Message != "m" || e.Reason != want.Reason || !e.EndedAt.Equal(want.EndedAt) {
			t.Errorf("of %s got %q, %q at %v, want %q, %q at %v", body, e.Message, e.Reason, e.EndedAt, "m", want.Reason, want.EndedAt)
		}
	}
}

func TestKeysAndTeams(t *testing.T) {
	t.Parallel()
	const id = "5b1d7a4e-0000-4000-8000-000000000001"
	const item = `{"id":"` + id + `","name":"ci","createdAt":"2026-11-22T13:30:00Z","lastUsed":null,
		"mask":{"prefix":"e2b_","valueLength":40,"maskedValuePrefix":"12","maskedValueSuffix":"cdef"}`
	created := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	want := APIKey{ID: id, Name: "ci", CreatedAt: created, Mask: KeyMask{"e2b_", 40, "12", "cdef"}}

	c, calls := recorded(t, 200, `[`+item+`}]`)
	keys, err := c.Keys.List(t.Context())
	must.Do(t, err)
	if diff := cmp.Diff([]APIKey{want}, keys); diff != "" {
		t.Error(diff)
	}
	if got, want := keys[0].Mask.String(), "e2b_12...cdef"; got != want {
		t.Errorf("got mask %s, want %s", got, want)
	}

	c, made := recorded(t, 201, item+`,"key":"e2b_1234"}`)
	key, err := c.Keys.Create(t.Context(), "ci")
	must.Do(t, err)
	want.Key = "e2b_1234"
	if diff := cmp.Diff(&want, key); diff != "" {
		t.Error(diff)
	}
	if text, err := json.Marshal(key); err != nil || strings.Contains(string(text)+fmt.Sprintf("%+v", *key), "1234") {
		t.Errorf("the key shows: %s, %+v, %v", text, *key, err)
	}

	c, changed := recorded(t, 204, "")
	if err := c.Keys.Rename(t.Context(), id, "cd"); err != nil {
		t.Error(err)
	}
	if err := c.Keys.Delete(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := c.Keys.Delete(t.Context(), "a/b"); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), "key") {
		t.Errorf("got %v, want ErrInvalidArgument about a key", err)
	}

	c, listed := recorded(t, 200, `[{"teamID":"t1","name":"local","apiKey":"e2b_1","isDefault":true}]`)
	teams, err := c.Teams.List(t.Context())
	must.Do(t, err)
	if diff := cmp.Diff([]Team{{ID: "t1", Name: "local", APIKey: "e2b_1", IsDefault: true}}, teams); diff != "" {
		t.Error(diff)
	}

	var got []string
	for _, of := range []func() []string{calls, made, changed, listed} {
		got = append(got, of()...)
	}
	if diff := cmp.Diff([]string{
		"GET /api-keys", `POST /api-keys {"name":"ci"}`, `PATCH /api-keys/` + id + ` {"name":"cd"}`, "DELETE /api-keys/" + id, "GET /teams",
	}, got); diff != "" {
		t.Error(diff)
	}
}
