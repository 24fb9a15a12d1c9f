package control

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// fill sets every exported field below v. All texts and numbers differ, and none is zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Pointer:
		if v.Type().Elem().Name() != "Rules" {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("text", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) << 21) // at least some MiB
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	}
}

func filled[T any]() (v T) {
	n := 0
	fill(reflect.ValueOf(&v).Elem(), &n)
	return v
}

// wantWhole checks that only the named fields of an answer are zero.
func wantWhole(t *testing.T, answer any, zero ...string) {
	t.Helper()
	v := reflect.ValueOf(answer)
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if is := v.Field(i).IsZero(); is != slices.Contains(zero, name) {
			t.Errorf("%T: field %s is zero: %v", answer, name, is)
		}
	}
}

// TestAnswersAreWhole checks that each field of an answer has a value if what it describes has one.
func TestAnswersAreWhole(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.options.Of = nil
	sb := filled[lifecycle.Sandbox]()
	sb.State, sb.AutoPause = lifecycle.Running, false
	sb.Mounts[0].Dir, sb.Idle = "/host", time.Minute
	wantWhole(t, s.answer(sb))
	wantWhole(t, s.listed(sb))
	wantWhole(t, s.detail(sb), "PauseMode")
	wantWhole(t, s.detail(sb).Lifecycle)
	wantWhole(t, s.detail(sb).Network)
	wantWhole(t, s.detail(sb).Network.egressRequest)
	wantWhole(t, s.detail(sb).Network.EgressProxy, "Password", "sealed")
	wantWhole(t, s.detail(sb).Network.EgressProxy.TLS, "CACert")
	sb.State = lifecycle.Paused
	wantWhole(t, s.detail(sb), "Domain")
	of := filled[templates.Template]()
	of.ID, of.Builds[0].Engine = "localbasetemplate000", engine.Room
	wantWhole(t, s.templateAnswer(of), "CreatedBy", "LastSpawnedAt", "SpawnCount")
	s.templates.Spawn(of.ID)
	wantWhole(t, s.templateAnswer(of), "CreatedBy")
	wantWhole(t, s.metricOf(filled[telemetry.Sample](), sb))
	wantWhole(t, entryOf(filled[telemetry.Entry]()))
	wantWhole(t, answerOfSnapshot(of, "tag", true))
	wantWhole(t, contentAnswer(filled[volumes.Entry]()))
	wantWhole(t, answerOf(filled[apiKey]()), "Key")
	wantWhole(t, dataOf(filled[lifecycle.Event]()))
	w := httptest.NewRecorder()
	writeEvents(w, s.registry.Events(), []lifecycle.Event{filled[lifecycle.Event]()}, 0)
	var events []eventAnswer
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &events))
	wantWhole(t, events[0])
	wantWhole(t, proxyAnswer(sb.Network.Proxy), "Password", "sealed")

	// Answers to requests.
	q := filled[egressRequest]()
	q.EgressProxy.sealed = []byte("sealed")
	for host, rules := range q.Rules {
		asked := q.asked()
		wantWhole(t, asked, "AllowPublicTraffic", "MaskHost", "HTTPSPorts")
		if len(asked.Headers[host]) != len(rules[0].Transform.Headers) || len(asked.Requests[host]) != 1 {
			t.Errorf("got the rules %+v of %+v", asked, rules)
		}
	}
	wantWhole(t, q.EgressProxy.asked())
	if none := (&egressRequest{Rules: map[string][]networkRule{"a.test": nil}}).asked(); none.Requests != nil || len(none.Headers) != 1 {
		t.Errorf("a host without rules is recorded as %+v", none)
	}
	only := rulesAnswer(&lifecycle.Network{Headers: map[string]map[string]string{"a.test": nil}, Requests: q.asked().Requests})
	if len(only["a.test"]) != 0 {
		t.Errorf("a host without rules has %+v", only)
	}
}

// TestAddressesBehindProxy checks the scheme of the address for an upload.
func TestAddressesBehindProxy(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.must(t, "POST", "/v3/templates", `{"name":"mine"}`, 202)
	for _, tt := range []struct {
		tls, behind bool
		proto, want string
	}{
		{false, false, "https", "http"}, {true, false, "", "https"}, {false, true, "https", "https"}, {false, true, "http", "http"}, {false, true, "", "http"},
	} {
		s.options.BehindProxy = tt.behind
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/x", nil)
		r.SetPathValue("id", "mine")
		r.SetPathValue("hash", someHash)
		r.Header.Set("X-Forwarded-Proto", tt.proto)
		if tt.tls {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		must.Do(t, s.fileLink(w, r))
		if !strings.Contains(w.Body.String(), `"url":"`+tt.want+`://`) {
			t.Errorf("%+v: got %s", tt, w.Body)
		}
	}
	path := pathUploads + someHash
	for expires, want := range map[string]int{"x": http.StatusForbidden, fmt.Sprint(time.Now().Unix() - 1): http.StatusForbidden, fmt.Sprint(time.Now().Unix() + 60): http.StatusLengthRequired} {
		r := httptest.NewRequestWithContext(t.Context(), "PUT", path+"?expires="+expires+"&signature="+s.signUpload(someHash, expires), nil)
		r.ContentLength = -1
		if e, ok := errors.AsType[*apiError](s.upload(httptest.NewRecorder(), r)); !ok || e.Code != want {
			t.Errorf("an address that expires at %s: got %+v, want %d", expires, e, want)
		}
	}
}

// TestCreateChecks checks requests to create a sandbox whose answer depends on an option or on another sandbox.
func TestCreateChecks(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.options.Bounds = func(engine.Name) engine.Bounds { return engine.Bounds{CPUs: 3} }
	if has := s.resourcesOf("", engine.Resources{CPUs: 9}); has.CPUs != 3 {
		t.Errorf("got %d CPUs, want those of the bounds", has.CPUs)
	}
	s.fails(t, []failure{
		{"POST", "/sandboxes", `{"templateID":"base","idleTimeout":10,"timeout":10}`, 400, "validation error: idleTimeout must be less than the lifetime, which is 10 seconds"},
		{"POST", "/sandboxes", `{"templateID":"base","idleTimeout":10,"timeout":86401}`, 400, "Timeout cannot be greater than 24 hours"},
	})
	id := s.mustCreate(t, `{"templateID":"base","idleTimeout":9,"timeout":10,"metadata":{"a":""}}`)
	if sb, err := s.registry.Get(id); err != nil || sb.Idle != 9*time.Second || sb.Lifetime != 10*time.Second {
		t.Errorf("got %+v, %v", sb, err)
	}
	if _, text := s.do(t, "GET", "/v2/sandboxes?metadata=b%3D", ""); text != "[]" { // a sandbox without the label has no empty one
		t.Errorf("got %s", text)
	}
	for n, want := range map[int]bool{maxImageName: false, maxImageName + 1: true} {
		if _, text := s.do(t, "POST", "/sandboxes", `{"templateID":"base","image":"`+strings.Repeat("a", n)+`"}`); strings.Contains(text, "more than 1024 bytes") != want {
			t.Errorf("an image with a name of %d bytes: got %s", n, text)
		}
	}
	s.options.Secure = true
	if made := s.must(t, "POST", "/sandboxes", `{"templateID":"base"}`, 201); made["envdAccessToken"] == nil {
		t.Errorf("got %v, want a token", made)
	}
	begun, err := s.unique.begin(t.Context(), [2]string{"a", "b"})
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", "/sandboxes", nil)
	r.Header.Set(protocol.HeaderUniqueLabel, "a")
	_, err = s.createUnique(r, lifecycle.Request{Metadata: map[string]string{"a": "b"}})
	must.Is(t, err, context.Canceled)
	begun()
}
