package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	maxErrorBody  = 1 << 20
	maxAnswerBody = 32 << 20
	// maxAnswerValues bounds the number of JSON values in an answer. A page of 100 sandboxes
	// has far fewer.
	maxAnswerValues = 100_000
	// headTimeout bounds the time until the service begins to answer one attempt.
	// Package httpwait bounds the rest of the answer, and the caller's context
	// bounds the whole call.
	headTimeout = 75 * time.Second
	// savingTimeout replaces headTimeout for calls that save a sandbox's files. If the caller's
	// context has a deadline, that deadline applies instead. A sandbox may have hundreds of thousands
	// of files.
	savingTimeout = 15 * time.Minute
)

// Client calls one control plane with one key. It is safe for concurrent use;
// Close frees its connections.
type Client struct {
	// Sandboxes makes the calls about sandboxes.
	Sandboxes *SandboxService
	// Snapshots makes the calls about snapshots of sandboxes.
	Snapshots *SnapshotService
	// Templates makes the calls about templates.
	Templates *TemplateService
	// Teams makes the calls about teams.
	Teams *TeamService
	// Keys makes the calls about the team's API keys.
	Keys *KeyService
	// Volumes makes the calls about volumes.
	Volumes *VolumeService
	// Secrets makes the calls about secrets.
	Secrets *SecretService

	resty     *resty.Client
	transport http.RoundTripper
	owned     *http.Transport
	logger    *slog.Logger
	retries   int

	sources                   Sources
	key                       Key
	baseURL                   *url.URL
	domain, sandboxURL, agent string
	headers                   func(ctx context.Context, h http.Header)
	volumeURL                 string // the address for files in volumes; "" means that it is derived from the domain

	// legacy means that the service has only the first generation of the API's routes. It is set after
	// a newer route was found to be missing.
	legacy atomic.Bool
}

// NewClient returns a new client. It reads environment variables only if [FromEnv] is among the
// options. It returns [ErrNoAPIKey] when there is no key. It checks the settings before it makes
// any request.
func NewClient(opts ...Option) (*Client, error) {
	s := settings{retries: 3, logger: slog.New(slog.DiscardHandler)}
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("api: NewClient: option %d is nil: leave it out: %w", i+1, ErrInvalidArgument)
		}
		if err := o(&s); err != nil {
			return nil, err
		}
	}
	if s.env {
		if err := s.fromEnv(); err != nil {
			return nil, err
		}
	}
	if s.key.value == "" {
		return nil, ErrNoAPIKey
	}
	c := &Client{key: Key(s.key.value), domain: s.domain.value, sandboxURL: s.sandboxURL.value, logger: s.logger, retries: s.retries, transport: s.transport, sources: s.sources(), headers: s.headers}
	if err := c.key.validate(); err != nil {
		return nil, err
	}
	if c.domain == "" {
		c.domain = defaultDomain
	}
	if err := validateDomain(c.domain); err != nil {
		return nil, err
	}
	if s.baseURL.value == "" {
		s.baseURL.value = "https://api." + c.domain
	}
	var err error
	if c.baseURL, err = parseURL("the API URL", s.baseURL.value); err != nil {
		return nil, err
	}
	if c.sandboxURL != "" {
		u, err := parseURL("the sandbox URL", c.sandboxURL)
		if err != nil {
			return nil, err
		}
		c.sandboxURL = u.String()
	}
	if s.volumeURL.value != "" {
		u, err := parseURL("the address of volumes", s.volumeURL.value)
		if err != nil {
			return nil, err
		}
		c.volumeURL = u.String()
	}
	if c.headers == nil {
		c.headers = func(context.Context, http.Header) {}
	}
	c.agent = strings.TrimSpace(s.userAgent + " e2bctl-go/" + version())
	if c.transport == nil {
		c.owned = newTransport()
		if s.dial != nil {
			c.owned.DialContext = s.dial
		}
		c.transport = c.owned
	}
	c.resty = resty.NewWithClient(&http.Client{
		Transport: bounded{c.transport},
		// A redirect would carry the key to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).SetLogger(restyLogger{c.logger}).SetDoNotParseResponse(true)
	c.Sandboxes, c.Snapshots, c.Templates = &SandboxService{c}, &SnapshotService{c}, &TemplateService{c}
	c.Teams, c.Keys, c.Volumes, c.Secrets = &TeamService{c}, &KeyService{c}, &VolumeService{c}, &SecretService{c}
	return c, nil
}

// bounded sends the requests of a client and limits how long each answer may take. All answers of
// the API are short.
type bounded struct{ transport http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	limits := httpwait.Limits{Head: headTimeout}
	if saves, _ := r.Context().Value(savingKey{}).(bool); saves {
		limits.Head = savingTimeout
		if _, set := r.Context().Deadline(); set {
			limits.Head = 0
		}
	}
	return httpwait.Do(b.transport.RoundTrip, r, limits)
}

// savingKey is the context key that marks a call as one that saves a sandbox's files.
type savingKey struct{}

// newTransport returns the connection pool of a client. It keeps many idle connections to one
// host, because all sandboxes share a host.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 512, 512
	return t
}

// version returns the version of this module from the build information of the program.
var version = sync.OnceValue(func() string {
	const module = "github.com/e2bctl/e2bctl"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && strings.HasPrefix(m.Version, "v") {
				return strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return "dev"
})

// Domain returns the domain of the service.
func (c *Client) Domain() string { return c.domain }

// BaseURL returns the address of the API.
func (c *Client) BaseURL() string { return c.baseURL.String() }

// SandboxURL returns the one address for all sandboxes. It returns "" if neither an option nor the
// environment has set the address.
func (c *Client) SandboxURL() string { return c.sandboxURL }

// Sources returns the source of each setting.
func (c *Client) Sources() Sources { return c.sources }

// UserAgent returns the User-Agent header of the client's requests.
func (c *Client) UserAgent() string { return c.agent }

// Transport returns the transport that sends the requests. Close closes its connections, unless
// the transport was passed with [WithTransport].
func (c *Client) Transport() http.RoundTripper { return c.transport }

// Logger returns the client's logger; it is never nil.
func (c *Client) Logger() *slog.Logger { return c.logger }

// Close frees the idle connections. It may be called at any time, more than
// once, and always returns nil.
func (c *Client) Close() error {
	if c != nil && c.owned != nil {
		c.owned.CloseIdleConnections()
	}
	return nil
}

// call describes one request to the service.
type call struct {
	method, path string
	query        url.Values
	body         any // encoded as JSON when not nil
	// once means that the call must not be repeated when it may have reached the
	// service.
	once bool
	// saves means that the service saves the sandbox's files before it answers.
	saves bool
	// uniqueLabel is the value of a header. If it is empty, the header is not sent.
	uniqueLabel string
}

// answer is the head of an answer; its status is 0 when no answer came.
type answer struct {
	status int
	header http.Header
}

// do makes the call and decodes a 2xx answer into out. A nil out ignores the body.
func (c *Client) do(ctx context.Context, r call, out any) (answer, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return answer{}, fmt.Errorf("api: %s %s: encode: %w", r.method, r.path, err)
		}
	}
	for attempt := 0; ; attempt++ {
		start := time.Now()
		head, err := c.attempt(ctx, r, body, out)
		c.logger.DebugContext(ctx, "api call", "method", r.method, "path", r.path, "attempt", attempt+1,
			"duration", time.Since(start), "status", head.status)
		if err == nil {
			return head, nil
		}
		if attempt > 0 && r.method == http.MethodDelete && errors.Is(err, ErrNotFound) {
			return head, nil // an earlier attempt has deleted it, and its answer was lost
		}
		wait, again := backoff(err, attempt, r.once)
		if !again || attempt >= c.retries || !sleep(ctx, wait) {
			return head, err
		}
	}
}

// attempt sends the request once.
func (c *Client) attempt(ctx context.Context, r call, body []byte, out any) (answer, error) {
	if r.saves {
		ctx = context.WithValue(ctx, savingKey{}, true)
	}
	request := c.resty.R().SetContext(ctx).SetQueryParamsFromValues(r.query)
	c.headers(ctx, request.Header)
	request.SetHeader(protocol.HeaderAPIKey, string(c.key)).SetHeader("User-Agent", c.agent).SetHeader("Accept", "application/json")
	if r.uniqueLabel != "" {
		request.SetHeader(protocol.HeaderUniqueLabel, r.uniqueLabel)
	}
	if body != nil {
		request.SetHeader("Content-Type", "application/json").SetBody(body)
	}
	response, err := request.Execute(r.method, c.baseURL.String()+r.path)
	if err != nil {
		return answer{}, NewError(r.method, r.path, withoutURL(err))
	}
	raw := response.RawResponse
	head := answer{raw.StatusCode, raw.Header}
	defer raw.Body.Close()
	if raw.StatusCode < 200 || raw.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(raw.Body, maxErrorBody))
		return head, ResponseError(r.method, r.path, raw.StatusCode, raw.Header, text)
	}
	text, err := io.ReadAll(io.LimitReader(raw.Body, maxAnswerBody+1))
	if err != nil {
		return head, NewError(r.method, r.path, fmt.Errorf("read the answer: %w", err))
	}
	if out == nil {
		return head, nil
	}
	if len(text) > maxAnswerBody {
		return head, fmt.Errorf("api: %s %s: the answer is longer than %d bytes", r.method, r.path, maxAnswerBody)
	}
	if err := boundjson.Unmarshal(text, out, maxAnswerValues, math.MaxInt); err != nil {
		return head, fmt.Errorf("api: %s %s: the answer is not the expected JSON: %w", r.method, r.path, err)
	}
	return head, nil
}

// withoutURL returns the cause inside a *url.Error. The text of the *url.Error would repeat the
// method and the address, including the query.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// restyLogger sends resty's messages to slog. It logs no requests: Client logs them itself,
// without secrets.
type restyLogger struct{ logger *slog.Logger }

func (l restyLogger) Errorf(format string, v ...any) { l.log(slog.LevelError, format, v) }
func (l restyLogger) Warnf(format string, v ...any)  { l.log(slog.LevelWarn, format, v) }
func (l restyLogger) Debugf(format string, v ...any) { l.log(slog.LevelDebug, format, v) }

func (l restyLogger) log(level slog.Level, format string, v []any) {
	l.logger.Log(context.Background(), level, clip.Line(fmt.Sprintf(format, v...), maxMessage))
}
