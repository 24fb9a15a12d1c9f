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

// Sandbox has everything that is needed to talk to a sandbox. Create and Connect return it.
type Sandbox struct {
	ID         string `json:"sandboxID"`
	TemplateID string `json:"templateID"`
	ClientID   string `json:"clientID"`
	// Alias is the template's first name; empty when it has none.
	Alias string `json:"alias"`
	// EnvdVersion is the version of envd, the daemon inside the sandbox.
	EnvdVersion string `json:"envdVersion"`
	// AccessToken is envd's token; empty when the sandbox is not secured. No other
	// port asks for it, not even that of the code interpreter (49999).
	AccessToken Key `json:"envdAccessToken"`
	// TrafficToken is the token for all other ports; empty when they are public.
	TrafficToken Key `json:"trafficAccessToken"`
	// Domain replaces the configured domain when not empty.
	Domain string `json:"domain"`
	// Resumed reports whether connect found the sandbox paused and woke it up.
	Resumed bool `json:"-"`
}

// SandboxState is the state of a sandbox. A service may use others than the constants here.
type SandboxState string

// The states of a sandbox.
const (
	StateRunning SandboxState = "running"
	StatePaused  SandboxState = "paused"
)

// OnTimeout names the action at the end of a sandbox's lifetime.
type OnTimeout string

// The actions at the end of a lifetime.
const (
	OnTimeoutKill  OnTimeout = "kill"
	OnTimeoutPause OnTimeout = "pause"
)

// Lifecycle describes the end of a sandbox's lifetime.
type Lifecycle struct {
	OnTimeout OnTimeout `json:"onTimeout"`
	// AutoResume reports whether a request for the paused sandbox wakes it up.
	AutoResume bool `json:"autoResume"`
}

// SandboxInfo describes a sandbox.
type SandboxInfo struct {
	ID         string       `json:"sandboxID"`
	TemplateID string       `json:"templateID"`
	ClientID   string       `json:"clientID"`
	Alias      string       `json:"alias"`
	State      SandboxState `json:"state"`
	// StartedAt is the time when the sandbox was started or woken up.
	StartedAt time.Time `json:"startedAt"`
	// EndAt is the end of the sandbox's lifetime or, if it is paused, the time of the pause.
	EndAt       time.Time         `json:"endAt"`
	CPUs        int               `json:"cpuCount"`
	MemoryBytes int64             `json:"memoryBytes"`
	DiskBytes   int64             `json:"diskBytes"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`
	// EnvdUnresponsiveAtPause reports that envd did not answer when the sandbox was
	// paused with its memory: only [ConnectParams].Reboot resumes such a sandbox.
	EnvdUnresponsiveAtPause bool `json:"envdUnresponsiveAtPause"`

	// PauseMode says which state the pause kept. It is set only by Get, and only for a sandbox
	// whose pause is complete. Older services do not set it.
	PauseMode PauseMode `json:"pauseMode"`
	// Lifecycle is set only by Get; nil when the service does not say.
	Lifecycle *Lifecycle `json:"lifecycle"`
	// AccessToken is set only by Get, and only for a secured sandbox.
	AccessToken Key `json:"envdAccessToken"`
	// AllowInternetAccess is set only by Get; nil when it was never set, which
	// means allowed.
	AllowInternetAccess *bool `json:"allowInternetAccess"`
	// Egress is set only by Get; nil when it was never set.
	Egress *Egress `json:"network"`
	// VolumeMounts are the volumes of the sandbox and their directories.
	VolumeMounts []VolumeMount `json:"volumeMounts"`
	// Engine is the engine of a local cloud that runs the sandbox, such as "room". Mounts are the
	// directories of the cloud's machine that the sandbox sees. The cloud's Pyodide distribution,
	// which is /opt/pyodide where pip runs, is not among them. Only Get sets both.
	Engine Engine  `json:"engine"`
	Mounts []Mount `json:"mounts"`
	// Domain is set only by Get.
	Domain string `json:"domain"`
}

// CreateParams describes the sandbox to create. The zero value is the service's
// base template for [DefaultLifetime].
type CreateParams struct {
	// Template is an id or a name, with or without a tag, or the id of a snapshot;
	// empty means "base".
	Template string
	// Lifetime is the lifetime of the sandbox, rounded up to whole seconds. Zero means
	// [DefaultLifetime].
	Lifetime time.Duration
	// AutoPause pauses the sandbox when its lifetime is over, instead of killing
	// it; nil means the service's default, false.
	AutoPause *bool
	// AutoPauseMemory says whether that pause keeps the memory; nil means the
	// service's default, true. It needs AutoPause.
	AutoPauseMemory *bool
	// AutoResume makes any request for the paused sandbox wake it up; nil means the
	// service's default, false. It needs AutoPause, and a pause that keeps the
	// memory.
	AutoResume *bool
	// Metadata has labels that List can filter by.
	Metadata map[string]string
	// UniqueLabel is the key of a label of Metadata. A local cloud creates no sandbox while
	// another one, running or paused, has the same value of it: the error is [ErrConflict]. Other
	// services ignore it.
	UniqueLabel string
	// Envs are environment variables for every process inside.
	Envs map[string]string
	// AllowInternetAccess is nil for the service's default, which is true.
	AllowInternetAccess *bool
	// Egress limits what the sandbox may reach; nil means the service's default.
	Egress *Egress
	// PrivateTraffic asks for a token, without which only envd's port can be
	// reached.
	PrivateTraffic bool
	// HTTPSPorts lists the ports whose servers inside speak TLS themselves; their
	// certificates are not verified.
	HTTPSPorts []int
	// RequestHost is the Host header that servers inside receive, with ${PORT}
	// standing for the port; empty means the host of the original request.
	RequestHost string
	// VolumeMounts are the volumes of the sandbox and their directories.
	VolumeMounts []VolumeMount
	// Mounts are directories of a local cloud's machine to show in the sandbox. The cloud must
	// have been started with permission for them: the error is [ErrForbidden] for others. With
	// another service any mount is an error, [errors.ErrUnsupported].
	Mounts []Mount
	// MCP has the settings of MCP servers by their names. The service only records them: the
	// caller starts the servers with the program mcp-gateway in the sandbox.
	MCP map[string]any
}

// Mount is a directory of the machine of a local cloud in a sandbox.
type Mount struct {
	// Dir is the directory of the machine: absolute.
	Dir string `json:"dir"`
	// Path is its directory in the sandbox: absolute, and not the root.
	Path string `json:"path"`
	// Writable lets the sandbox change its files.
	Writable bool `json:"writable,omitempty"`
}

type createRequest struct {
	TemplateID          string            `json:"templateID"`
	Timeout             int64             `json:"timeout"`
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
	MCP                 map[string]any    `json:"mcp,omitempty"`
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

// Create starts a sandbox. It is retried only when provably nothing was sent,
// or when the service answers 429. If the answer is lost, a sandbox may exist
// and live until its lifetime is over.
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
		Mounts: p.Mounts, MCP: p.MCP,
	}
	if p.AutoResume != nil {
		request.AutoResume = &autoResume{*p.AutoResume}
	}
	if request.TemplateID == "" {
		request.TemplateID = "base"
	}
	if err := s.canAsk(ctx, p.Egress); err != nil {
		return nil, err
	}
	if len(p.Mounts) > 0 {
		if err := s.client.checkFeature(ctx, "mounts", "CreateParams.Mounts: only a local cloud shows directories of its machine"); err != nil {
			return nil, err
		}
	}
	sandbox := &Sandbox{}
	_, err = s.client.generations(func(prefix string) (answer, error) {
		request.Secure = prefix == "" // the second generation always secures, and has no such field
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

// SetLifetime makes a sandbox's life end after d from now, which may be earlier
// than before. d is rounded up to whole seconds and must be positive.
func (s *SandboxService) SetLifetime(ctx context.Context, id string, d time.Duration) error {
	return s.post(ctx, id, "/timeout", "timeout", d)
}

// Refresh makes a sandbox live for at least d from now; it never shortens its
// life. d is rounded up to whole seconds, must be positive and at most an hour.
func (s *SandboxService) Refresh(ctx context.Context, id string, d time.Duration) error {
	return s.post(ctx, id, "/refreshes", "duration", d)
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

// ListParams filters a list. The zero value means all sandboxes.
type ListParams struct {
	// Metadata lists labels that must all be present, with exactly these values.
	Metadata map[string]string
	// States lists the states wanted; empty means all.
	States []SandboxState
	// Template is an id or a name, without a tag.
	Template string
	// PageSize limits the entries of a page, 1 to 100. Zero means the service's default, 100.
	PageSize int
	// NextToken continues where the previous page ended.
	NextToken string
}

// SandboxPage is one page of a list.
type SandboxPage struct {
	Sandboxes []SandboxInfo
	// NextToken is for the next page; empty on the last page.
	NextToken string
}

// List iterates over all sandboxes, newest first, and fetches each page when it
// is needed. An error is yielded at most once, as the last item. The iterator
// may be used again; p is not changed.
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
	sandboxes, head, err := list[SandboxInfo](ctx, s.client, "a sandbox", call{method: http.MethodGet, path: "/v2/sandboxes", query: query})
	if err != nil {
		return nil, err
	}
	return &SandboxPage{sandboxes, head.header.Get(protocol.HeaderNextToken)}, nil
}

// metadataFilter encodes each key and value, then the pairs as a form; the
// query then encodes all of it once more. The service decodes three times.
func metadataFilter(metadata map[string]string) string {
	escape := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		pairs = append(pairs, url.QueryEscape(escape(key))+"="+url.QueryEscape(escape(metadata[key])))
	}
	return strings.Join(pairs, "&")
}

// generations calls the newest generation of a route, and falls back once when
// the service only has the first.
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

// seconds rounds d up to whole seconds, which the service counts in.
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

// sandboxPath returns the path of a route of a sandbox.
func sandboxPath(id, route string) (string, error) {
	return objectPath("/sandboxes/", "sandbox", id, route)
}

// objectPath refuses an id that would turn the path into another one.
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

// check makes sure that an answer has a usable sandbox id.
func (s *Sandbox) check() error {
	if _, err := sandboxPath(s.ID, ""); err != nil {
		return errors.New("api: the service's answer has no usable sandboxID")
	}
	return nil
}
