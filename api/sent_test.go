package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// fill sets a value and everything in it to something that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
		if v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(int64(time.Minute))
		}
	case reflect.Uint32:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.String:
		v.SetString("full") // a mode that there is
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf("any"))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}

// TestWhatEachFieldSends sets each field of each parameter alone, and compares the request with testdata/sent.txt. With
// UPDATE_SENT it writes that file anew.
func TestWhatEachFieldSends(t *testing.T) {
	t.Parallel()
	var sent string
	c, err := NewClient(WithAPIKey(secret), WithBaseURL("http://api.test"), WithMaxRetries(0), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
		answer, status := `{"ask":true,"requests":true,"idle":true,"mounts":true,"image":true,"resources":true,"engines":true,"stages":true,"resize":true}`, http.StatusOK
		if r.URL.Path != "/local/features" {
			body := []byte(nil)
			if r.Body != nil {
				body, _ = io.ReadAll(r.Body)
			}
			sent, answer, status = strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), body, r.Header.Get(protocol.HeaderUniqueLabel))), "", http.StatusForbidden
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
	})))
	must.Do(t, err)
	ctx, content := t.Context(), c.Volumes.Content(&Volume{ID: "v", Token: "t"})
	var got strings.Builder
	for _, one := range []struct {
		params any // of a pointer to a struct
		call   func(p any) error
	}{
		{&QuestionsParams{}, func(p any) error { _, err := c.Sandboxes.Questions(ctx, "i", p.(*QuestionsParams)); return err }},
		{&AnswerParams{}, func(p any) error { return c.Sandboxes.Answer(ctx, "i", p.(*AnswerParams)) }},
		{&TemplateCreateParams{}, func(p any) error { _, err := c.Templates.Create(ctx, "a", p.(*TemplateCreateParams)); return err }},
		{&StartBuildParams{FromImage: "a"}, func(p any) error { return c.Templates.StartBuild(ctx, "t", "b", p.(*StartBuildParams)) }},
		{&BuildStatusParams{}, func(p any) error {
			_, err := c.Templates.BuildStatus(ctx, "t", "b", p.(*BuildStatusParams))
			return err
		}},
		{&BuildLogsParams{}, func(p any) error { _, err := c.Templates.BuildLogs(ctx, "t", "b", p.(*BuildLogsParams)); return err }},
		{&EventsParams{}, func(p any) error { return firstOf(c.Sandboxes.Events(ctx, p.(*EventsParams))) }},
		{&ForkParams{}, func(p any) error { _, err := c.Sandboxes.Fork(ctx, "i", p.(*ForkParams)); return err }},
		{&LogParams{}, func(p any) error { return firstOf(c.Sandboxes.Logs(ctx, "i", p.(*LogParams))) }},
		{&MetricsParams{}, func(p any) error { _, err := c.Sandboxes.Metrics(ctx, "i", p.(*MetricsParams)); return err }},
		{&NetworkParams{}, func(p any) error { return c.Sandboxes.SetNetwork(ctx, "i", p.(*NetworkParams)) }},
		{&PauseParams{}, func(p any) error { return c.Sandboxes.Pause(ctx, "i", p.(*PauseParams)) }},
		{&ConnectParams{}, func(p any) error { _, err := c.Sandboxes.Connect(ctx, "i", p.(*ConnectParams)); return err }},
		{&CreateParams{}, func(p any) error { _, err := c.Sandboxes.Create(ctx, p.(*CreateParams)); return err }},
		{&Resources{}, func(p any) error { return c.Sandboxes.Resize(ctx, "i", *p.(*Resources)) }},
		{&ListParams{}, func(p any) error { return firstOf(c.Sandboxes.List(ctx, p.(*ListParams))) }},
		{&SecretParams{}, func(p any) error { _, err := c.Secrets.Create(ctx, "a", p.(*SecretParams)); return err }},
		{&SecretListParams{}, func(p any) error { return firstOf(c.Secrets.List(ctx, p.(*SecretListParams))) }},
		{&SnapshotParams{}, func(p any) error { _, err := c.Snapshots.Create(ctx, "i", p.(*SnapshotParams)); return err }},
		{&SnapshotListParams{}, func(p any) error { return firstOf(c.Snapshots.List(ctx, p.(*SnapshotListParams))) }},
		{&TemplateListParams{}, func(p any) error { return firstOf(c.Templates.List(ctx, p.(*TemplateListParams))) }},
		{&TemplateGetParams{}, func(p any) error { _, err := c.Templates.Get(ctx, "t", p.(*TemplateGetParams)); return err }},
		{&TemplateUpdateParams{}, func(p any) error { _, err := c.Templates.Update(ctx, "t", p.(*TemplateUpdateParams)); return err }},
		{&VolumeListParams{}, func(p any) error { _, err := content.List(ctx, "/a", p.(*VolumeListParams)); return err }},
		{&VolumeAttributesParams{}, func(p any) error { _, err := content.SetAttributes(ctx, "/a", p.(*VolumeAttributesParams)); return err }},
		{&VolumeWriteParams{}, func(p any) error { _, err := content.MakeDir(ctx, "/a", p.(*VolumeWriteParams)); return err }},
		{&struct{ Set, Refresh time.Duration }{}, func(p any) error {
			if set := p.(*struct{ Set, Refresh time.Duration }); set.Set == 0 {
				return c.Sandboxes.Refresh(ctx, "i", set.Refresh)
			}
			return c.Sandboxes.SetLifetime(ctx, "i", p.(*struct{ Set, Refresh time.Duration }).Set)
		}},
	} {
		of := reflect.TypeOf(one.params).Elem()
		for i := -1; i < of.NumField(); i++ {
			p, name := reflect.New(of), of.Name()
			p.Elem().Set(reflect.ValueOf(one.params).Elem())
			if i >= 0 {
				fill(p.Elem().Field(i))
				name += "." + of.Field(i).Name
			}
			sent = "nothing"
			if err := one.call(p.Interface()); err == nil || sent != "nothing" && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s: got error %v, want that of the answer", name, err)
			}
			fmt.Fprintf(&got, "%s: %s\n", name, sent)
		}
	}
	file := filepath.Join("testdata", "sent.txt")
	if os.Getenv("UPDATE_SENT") != "" {
		must.Do(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	must.Do(t, err)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestMessagesOfRefusals checks where the message of an error comes from, with each form of the answer.
func TestMessagesOfRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ body, kind, want string }{
		{`{"code":403,"message":"the team has no room"}`, "application/json", "the team has no room"}, {"no\x00 room", "text/plain", "no  room"}, {"", "", "forbidden"}, {" ", "", "forbidden"},
		{"<html>of a proxy</html>", "text/html; charset=utf-8", "forbidden"}, {`{"code":403}`, "", `{"code":403}`}, {strings.Repeat("é", 4*maxMessage), "", strings.Repeat("é", maxMessage/2)},
	} {
		e := ResponseError(http.MethodGet, "/x", http.StatusForbidden, http.Header{"Content-Type": {tt.kind}}, []byte(tt.body))
		if !strings.HasPrefix(e.Message, tt.want[:min(len(tt.want), maxMessage-8)]) || len(e.Message) > maxMessage+len("…") || e.Message == "" {
			t.Errorf("%.40q of the kind %q: got %.60q in %d bytes, want %.60q", tt.body, tt.kind, e.Message, len(e.Message), tt.want)
		}
	}
	if e := NewError(http.MethodGet, "/x", io.EOF); e.Method != http.MethodGet || e.Path != "/x" || e.StatusCode != 0 || !errors.Is(e, io.EOF) {
		t.Errorf("without an answer: got %+v, want an error of GET /x that is %v", e, io.EOF)
	}
}

// TestRulesThatEveryServiceKnows checks that only rules which a service would ignore are asked about.
func TestRulesThatEveryServiceKnows(t *testing.T) {
	t.Parallel()
	headers := []NetworkRule{{Transform: &NetworkTransform{Headers: map[string]string{"A": "b"}}}}
	for name, tt := range map[string]struct {
		rules map[string][]NetworkRule
		want  error
	}{
		"none": {}, "headers": {map[string][]NetworkRule{"a.test": headers, "b.test": nil}, nil},
		"requests": {map[string][]NetworkRule{"a.test": headers, "b.test": append(headers[:1:1], NetworkRule{Requests: []NetworkRequest{{Path: "/"}}})}, errors.ErrUnsupported},
	} {
		c := service(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/local/features" {
				w.WriteHeader(http.StatusNotFound)
			}
		})
		if err := c.Sandboxes.SetNetwork(t.Context(), "i1", &NetworkParams{Egress: Egress{Rules: tt.rules}}); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
	}
}

// TestCallsThatMustEnd checks the number of requests of calls that repeat, and ends those that would never end.
func TestCallsThatMustEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer string
		status int
		call   func(ctx context.Context, c *Client) error
		asked  int
		fails  bool
	}{
		"the metrics of none": {"{}", 200, func(ctx context.Context, c *Client) error { _, err := c.Sandboxes.MetricsOf(ctx, nil); return err }, 0, false},
		"the metrics of 100": {"{}", 200, func(ctx context.Context, c *Client) error {
			_, err := c.Sandboxes.MetricsOf(ctx, slices.Repeat([]string{"i"}, 100))
			return err
		}, 1, false},
		"a service that is busy": {"", 502, func(ctx context.Context, c *Client) error { return c.Sandboxes.Kill(ctx, "i") }, 1, true},
		"events that are null":   {"[null]", 200, func(ctx context.Context, c *Client) error { return firstOf(c.Sandboxes.Events(ctx, nil)) }, 1, true},
		"a tail that is refused": {"", 403, func(ctx context.Context, c *Client) error {
			return firstOf(c.Sandboxes.Logs(ctx, "i", &LogParams{Tail: 1}))
		}, 1, true},
		"a tail of no such id": {"", 200, func(ctx context.Context, c *Client) error {
			return firstOf(c.Sandboxes.Logs(ctx, "../i", &LogParams{Tail: 1}))
		}, 0, true},
		"a tail of null": {`{"logs":[null]}`, 200, func(ctx context.Context, c *Client) error {
			return firstOf(c.Sandboxes.Logs(ctx, "i", &LogParams{Tail: 1}))
		}, 1, true},
		"an address to upload to": {"", 200, func(ctx context.Context, c *Client) error {
			return c.Templates.Upload(ctx, &FileUpload{URL: "http://h/%zz"}, strings.NewReader("a"), 1)
		}, 0, true},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		c := service(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked > 3 {
				cancel()
			}
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.answer)
		}, WithMaxRetries(0))
		if err := tt.call(ctx, c); (err != nil) != tt.fails || asked != tt.asked {
			t.Errorf("%s: got error %v after %d requests, want %d", name, err, asked, tt.asked)
		}
		cancel()
	}
}

// TestLogThatLostEntries checks that a followed log goes on with new entries if the service no longer has the old ones.
func TestLogThatLostEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
			at := moment
			if r.URL.Query().Get("direction") == "forward" {
				at = moment.Add(time.Microsecond)
			}
			text := fmt.Sprintf(`{"logs":[{"timestamp":%q,"message":%q}]}`, at.Format(time.RFC3339Nano), r.URL.Query().Get("direction"))
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
		})))
		must.Do(t, err)
		var got []string
		for e, err := range c.Sandboxes.Logs(ctx, "i1", &LogParams{Tail: 1, Follow: true}) {
			if err != nil {
				t.Errorf("got error %v after %q, want another entry", err, got)
				break
			}
			if got = append(got, e.Message); len(got) == 2 {
				break
			}
		}
		if !slices.Equal(got, []string{"backward", "forward"}) {
			t.Errorf("got the entries %q", got)
		}
	})
}
