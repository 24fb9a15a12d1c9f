package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// firstOf returns the error with which an iterator begins.
func firstOf[T any](all func(yield func(T, error) bool)) (err error) {
	for _, err = range all {
		break
	}
	return err
}

// calls has every call of a client that sends a request. id is the id that those calls have that take one.
func calls(ctx context.Context, c *Client, id string) map[string]func() error {
	sandboxes, templates, content := c.Sandboxes, c.Templates, c.Volumes.Content(&Volume{ID: id, Token: "token"})
	hash := strings.Repeat("a", 64)
	return map[string]func() error{
		"Questions":     func() error { _, err := sandboxes.Questions(ctx, id, nil); return err },
		"Answer":        func() error { return sandboxes.Answer(ctx, id, nil) },
		"Create":        func() error { _, err := sandboxes.Create(ctx, &CreateParams{UniqueLabel: "label"}); return err },
		"Get":           func() error { _, err := sandboxes.Get(ctx, id); return err },
		"SetLifetime":   func() error { return sandboxes.SetLifetime(ctx, id, time.Second) },
		"Refresh":       func() error { return sandboxes.Refresh(ctx, id, time.Second) },
		"Kill":          func() error { return sandboxes.Kill(ctx, id) },
		"Pause":         func() error { return sandboxes.Pause(ctx, id, nil) },
		"Connect":       func() error { _, err := sandboxes.Connect(ctx, id, nil); return err },
		"Fork":          func() error { _, err := sandboxes.Fork(ctx, id, nil); return err },
		"Logs":          func() error { return firstOf(sandboxes.Logs(ctx, id, nil)) },
		"Metrics":       func() error { _, err := sandboxes.Metrics(ctx, id, nil); return err },
		"MetricsOf":     func() error { _, err := sandboxes.MetricsOf(ctx, []string{id}); return err },
		"SetNetwork":    func() error { return sandboxes.SetNetwork(ctx, id, nil) },
		"Resize":        func() error { return sandboxes.Resize(ctx, id, Resources{CPUs: 1}) },
		"List":          func() error { return firstOf(sandboxes.List(ctx, nil)) },
		"NewSnapshot":   func() error { _, err := c.Snapshots.Create(ctx, id, nil); return err },
		"Snapshots":     func() error { return firstOf(c.Snapshots.List(ctx, nil)) },
		"NewTemplate":   func() error { _, err := templates.Create(ctx, "a", nil); return err },
		"StartBuild":    func() error { return templates.StartBuild(ctx, id, "b", &StartBuildParams{FromImage: "i"}) },
		"BuildStatus":   func() error { _, err := templates.BuildStatus(ctx, id, "b", nil); return err },
		"BuildLogs":     func() error { _, err := templates.BuildLogs(ctx, id, "b", nil); return err },
		"FileUpload":    func() error { _, err := templates.FileUpload(ctx, id, hash); return err },
		"Upload":        func() error { return templates.Upload(ctx, &FileUpload{URL: "http://files.test/x"}, http.NoBody, 0) },
		"Architecture":  func() error { _, err := templates.Architecture(ctx); return err },
		"Tags":          func() error { _, err := templates.Tags(ctx, id); return err },
		"AssignTags":    func() error { _, err := templates.AssignTags(ctx, id, nil); return err },
		"RemoveTags":    func() error { return templates.RemoveTags(ctx, id, nil) },
		"Templates":     func() error { return firstOf(templates.List(ctx, nil)) },
		"Resolve":       func() error { _, err := templates.Resolve(ctx, id); return err },
		"GetTemplate":   func() error { _, err := templates.Get(ctx, id, nil); return err },
		"DropTemplate":  func() error { return templates.Delete(ctx, id) },
		"Update":        func() error { _, err := templates.Update(ctx, id, nil); return err },
		"Teams":         func() error { _, err := c.Teams.List(ctx); return err },
		"Keys":          func() error { _, err := c.Keys.List(ctx); return err },
		"NewKey":        func() error { _, err := c.Keys.Create(ctx, "a"); return err },
		"Rename":        func() error { return c.Keys.Rename(ctx, id, "b") },
		"DropKey":       func() error { return c.Keys.Delete(ctx, id) },
		"NewSecret":     func() error { _, err := c.Secrets.Create(ctx, "a", nil); return err },
		"UpdateSecret":  func() error { _, err := c.Secrets.Update(ctx, id, nil); return err },
		"GetSecret":     func() error { _, err := c.Secrets.Get(ctx, id); return err },
		"Secrets":       func() error { return firstOf(c.Secrets.List(ctx, nil)) },
		"DropSecret":    func() error { return c.Secrets.Delete(ctx, id) },
		"Volumes":       func() error { _, err := c.Volumes.List(ctx); return err },
		"NewVolume":     func() error { _, err := c.Volumes.Create(ctx, "a"); return err },
		"GetVolume":     func() error { _, err := c.Volumes.Get(ctx, id); return err },
		"DropVolume":    func() error { return c.Volumes.Delete(ctx, id) },
		"ListDir":       func() error { _, err := content.List(ctx, "/", nil); return err },
		"Stat":          func() error { _, err := content.Stat(ctx, "/a"); return err },
		"SetAttributes": func() error { _, err := content.SetAttributes(ctx, "/a", nil); return err },
		"Remove":        func() error { return content.Remove(ctx, "/a") },
		"MakeDir":       func() error { _, err := content.MakeDir(ctx, "/a", nil); return err },
		"Write":         func() error { _, err := content.Write(ctx, "/a", nil, nil); return err },
		"Open": func() error {
			body, err := content.Open(ctx, "/a")
			if err == nil {
				err = body.Close()
			}
			return err
		},
	}
}

// TestEveryCall checks for each call that it closes every answer, takes none but those of the statuses 200 to
// 299, follows no redirect, and sends the client's own headers even if the program sets the same ones. The key
// goes to the API alone.
func TestEveryCall(t *testing.T) {
	t.Parallel()
	for name := range calls(t.Context(), &Client{Volumes: &VolumeService{}}, "a") {
		var status int
		var closed []*int
		var asked string
		var c *Client
		c, err := NewClient(WithAPIKey(secret), WithMaxRetries(0), WithHeaders(func(_ context.Context, h http.Header) {
			for _, name := range []string{protocol.HeaderAPIKey, protocol.HeaderUniqueLabel, "User-Agent", "Accept", "Content-Type", "Authorization"} {
				h.Set(name, "the program's")
			}
		}), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
			want := map[string]string{"User-Agent": c.UserAgent()}
			switch {
			case r.URL.Host == "files.test":
			case strings.HasPrefix(r.URL.Path, volumeContentPath):
				want["Authorization"] = "Bearer token"
			default:
				want[protocol.HeaderAPIKey], want["Accept"] = secret, "application/json"
			}
			if name == "Create" {
				want[protocol.HeaderUniqueLabel] = "label"
			}
			for header, value := range want {
				if got := r.Header.Get(header); got != value {
					t.Errorf("%s: the header %s is %q, want %q", name, header, got, value)
				}
			}
			if want[protocol.HeaderAPIKey] == "" && strings.Contains(fmt.Sprint(r.Header), secret) || r.URL.Host == "other.test" {
				t.Errorf("%s: the key went to %s", name, r.URL)
			}
			closed, asked = append(closed, new(int)), r.Method+" "
			return &http.Response{
				StatusCode: status, Header: http.Header{"Location": {"http://other.test/"}}, Request: r,
				Body: counted{strings.NewReader(`{"code":1,"message":"no"}`), closed[len(closed)-1]},
			}, nil
		})))
		must.Do(t, err)
		for _, status = range []int{200, 201, 299, 300, 302, 307, 399, 400, 403, 500} {
			closed = nil
			if err := calls(t.Context(), c, "a")[name](); status >= 300 && (err == nil || !strings.Contains(err.Error(), "api: "+asked)) {
				t.Errorf("%s, %d: got error %v, want one of the request %s", name, status, err, asked)
			}
			if len(closed) == 0 || slices.ContainsFunc(closed, func(n *int) bool { return *n == 0 }) {
				t.Errorf("%s, %d: of %d answers one was not closed", name, status, len(closed))
			}
		}
	}
}

// TestEveryCallRefusesIDs checks that no call puts text into its path that is no id, and that the calls without
// an id are the ones named here.
func TestEveryCallRefusesIDs(t *testing.T) {
	t.Parallel()
	without := []string{
		"Create", "List", "Snapshots", "NewTemplate", "Upload", "Architecture", "Templates", "Teams", "Keys", "NewKey",
		"AssignTags", "RemoveTags", "NewSecret", "Secrets", "Volumes", "NewVolume", // tags belong to names
	}
	for _, id := range []string{"", "..", "../a", "a?b", "a/b/c"} {
		sent := false
		c, err := NewClient(WithAPIKey(secret), WithMaxRetries(0), WithTransport(tripper(func(*http.Request) (*http.Response, error) {
			sent = true
			return nil, errors.New("unreachable")
		})))
		must.Do(t, err)
		for name, call := range calls(t.Context(), c, id) {
			sent = false
			err := call()
			if refused := errors.Is(err, ErrInvalidArgument) && !sent; refused == slices.Contains(without, name) {
				t.Errorf("%s of %q: got error %v, want ErrInvalidArgument and no request from calls with an id", name, id, err)
			}
		}
	}
}

// TestEveryCallRepeatsAndWaits checks for each call whether it is sent again after an answer that leaves open
// if the service did something, and how long it waits for an answer.
func TestEveryCallRepeatsAndWaits(t *testing.T) {
	t.Parallel()
	const unbounded = 24 * time.Hour
	once := []string{
		"Answer", "Create", "Pause", "Fork", "NewSnapshot", "NewTemplate", "StartBuild", "Upload", "Teams", "NewKey",
		"NewSecret", "UpdateSecret", "NewVolume",
		"ListDir", "Stat", "SetAttributes", "Remove", "MakeDir", "Write", "Open", // of volumes' contents
	}
	waits := map[string]time.Duration{
		"Pause": savingTimeout, "Fork": savingTimeout, "NewSnapshot": savingTimeout, "Write": unbounded, "Upload": unbounded,
	}
	synctest.Test(t, func(t *testing.T) {
		for name := range calls(t.Context(), &Client{Volumes: &VolumeService{}}, "a") {
			sent := 0
			c, err := NewClient(WithAPIKey(secret), WithMaxRetries(1), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
				sent++
				return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			})))
			must.Do(t, err)
			if err := calls(t.Context(), c, "a")[name](); err == nil || (sent == 1) != slices.Contains(once, name) {
				t.Errorf("%s: sent %d times and got error %v, want it sent once: %v", name, sent, err, slices.Contains(once, name))
			}
			c, err = NewClient(WithAPIKey(secret), WithMaxRetries(0), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
				select {
				case <-r.Context().Done():
					return nil, context.Cause(r.Context())
				case <-time.After(unbounded):
					return nil, errors.New("connection reset")
				}
			})))
			must.Do(t, err)
			begun := time.Now()
			err = calls(t.Context(), c, "a")[name]()
			want, found := waits[name]
			if !found {
				want = headTimeout
			}
			if took := time.Since(begun); err == nil || took != want {
				t.Errorf("%s: got error %v after %v, want one after %v", name, err, took, want)
			}
		}
	})
}

// stalled is a body whose bytes never come. Reading ends with the request, or after a day.
type stalled struct{ ctx context.Context } //nolint:containedctx // the context of the request

func (s stalled) Read([]byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	case <-time.After(24 * time.Hour):
		return 0, io.EOF
	}
}

// TestEveryCallBoundsTheBody checks for each call how long it waits for the body of an answer that has begun. A
// file may take any time, a refusal of it may not.
func TestEveryCallBoundsTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name := range calls(t.Context(), &Client{Volumes: &VolumeService{}}, "a") {
			for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
				c, err := NewClient(WithAPIKey(secret), WithMaxRetries(0), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(stalled{r.Context()}), Request: r}, nil
				})))
				must.Do(t, err)
				all, want := calls(t.Context(), c, "a"), httpwait.Idle
				all["Open"] = func() error {
					body, err := c.Volumes.Content(&Volume{ID: "a", Token: "token"}).Open(t.Context(), "/a")
					if err == nil {
						_, err = io.Copy(io.Discard, body)
						err = errors.Join(err, body.Close())
					}
					return err
				}
				if status == http.StatusOK && name == "Open" {
					want = 24 * time.Hour
				}
				begun := time.Now()
				err = all[name]()
				if took := time.Since(begun); took != want {
					t.Errorf("%s, %d: got error %v after %v, want it after %v", name, status, err, took, want)
				}
			}
		}
	})
}

// TestEveryCallBoundsErrors checks for each call how much of a refusal it reads.
func TestEveryCallBoundsErrors(t *testing.T) {
	t.Parallel()
	for name := range calls(t.Context(), &Client{Volumes: &VolumeService{}}, "a") {
		body := &io.LimitedReader{R: spaces{}, N: 2 * maxErrorBody}
		c, err := NewClient(WithAPIKey(secret), WithMaxRetries(0), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
		})))
		must.Do(t, err)
		if err := calls(t.Context(), c, "a")[name](); err == nil || body.N != maxErrorBody {
			t.Errorf("%s: got error %v after %d bytes, want %d", name, err, 2*maxErrorBody-body.N, maxErrorBody)
		}
	}
}

// TestListsBeginAtTheirToken checks that each iterator begins with the page that the caller names.
func TestListsBeginAtTheirToken(t *testing.T) {
	t.Parallel()
	asked := ""
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		asked += r.URL.Path + "?" + r.URL.RawQuery + "\n"
		_, _ = io.WriteString(w, "[]")
	})
	must.Do(t, firstOf(c.Sandboxes.List(t.Context(), &ListParams{PageSize: 7, NextToken: "n"})))
	must.Do(t, firstOf(c.Snapshots.List(t.Context(), &SnapshotListParams{PageSize: 7, NextToken: "n"})))
	must.Do(t, firstOf(c.Templates.List(t.Context(), &TemplateListParams{PageSize: 7, NextToken: "n"})))
	must.Do(t, firstOf(c.Secrets.List(t.Context(), &SecretListParams{PageSize: 7, NextToken: "n"})))
	const page = "?limit=7&nextToken=n\n"
	if diff := cmp.Diff("/v2/sandboxes"+page+"/snapshots"+page+"/v2/templates"+page+"/secrets"+page, asked); diff != "" {
		t.Error(diff)
	}
}

// TestAnswersWithoutAnID checks that nothing without a usable id counts as made.
func TestAnswersWithoutAnID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{"a": true, "": false, "a/b/c": false, "..": false, "a?b": false, strings.Repeat("a", 600): false} {
		text, err := json.Marshal(map[string]string{"sandboxID": id, "snapshotID": id, "templateID": id, "buildID": id, "volumeID": id, "token": "t"})
		must.Do(t, err)
		c := service(t, func(w http.ResponseWriter, r *http.Request) {
			answer := string(text)
			if strings.HasSuffix(r.URL.Path, "/fork") {
				answer = `[{"sandbox":` + answer + `}]`
			}
			_, _ = io.WriteString(w, answer)
		})
		all := calls(t.Context(), c, "a")
		all["Fork"] = func() error {
			forks, err := c.Sandboxes.Fork(t.Context(), "a", nil)
			must.Do(t, err)
			return forks[0].Err
		}
		for _, name := range []string{"Create", "Connect", "Fork", "NewSnapshot", "NewTemplate", "NewVolume", "GetVolume"} {
			if err := all[name](); (err == nil) != want {
				t.Errorf("%s, id %.20q: got error %v, want it to be taken: %v", name, id, err, want)
			}
		}
	}
}

// TestSizesAreBytes checks that each type that has sizes converts both of them.
func TestSizesAreBytes(t *testing.T) {
	t.Parallel()
	var sandbox SandboxInfo
	var template Template
	var build TemplateBuild
	var detail TemplateDetail
	const text = `{"memoryMB":2,"diskSizeMB":3,"builds":[{"memoryMB":2,"diskSizeMB":3}]}`
	for _, into := range []any{&sandbox, &template, &build, &detail} {
		must.Do(t, json.Unmarshal([]byte(text), into))
	}
	for i, got := range [][2]int64{
		{sandbox.MemoryBytes, sandbox.DiskBytes}, {template.MemoryBytes, template.DiskBytes}, {build.MemoryBytes, build.DiskBytes},
		{detail.MemoryBytes, detail.DiskBytes}, {detail.Builds[0].MemoryBytes, detail.Builds[0].DiskBytes},
	} {
		if got != [2]int64{2 << 20, 3 << 20} {
			t.Errorf("%d: got %v, want 2 MiB and 3 MiB", i, got)
		}
	}
}

// TestSecretsNeverShow prints each type that contains a secret in every way.
func TestSecretsNeverShow(t *testing.T) {
	t.Parallel()
	const value = "never-shown"
	for _, x := range []any{
		SecretParams{Value: value}, &SecretParams{Value: value}, ImageRegistry{Password: value, AWSSecretAccessKey: value, GCPServiceAccount: value},
		StartBuildParams{Registry: &ImageRegistry{Password: value}}, Egress{EgressProxy: &EgressProxyConfig{Password: value}}, EgressProxyConfig{Password: value},
		Sandbox{AccessToken: value, TrafficToken: value}, SandboxInfo{AccessToken: value}, Volume{Token: value}, Team{APIKey: value}, APIKey{Key: value},
	} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%t"} {
			fmt.Fprintf(&out, verb, x)
		}
		must.Do(t, json.NewEncoder(&out).Encode(x))
		slog.New(slog.NewTextHandler(&out, nil)).InfoContext(t.Context(), "m", "x", x)
		slog.New(slog.NewJSONHandler(&out, nil)).InfoContext(t.Context(), "m", "x", x)
		if strings.Contains(out.String(), value) || strings.Contains(out.String(), fmt.Sprintf("%x", value)) {
			t.Errorf("%T shows its secret: %s", x, &out)
		}
	}
}
