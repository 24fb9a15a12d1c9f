package control

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle/lifecycletest"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// api is a service that is called without a network.
type api struct{ *Service }

func newAPI(t *testing.T, st *store.Store, change ...func(*Options)) api {
	t.Helper()
	r := lifecycle.New(lifecycle.Options{Launch: (&lifecycletest.Fakes{}).Launch, Store: st})
	t.Cleanup(func() { _ = r.Close() })
	o := Options{Key: testKey, Sandboxes: r, Store: st, Resources: Resources{CPUs: 2, MemoryMB: 2048, DiskMB: 1024}}
	for _, c := range change {
		c(&o)
	}
	return api{New(o)}
}

// call sends a request with headers, which are given as pairs of name and value. Unless v is nil,
// call decodes the answer into v.
func (a api) call(t *testing.T, method, path, body string, want int, v any, headers ...string) http.Header {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Body)
	if w.Code != want {
		t.Fatalf("%s %s: got %d %s, want %d", method, path, w.Code, text, want)
	}
	if v != nil {
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
	}
	return w.Header()
}

// TestKeys checks that keys are created, used, renamed and deleted, and that they outlive the
// server without their values.
func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := []string{"X-API-KEY", testKey}
	st, err := store.Open(t.Context(), dir)
	must.Do(t, err)
	a := newAPI(t, st)
	var made, other keyAnswer
	a.call(t, "POST", "/api-keys", `{"name":"ci"}`, 201, &made, first...)
	a.call(t, "POST", "/api-keys", `{"name":"laptop"}`, 201, &other, "Authorization", "Bearer "+made.Key, "X-Team-ID", teamID)
	if want := (keyMask{"e2b_", 40, made.Key[4:6], made.Key[40:]}); len(made.Key) != 44 || made.Mask != want || made.LastUsed != nil {
		t.Errorf("made %+v, want a key of 44 characters with the mask %+v that was never used", made, want)
	}
	var teams []map[string]any
	a.call(t, "GET", "/teams", ``, 200, &teams, "Authorization", "Bearer "+made.Key)
	if diff := cmp.Diff([]map[string]any{{"teamID": teamID, "name": "local", "apiKey": made.Key, "isDefault": true}}, teams); diff != "" {
		t.Errorf("teams (-want +got):\n%s", diff)
	}
	var one keyAnswer
	if a.call(t, "PATCH", "/api-keys/"+made.ID, `{"name":"CI"}`, 200, &one, "Authorization", "Bearer "+made.Key); one.Name != "CI" || one.ID != made.ID || one.Mask != made.Mask {
		t.Errorf("renamed: got %+v, want %s with another name", one, made.ID)
	}
	a.call(t, "PATCH", "/api-keysx/"+made.ID, `{"name":"CI"}`, 401, nil, "Authorization", "Bearer "+made.Key)
	a.call(t, "GET", "/sandboxes", ``, 401, nil, "Authorization", "Bearer "+made.Key)
	var renamed []keyAnswer
	if a.call(t, "GET", "/api-keys", ``, 200, &renamed, first...); len(renamed) != 3 || renamed[1].Name != "CI" || renamed[2].Name != "laptop" {
		t.Errorf("after it was renamed: got %+v, want the first key, CI and laptop", renamed)
	}
	a.call(t, "DELETE", "/api-keys/"+other.ID, ``, 204, nil, "X-API-KEY", other.Key)
	a.call(t, "GET", "/sandboxes", ``, 401, nil, "X-API-KEY", other.Key)
	a.call(t, "GET", "/sandboxes", ``, 200, nil, "X-API-KEY", made.Key)
	must.Do(t, st.Close())

	st, err = store.Open(t.Context(), dir)
	must.Do(t, err)
	defer st.Close()
	a = newAPI(t, st, func(o *Options) { o.Key = "my own" })
	own := []string{"X-API-KEY", "my own"}
	a.call(t, "GET", "/sandboxes", ``, 401, nil, first...)
	a.call(t, "GET", "/sandboxes", ``, 401, nil, "X-API-KEY", other.Key)
	a.call(t, "GET", "/sandboxes", ``, 200, nil, "X-API-KEY", made.Key)
	var listed []keyAnswer
	a.call(t, "GET", "/api-keys", ``, 200, &listed, own...)
	if len(listed) != 2 || listed[0].ID != firstKeyID || listed[1].LastUsed == nil {
		t.Fatalf("got %+v, want the first key and one that was used", listed)
	}
	listed[1].LastUsed = nil
	want := []keyAnswer{
		{ID: firstKeyID, Name: "local", Mask: keyMask{ValueLength: 6}, CreatedAt: listed[0].CreatedAt, LastUsed: listed[0].LastUsed},
		{ID: made.ID, Name: "CI", Mask: made.Mask, CreatedAt: made.CreatedAt},
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("keys after a restart (-want +got):\n%s", diff)
	}
	records, err := st.Records(store.Keys)
	if err != nil || len(records) != 1 || strings.Contains(string(records[0].Value), made.Key[4:]) {
		t.Errorf("stored %s, %v, want one key without its value", records, err)
	}
}

// TestLastUseIsNoted checks that the last use of a key is reported at once, and stored at most once
// a minute.
func TestLastUseIsNoted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := store.Temporary(t.TempDir())
		k := newKeyring(Options{Key: testKey, Store: st, Rate: RateLimit{}.withDefaults(), Logger: slog.New(slog.DiscardHandler)})
		made, value, err := k.create("a")
		must.Do(t, err)
		began := time.Now().UTC()
		stored := began
		for n := range 8 {
			if n == 5 { // a restart, less than a minute after the latest note
				k = newKeyring(Options{Key: testKey, Store: st, Rate: RateLimit{}.withDefaults(), Logger: slog.New(slog.DiscardHandler)})
			}
			key, ok := k.use(value)
			if now := time.Now().UTC(); !ok || !key.LastUsed.Equal(now) {
				t.Errorf("got %v and the last use %v, want %v", ok, key.LastUsed, now)
			}
			if now := time.Now().UTC(); now.Sub(stored) >= useNoted {
				stored = now
			}
			records, err := st.Records(store.Keys)
			must.Do(t, err)
			var record apiKey
			must.Do(t, json.Unmarshal(records[0].Value, &record))
			if records[0].ID != made.ID || !record.LastUsed.Equal(stored) {
				t.Errorf("after %v: stored is %v, want %v", time.Since(began), record.LastUsed, stored)
			}
			<-time.After(25 * time.Second)
		}
	})
}

func TestKeyErrors(t *testing.T) {
	t.Parallel()
	a := newAPI(t, store.Temporary(t.TempDir()))
	var made keyAnswer
	a.call(t, "POST", "/api-keys", `{"name":"a"}`, 201, &made, "X-API-KEY", testKey)
	for _, tt := range []struct {
		method, path, body string
		status             int
		message            string
		headers            []string
	}{
		{"POST", "/api-keys", ``, 400, "validation error: the request has no body", nil},
		{"POST", "/api-keys", `{}`, 400, "validation error: name must have 1 to 128 characters", nil},
		{"POST", "/api-keys", `{"name":null}`, 400, "validation error: name must have 1 to 128 characters", nil},
		{"POST", "/api-keys", `{"name":1}`, 400, "validation error: name must be a string, not number", nil},
		{"POST", "/api-keys", `{"name":"` + strings.Repeat("é", 129) + `"}`, 400, "validation error: name must have 1 to 128 characters", nil},
		{"PATCH", "/api-keys/" + made.ID, `{}`, 400, "validation error: name must have 1 to 128 characters", nil},
		{"PATCH", "/api-keys/none", `{"name":"b"}`, 404, "no such API key", nil},
		{"DELETE", "/api-keys/none", ``, 404, "no such API key", nil},
		{"DELETE", "/api-keys/" + firstKeyID, ``, 403, "this is the API key that the local cloud was started with, which cannot be changed: start it with another one", nil},
		{"PATCH", "/api-keys/" + firstKeyID, `{"name":"b"}`, 403, "this is the API key that the local cloud was started with, which cannot be changed: start it with another one", nil},
		{"GET", "/api-keys", ``, 403, "no access to that team: this local cloud has only " + teamID, []string{"X-Team-ID", "other"}},
		{"GET", "/api-keys", ``, 401, "Invalid API key: it is not a key of this local cloud; e2bctl local env prints one", []string{"X-API-KEY", "", "Authorization", "Bearer " + testKey + "0"}},
		{"GET", "/teams", ``, 401, "API key is missing: send it in the X-API-KEY header", []string{"X-API-KEY", "", "Authorization", testKey}},
		{"GET", "/sandboxes", ``, 401, "API key is missing: send it in the X-API-KEY header", []string{"X-API-KEY", "", "Authorization", "Bearer " + testKey}},
		{"GET", "/teams/" + teamID + "/metrics", ``, 501, "not supported by this local cloud: metrics of teams", nil},
	} {
		var got apiError
		a.call(t, tt.method, tt.path, tt.body, tt.status, &got, append([]string{"X-API-KEY", testKey}, tt.headers...)...)
		if got.Message != tt.message || got.Code != tt.status {
			t.Errorf("%s %s %.40s: got %d %q, want %q", tt.method, tt.path, tt.body, got.Code, got.Message, tt.message)
		}
	}
}

// TestTooManyKeys checks that the number of keys is bounded, and that deleting a key makes room for
// another.
func TestTooManyKeys(t *testing.T) {
	t.Parallel()
	a := newAPI(t, store.Temporary(t.TempDir()))
	key := []string{"X-API-KEY", testKey}
	var made keyAnswer
	for i := range maxAPIKeys {
		a.call(t, "POST", "/api-keys", fmt.Sprintf(`{"name":"%d"}`, i), 201, &made, key...)
	}
	if header := a.call(t, "POST", "/api-keys", `{"name":"more"}`, 429, nil, key...); header.Get("Retry-After") != "" {
		t.Errorf("got Retry-After %s, want none", header.Get("Retry-After"))
	}
	a.call(t, "DELETE", "/api-keys/"+made.ID, ``, 204, nil, key...)
	a.call(t, "POST", "/api-keys", `{"name":"again"}`, 201, nil, key...)
}

// TestRateLimit checks that a request above the rate limit of its key is refused with the time to
// wait, before it has any effect. Other keys are not affected.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := store.Temporary(t.TempDir())
		f := &lifecycletest.Fakes{}
		r := lifecycle.New(lifecycle.Options{Launch: f.Launch, Store: st})
		defer r.Close()
		a := api{New(Options{Key: testKey, Sandboxes: r, Templates: templatesOf(st), Store: st, Rate: RateLimit{PerSecond: 2, Burst: 3}})}
		key := []string{"X-API-KEY", testKey}
		var made keyAnswer
		a.call(t, "POST", "/api-keys", `{"name":"a"}`, 201, &made, key...)
		for range 2 {
			a.call(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`, 201, nil, key...)
		}
		header := a.call(t, "POST", "/v2/sandboxes", `{"templateID":"base"}`, 429, nil, key...)
		for name, want := range map[string]string{"Retry-After": "1", "RateLimit-Limit": "3", "RateLimit-Remaining": "0", "RateLimit-Reset": "1"} {
			if got := header.Get(name); got != want {
				t.Errorf("got %s %q, want %q", name, got, want)
			}
		}
		a.call(t, "GET", "/sandboxes", ``, 200, nil, "X-API-KEY", made.Key)
		<-time.After(time.Second) // the time in the answer
		for range 2 {
			a.call(t, "GET", "/sandboxes", ``, 200, nil, key...)
		}
		a.call(t, "GET", "/sandboxes", ``, 429, nil, key...)
		<-time.After(time.Hour)
		for range 3 {
			a.call(t, "GET", "/sandboxes", ``, 200, nil, key...)
		}
		a.call(t, "GET", "/sandboxes", ``, 429, nil, key...)
		if got := len(f.IDs()); got != 2 {
			t.Errorf("%d sandboxes were made, want 2", got)
		}
	})
}

// TestDamagedKeys checks that a stored key that is damaged, or is from another version, is neither
// listed nor deleted.
func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	st := store.Temporary(t.TempDir())
	for i, value := range []string{``, `[]`, `{}`, `{"Version":2,"Hash":"$sha256$x"}`, `{"Version":1,"Hash":""}`} {
		_, err := st.Put(store.Keys, fmt.Sprintf("key-%d", i), []byte(value), "")
		must.Do(t, err)
	}
	a := newAPI(t, st)
	var listed []keyAnswer
	a.call(t, "GET", "/api-keys", ``, 200, &listed, "X-API-KEY", testKey)
	if len(listed) != 1 {
		t.Errorf("got %+v, want only the first key", listed)
	}
	if records, err := st.Records(store.Keys); err != nil || len(records) != 5 {
		t.Errorf("%d keys are stored, %v, want all 5", len(records), err)
	}
}
