package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// DefaultLifetime is the lifetime of a sandbox when none is given.
const DefaultLifetime = 5 * time.Minute

// SandboxService makes the calls about sandboxes. It is safe for concurrent
// use.
type SandboxService struct{ client *Client }

// Sandbox has the data for connecting to a sandbox. Create and Connect return it.
type Sandbox struct {
	ID         string `json:"sandboxID"`
	TemplateID string `json:"templateID"`
	ClientID   string `json:"clientID"`
	// Alias is the template's first name; empty when it has none.
	Alias string `json:"alias"`
	// EnvdVersion is the version of envd, the daemon inside the sandbox.
	EnvdVersion string `json:"envdVersion"`
	// AccessToken is envd's token; empty when the sandbox is not secured. Only the port of envd
	// requires this token. Even the port of the code interpreter (49999) does not.
	AccessToken Key `json:"envdAccessToken"`
	// TrafficToken is the token for all ports except envd's; empty when these ports are public.
	TrafficToken Key `json:"trafficAccessToken"`
	// Domain replaces the configured domain when not empty.
	Domain string `json:"domain"`
	// Resumed reports whether Connect found the sandbox paused and resumed it.
	Resumed bool `json:"-"`
}

// SandboxState is the state of a sandbox. A service may use values other than the constants
// here.
type SandboxState string

// These are the states of a sandbox.
const (
	StateRunning SandboxState = "running"
	StatePaused  SandboxState = "paused"
)

// OnTimeout is the action at the end of a sandbox's lifetime.
type OnTimeout string

// These are the actions at the end of a lifetime.
const (
	OnTimeoutKill  OnTimeout = "kill"
	OnTimeoutPause OnTimeout = "pause"
)

// Lifecycle describes the end of a sandbox's lifetime.
type Lifecycle struct {
	OnTimeout OnTimeout `json:"onTimeout"`
	// AutoResume reports whether a request to the paused sandbox resumes it.
	AutoResume bool `json:"autoResume"`
}

// SandboxInfo describes a sandbox.
type SandboxInfo struct {
	ID         string       `json:"sandboxID"`
	TemplateID string       `json:"templateID"`
	ClientID   string       `json:"clientID"`
	Alias      string       `json:"alias"`
	State      SandboxState `json:"state"`
	// StartedAt is the time of the sandbox's start or last resume.
	StartedAt time.Time `json:"startedAt"`
	// EndAt is the end of the sandbox's lifetime. For a paused sandbox it is the time of the
	// pause.
	EndAt       time.Time         `json:"endAt"`
	CPUs        int               `json:"cpuCount"`
	MemoryBytes int64             `json:"memoryBytes"`
	DiskBytes   int64             `json:"diskBytes"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
	// EnvdUnresponsiveAtPause reports whether envd did not answer when the sandbox was paused
	// with its memory. Only [ConnectParams].Reboot resumes such a sandbox.
	EnvdUnresponsiveAtPause bool `json:"envdUnresponsiveAtPause"`

	// PauseMode is the part of the state that the pause kept. Only Get sets it, and only for a sandbox
	// whose pause is complete. Older services do not set it.
	PauseMode PauseMode `json:"pauseMode"`
	// Lifecycle describes the end of the lifetime. Only Get sets it; nil when the service does
	// not report it.
	Lifecycle *Lifecycle `json:"lifecycle"`
	// AccessToken is envd's token. Only Get sets it, and only for a secured sandbox.
	AccessToken Key `json:"envdAccessToken"`
	// AllowInternetAccess reports whether the internet is allowed. Only Get sets it. Nil means
	// that it was never set, and access is allowed.
	AllowInternetAccess *bool `json:"allowInternetAccess"`
	// Egress limits what the sandbox may reach. Only Get sets it; nil when it was never set.
	Egress *Egress `json:"network"`
	// VolumeMounts are the volumes in the sandbox, with their paths.
	VolumeMounts []VolumeMount `json:"volumeMounts"`
	// Engine is the engine of a local cloud that runs the sandbox, such as "room". Mounts are the
	// directories of the local cloud's machine that the sandbox can see. A sandbox in which pip runs
	// for the engine wasm has the Pyodide distribution at /opt/pyodide, but Mounts does not include
	// it. Only Get sets Engine and Mounts.
	Engine Engine  `json:"engine"`
	Mounts []Mount `json:"mounts"`
	// IdleTimeout is the time without use after which the sandbox ends or is paused; zero means that there
	// is no such limit. Only Get sets it, and only for a local cloud.
	IdleTimeout time.Duration `json:"-"`
	// Image is the container image whose files the sandbox began with; empty means that it is
	// unknown or that there is none. Only Get sets it, and only for a local cloud.
	Image string `json:"image"`
	// Domain is the domain of the sandbox. Only Get sets it.
	Domain string `json:"domain"`
}

// CreateParams describes the sandbox to create. The zero value creates a sandbox of the
// service's base template that lives for [DefaultLifetime].
type CreateParams struct {
	// Template is an id or a name, with or without a tag, or the id of a snapshot;
	// empty means "base".
	Template string
	// Image is a container image, such as "python:3.12-slim", whose files the sandbox has in place of
	// the files of a template. The local cloud fetches it if it does not have it yet. Template then
	// only chooses the engine. With another service, an image returns [errors.ErrUnsupported].
	Image string
	// Resources are the resources of the sandbox, in place of those of its template. If the engine
	// does not enforce one of them, or the service is not a local cloud, the error is
	// [errors.ErrUnsupported].
	Resources Resources
	// Lifetime is the lifetime of the sandbox, rounded up to whole seconds. Zero means
	// [DefaultLifetime].
	Lifetime time.Duration
	// IdleTimeout is the time without use after which the sandbox ends or is paused, as at the end of its
	// lifetime. It is rounded up to whole seconds. Zero means that there is no such limit. IdleTimeout must
	// be less than Lifetime. If IdleTimeout is set and Lifetime is zero, the sandbox may live as long as the
	// service allows. With a service that is not a local cloud, an IdleTimeout returns
	// [errors.ErrUnsupported].
	//
	// These are uses: the begin and the end of a request to a port, a byte of an open connection to a port,
	// running code, and a command that a client follows, except in a terminal. These are not uses: pings of a
	// websocket, a silent connection or terminal, connections out of the sandbox, and the calls of this
	// package except those that connect, resume, resize, or take a snapshot.
	IdleTimeout time.Duration
	// AutoPause pauses the sandbox at the end of its lifetime instead of killing it; nil means
	// the service's default, false.
	AutoPause *bool
	// AutoPauseMemory makes the pause of AutoPause keep the memory; nil means the service's default,
	// true. It needs AutoPause.
	AutoPauseMemory *bool
	// AutoResume makes any request to the paused sandbox resume it; nil means the service's
	// default, false. It needs AutoPause, and a pause that keeps the memory.
	AutoResume *bool
	// Metadata contains labels by which List can filter.
	Metadata map[string]string
	// UniqueLabel is a key of Metadata. A local cloud returns [ErrConflict] if another sandbox,
	// running or paused, has the same value for this key. Other services ignore UniqueLabel.
	UniqueLabel string
	// Envs are environment variables for every process in the sandbox.
	Envs map[string]string
	// AllowInternetAccess allows access to the internet; nil means the service's default, true.
	AllowInternetAccess *bool
	// Egress limits what the sandbox may reach; nil means the service's default.
	Egress *Egress
	// PrivateTraffic requires a token for all ports but envd's.
	PrivateTraffic bool
	// HTTPSPorts lists the ports whose servers in the sandbox speak TLS. Their certificates are
	// not verified.
	HTTPSPorts []int
	// RequestHost is the Host header that servers in the sandbox receive. ${PORT} in it stands
	// for the port. Empty means the host of the original request.
	RequestHost string
	// VolumeMounts are the volumes in the sandbox, with their paths.
	VolumeMounts []VolumeMount
	// Mounts are directories of the local cloud's machine to show in the sandbox. The error is
	// [ErrForbidden] for a directory that was not permitted when the cloud was started. With another
	// service, any mount returns [errors.ErrUnsupported].
	Mounts []Mount
	// MCP maps the names of MCP servers to their settings. The service only records the settings.
	// The caller must start the servers with the program mcp-gateway in the sandbox.
	MCP map[string]any
}

// Resources are the resources of one sandbox. A zero field means the default: the template's or the
// service's.
type Resources struct {
	// CPUs is the number of processors that the sandbox can use; 0.5 means half of one.
	CPUs float64 `json:"cpuCount,omitempty"`
	// MemoryBytes limits the memory.
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// DiskBytes limits the bytes of the files that the sandbox writes. It does not depend on
	// MemoryBytes. With the engine room, these files are in memory and count as memory, too.
	DiskBytes int64 `json:"diskBytes,omitempty"`
}

// Mount is a directory of the local cloud's machine that a sandbox can see.
type Mount struct {
	// Dir is the absolute path on the machine.
	Dir string `json:"dir"`
	// Path is the absolute path in the sandbox; it must not be the root.
	Path string `json:"path"`
	// Writable lets the sandbox change the files of the directory.
	Writable bool `json:"writable,omitempty"`
}

type createRequest struct {
	TemplateID          string            `json:"templateID"`
	Timeout             int64             `json:"timeout,omitempty"`
	IdleTimeout         int64             `json:"idleTimeout,omitempty"`
	Secure              bool              `json:"secure,omitempty"`
	AutoPause           *bool             `json:"autoPause,omitempty"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory,omitempty"`
	AutoResume          *autoResume       `json:"autoResume,omitempty"`
	AllowInternetAccess *bool             `json:"allow_internet_access,omitempty"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	EnvVars             map[string]string `json:"envVars,omitempty"`
	Network             *createNetwork    `json:"network,omitempty"`
	VolumeMounts        []VolumeMount     `json:"volumeMounts,omitempty"`
	Mounts              []Mount           `json:"mounts,omitempty"`
	Image               string            `json:"image,omitempty"`
	Resources           Resources         `json:"resources,omitzero"`
	MCP                 map[string]any    `json:"mcp,omitempty"`
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

// Create starts a sandbox. The call is retried only when provably nothing was sent, or when the
// service answers 429. If the answer is lost, a sandbox may exist until its lifetime ends.
func (s *SandboxService) Create(ctx context.Context, p *CreateParams) (*Sandbox, error) {
	if p == nil {
		p = &CreateParams{}
	}
	lifetime, err := seconds("lifetime", p.Lifetime)
	if err != nil {
		return nil, err
	}
	request := createRequest{
		TemplateID: p.Template, Timeout: lifetime, AllowInternetAccess: p.AllowInternetAccess,
		AutoPause: p.AutoPause, AutoPauseMemory: p.AutoPauseMemory,
		Metadata: p.Metadata, EnvVars: p.Envs, Network: p.network(), VolumeMounts: p.VolumeMounts,
		Mounts: p.Mounts, MCP: p.MCP, Image: p.Image, Resources: p.Resources,
	}
	if p.AutoResume != nil {
		request.AutoResume = &autoResume{*p.AutoResume}
	}
	if request.TemplateID == "" {
		request.TemplateID = "base"
	}
	if p.IdleTimeout != 0 {
		if request.IdleTimeout, err = seconds("idle timeout", p.IdleTimeout); err != nil {
			return nil, err
		}
		if p.Lifetime == 0 {
			request.Timeout = 0
		}
		if err := s.client.checkFeature(ctx, "idle", "CreateParams.IdleTimeout: only a local cloud ends sandboxes that nothing uses"); err != nil {
			return nil, err
		}
	}
	if err := s.canServe(ctx, p.Egress); err != nil {
		return nil, err
	}
	if len(p.Mounts) > 0 {
		if err := s.client.checkFeature(ctx, "mounts", "CreateParams.Mounts: only a local cloud shows directories of its machine"); err != nil {
			return nil, err
		}
	}
	if p.Image != "" {
		if err := s.client.checkFeature(ctx, "image", "CreateParams.Image: only a local cloud begins with any image; elsewhere build a template from it, with template.FromImage"); err != nil {
			return nil, err
		}
	}
	if p.Resources != (Resources{}) {
		if err := s.client.checkFeature(ctx, "resources", "CreateParams.Resources: only a local cloud gives each sandbox its own; elsewhere build a template with them"); err != nil {
			return nil, err
		}
	}
	sandbox := &Sandbox{}
	_, err = s.client.generations(func(prefix string) (answer, error) {
		request.Secure = prefix == "" // the second generation secures every sandbox and has no such field
		return s.client.do(ctx, call{method: http.MethodPost, path: prefix + "/sandboxes", body: request, once: true, uniqueLabel: p.UniqueLabel}, sandbox)
	})
	if err != nil {
		return nil, err
	}
	return sandbox, sandbox.check()
}

// Get returns the description of a sandbox, running or paused.
func (s *SandboxService) Get(ctx context.Context, id string) (*SandboxInfo, error) {
	path, err := sandboxPath(id, "")
	if err != nil {
		return nil, err
	}
	info := &SandboxInfo{}
	if _, err := s.client.do(ctx, call{method: http.MethodGet, path: path}, info); err != nil {
		return nil, err
	}
	return info, nil
}

// SetLifetime makes a sandbox's lifetime end d from now. It can shorten the lifetime. d is
// rounded up to whole seconds and must be positive.
func (s *SandboxService) SetLifetime(ctx context.Context, id string, d time.Duration) error {
	return s.post(ctx, id, "/timeout", "timeout", d)
}

// Refresh extends a sandbox's lifetime to at least d from now; it never shortens the lifetime.
// d is rounded up to whole seconds. It must be positive and at most an hour.
func (s *SandboxService) Refresh(ctx context.Context, id string, d time.Duration) error {
	return s.post(ctx, id, "/refreshes", "duration", d)
}

// Resize changes the resources of a running sandbox of a local cloud. A zero field of r does not change.
// The error is [ErrConflict] if the sandbox uses more memory or disk than r allows, [ErrNotFound] if
// the sandbox is not running, and [ErrInvalidArgument] as for CreateParams.Resources. It is
// [errors.ErrUnsupported] if the engine or the machine cannot change one of the resources of a running
// sandbox, and with another service. After an error of the service, all resources are as before.
func (s *SandboxService) Resize(ctx context.Context, id string, r Resources) error {
	path, err := sandboxPath(id, "/resources")
	if err != nil {
		return err
	}
	if err := s.client.checkFeature(ctx, "resize", "Sandboxes.Resize: only a local cloud changes the resources of a running sandbox"); err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodPost, path: "/local" + path, body: r}, nil)
	return err
}

func (s *SandboxService) post(ctx context.Context, id, route, field string, d time.Duration) error {
	path, err := sandboxPath(id, route)
	if err != nil {
		return err
	}
	if d <= 0 {
		return fmt.Errorf("api: %s %v: want a positive duration: %w", field, d, ErrInvalidArgument)
	}
	whole, err := seconds(field, d)
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodPost, path: path, body: map[string]int64{field: whole}}, nil)
	return err
}

// Kill ends a sandbox, running or paused. It returns [ErrNotFound] when there
// is no such sandbox.
func (s *SandboxService) Kill(ctx context.Context, id string) error {
	path, err := sandboxPath(id, "")
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodDelete, path: path}, nil)
	return err
}

// ListParams filters a list. The zero value selects all sandboxes.
type ListParams struct {
	// Metadata lists labels that a sandbox must have, with exactly these values.
	Metadata map[string]string
	// States lists the states to return; empty means all.
	States []SandboxState
	// Template is an id or a name, without a tag. The list contains only the sandboxes of this
	// template; empty means all templates.
	Template string
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken is the token of the page to return; empty means the first page.
	NextToken string
}

// SandboxPage is one page of a list.
type SandboxPage struct {
	Sandboxes []SandboxInfo
	// NextToken is the token of the next page; empty on the last page.
	NextToken string
}

// List iterates over all sandboxes, newest first, and fetches each page when it is needed. It
// yields an error at most once, as the last item. The iterator may be used again. List does not
// change p.
func (s *SandboxService) List(ctx context.Context, p *ListParams) iter.Seq2[SandboxInfo, error] {
	var params ListParams
	if p != nil {
		params = *p
	}
	return pages("sandboxes", params.NextToken, func(token string) ([]SandboxInfo, string, error) {
		of := params
		of.NextToken = token
		page, err := s.ListPage(ctx, &of)
		if err != nil {
			return nil, "", err
		}
		return page.Sandboxes, page.NextToken, nil
	})
}

// ListPage returns one page of sandboxes, newest first.
func (s *SandboxService) ListPage(ctx context.Context, p *ListParams) (*SandboxPage, error) {
	if p == nil {
		p = &ListParams{}
	}
	query := url.Values{}
	if len(p.Metadata) > 0 {
		query.Set("metadata", metadataFilter(p.Metadata))
	}
	if len(p.States) > 0 {
		states := make([]string, len(p.States))
		for i, state := range p.States {
			states[i] = string(state)
		}
		query.Set("state", strings.Join(states, ","))
	}
	if p.Template != "" {
		query.Set("template", p.Template)
	}
	setPage(query, p.PageSize, p.NextToken)
	decoded, head, err := list[sandboxJSON](ctx, s.client, "a sandbox", call{method: http.MethodGet, path: "/v2/sandboxes", query: query})
	if err != nil {
		return nil, err
	}
	sandboxes := make([]SandboxInfo, len(decoded))
	for i := range decoded {
		sandboxes[i] = decoded[i].info()
	}
	return &SandboxPage{sandboxes, head.header.Get(protocol.HeaderNextToken)}, nil
}

// metadataFilter encodes each key and value, and then the pairs as a form. The query encodes
// the result a third time, because the service decodes three times.
func metadataFilter(metadata map[string]string) string {
	escape := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		pairs = append(pairs, url.QueryEscape(escape(key))+"="+url.QueryEscape(escape(metadata[key])))
	}
	return strings.Join(pairs, "&")
}

// generations calls the newest generation of a route. If the service does not have that generation,
// generations calls the first generation instead. If that call succeeds, later calls call only the
// first generation.
func (c *Client) generations(do func(prefix string) (answer, error)) (answer, error) {
	if c.legacy.Load() {
		return do("")
	}
	head, err := do("/v2")
	if isMissingRoute(err) {
		if head, err = do(""); err == nil {
			c.legacy.Store(true)
		}
	}
	return head, err
}

// isMissingRoute reports whether the service does not have the route of a call.
func isMissingRoute(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.routeMissing
}

// seconds returns d in whole seconds, the unit of the service, rounded up. what names the value
// in errors.
func seconds(what string, d time.Duration) (int64, error) {
	if d == 0 {
		d = DefaultLifetime
	}
	whole := int64(d / time.Second)
	if d%time.Second > 0 {
		whole++
	}
	if d < 0 || whole > 1<<31-1 {
		return 0, fmt.Errorf("api: %s %v: out of range: %w", what, d, ErrInvalidArgument)
	}
	return whole, nil
}

// sandboxPath returns the path of a sandbox's route, such as /sandboxes/ID/pause.
func sandboxPath(id, route string) (string, error) {
	return objectPath("/sandboxes/", "sandbox", id, route)
}

// objectPath returns the path of an object's route. It refuses an id that would change the path
// into another one. what names the object in errors.
func objectPath(collection, what, id, route string) (string, error) {
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			id = ""
			break
		}
	}
	if id == "" || len(id) > 128 {
		return "", fmt.Errorf("api: not the id of a %s: %w", what, ErrInvalidArgument)
	}
	return collection + id + route, nil
}

// check returns an error if an answer has no usable sandbox id.
func (s *Sandbox) check() error {
	if _, err := sandboxPath(s.ID, ""); err != nil {
		return errors.New("api: the service's answer has no usable sandboxID")
	}
	return nil
}
