package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFeaturesOfALocalCloud checks for each request that only a local cloud understands that it is sent to
// a cloud with the feature, and that no other service gets it.
func TestFeaturesOfALocalCloud(t *testing.T) {
	t.Parallel()
	create := func(p CreateParams) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error { _, err := c.Sandboxes.Create(ctx, &p); return err }
	}
	requests := Egress{Rules: map[string][]NetworkRule{"a.test": {{}, {Requests: []NetworkRequest{{}}}}}}
	for name, tt := range map[string]struct {
		feature, names string // names is in the error
		do             func(context.Context, *Client) error
	}{
		"ask":       {"ask", "Egress.Ask", create(CreateParams{Egress: &Egress{Ask: true}})},
		"requests":  {"requests", "Egress.Rules", create(CreateParams{Egress: &requests})},
		"idle":      {"idle", "CreateParams.IdleTimeout", create(CreateParams{IdleTimeout: time.Minute})},
		"mounts":    {"mounts", "CreateParams.Mounts", create(CreateParams{Mounts: []Mount{{Dir: "/a", Path: "/b"}}})},
		"image":     {"image", "CreateParams.Image", create(CreateParams{Image: "alpine"})},
		"resources": {"resources", "CreateParams.Resources", create(CreateParams{Resources: Resources{CPUs: 1}})},
		"resize": {"resize", "Sandboxes.Resize", func(ctx context.Context, c *Client) error {
			return c.Sandboxes.Resize(ctx, "i1", Resources{CPUs: 1})
		}},
		"network": {"requests", "Egress.Rules", func(ctx context.Context, c *Client) error {
			return c.Sandboxes.SetNetwork(ctx, "i1", &NetworkParams{Egress: requests})
		}},
		"stages": {"stages", "stages of a build", func(ctx context.Context, c *Client) error {
			return c.Templates.StartBuild(ctx, "t1", "b1", &StartBuildParams{FromImage: "i", Stages: []BuildStage{{}}})
		}},
	} {
		for answer, want := range map[string]error{
			fmt.Sprintf(`{%q:true}`, tt.feature): nil, fmt.Sprintf(`{%q:false}`, tt.feature): errors.ErrUnsupported,
			"{}": errors.ErrUnsupported, "404": errors.ErrUnsupported, "403": ErrForbidden,
		} {
			sent := 0
			c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
				switch {
				case r.URL.Path != "/local/features":
					sent++
					_, _ = io.WriteString(w, `{"sandboxID":"i1"}`)
				case strings.HasPrefix(answer, "{"):
					_, _ = io.WriteString(w, answer)
				case answer == "404":
					w.WriteHeader(http.StatusNotFound)
				default:
					w.WriteHeader(http.StatusForbidden)
				}
				return false
			})
			err := tt.do(t.Context(), c)
			named := !errors.Is(want, errors.ErrUnsupported) || err != nil && strings.Contains(err.Error(), tt.names)
			if !errors.Is(err, want) || !named || (sent == 1) != (want == nil) {
				t.Errorf("%s, features %s: sent %d requests and got error %v, want %v that names %s", name, answer, sent, err, want, tt.names)
			}
		}
	}
}

// TestIdleTimeoutStandsAlone checks what is sent about the end of a sandbox: with an idle timeout and no
// lifetime, the lifetime does not end.
func TestIdleTimeoutStandsAlone(t *testing.T) {
	t.Parallel()
	type ends struct {
		Timeout, IdleTimeout int64
	}
	for _, tt := range []struct {
		lifetime, idle time.Duration
		want           ends
		err            error
	}{
		{0, 0, ends{300, 0}, nil}, {time.Minute, 0, ends{60, 0}, nil}, {0, time.Second, ends{0, 1}, nil},
		{time.Minute, time.Second + 1, ends{60, 2}, nil}, {0, -1, ends{}, ErrInvalidArgument}, {-1, 0, ends{}, ErrInvalidArgument},
	} {
		var got ends
		c := eventClient(t, func(w *httptest.ResponseRecorder, r *http.Request) bool {
			if r.URL.Path == "/local/features" {
				_, _ = io.WriteString(w, `{"idle":true}`)
				return false
			}
			must.Do(t, json.NewDecoder(r.Body).Decode(&got))
			_, _ = io.WriteString(w, `{"sandboxID":"i1"}`)
			return false
		})
		_, err := c.Sandboxes.Create(t.Context(), &CreateParams{Lifetime: tt.lifetime, IdleTimeout: tt.idle})
		if !errors.Is(err, tt.err) || got != tt.want {
			t.Errorf("%v and %v: sent %+v and got error %v, want %+v and %v", tt.lifetime, tt.idle, got, err, tt.want, tt.err)
		}
	}
}

// TestConnectRefusesLifetimes checks that a lifetime that no service takes is not sent.
func TestConnectRefusesLifetimes(t *testing.T) {
	t.Parallel()
	c := eventClient(t, func(_ *httptest.ResponseRecorder, r *http.Request) bool {
		t.Errorf("%s was asked for", r.URL)
		return true
	})
	if _, err := c.Sandboxes.Connect(t.Context(), "i1", &ConnectParams{Lifetime: -1}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want %v", err, ErrInvalidArgument)
	}
}

// TestListOfATemplate checks that each choice of a list is sent.
func TestListOfATemplate(t *testing.T) {
	t.Parallel()
	got := ""
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.RawQuery
		_, _ = io.WriteString(w, "[]")
	})
	for want, p := range map[string]*ListParams{
		"": nil, "template=t": {Template: "t"}, "state=running%2Cpaused": {States: []SandboxState{StateRunning, StatePaused}},
		"metadata=a%3Db": {Metadata: map[string]string{"a": "b"}}, "limit=1": {PageSize: 1},
	} {
		_, err := c.Sandboxes.ListPage(t.Context(), p)
		must.Do(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: %s", p, diff)
		}
	}
}

// TestAnswersOfVolumesThatFail checks that an answer about the files of a volume that breaks off, is too
// long or is no JSON is an error, and that an answer that nobody wants is not read as JSON.
func TestAnswersOfVolumesThatFail(t *testing.T) {
	t.Parallel()
	text := func(text string) func() io.Reader { return func() io.Reader { return strings.NewReader(text) } }
	long := `{"name":"` + strings.Repeat("a", maxAnswerBody) + `"}`
	for name, tt := range map[string]struct {
		body    func() io.Reader
		says    string // in the error of Stat; "": none
		unasked bool   // Remove, which wants no answer, has the error, too
	}{
		"a description": {text(`{"name":"a"}`), "", false},
		"breaks off":    {func() io.Reader { return io.MultiReader(strings.NewReader("{"), broken{}) }, "connection reset", true},
		"too long":      {text(long), "longer than", false},
		"no JSON":       {text("text"), "not the expected JSON", false},
	} {
		for what, do := range map[string]func(*VolumeContent) error{
			"Stat":   func(v *VolumeContent) error { _, err := v.Stat(t.Context(), "/a"); return err },
			"Remove": func(v *VolumeContent) error { return v.Remove(t.Context(), "/a") },
		} {
			closed := 0
			c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: counted{tt.body(), &closed}, Request: r}, nil
			})))
			must.Do(t, err)
			err = do(c.Volumes.Content(&Volume{ID: "v", Token: "t"}))
			wanted := tt.says != "" && (what == "Stat" || tt.unasked)
			if (err != nil) != wanted || wanted && !strings.Contains(err.Error(), tt.says) || closed == 0 {
				t.Errorf("%s, %s: got error %v, closed %d times, want an error with %q: %v", what, name, err, closed, tt.says, wanted)
			}
		}
	}
}
