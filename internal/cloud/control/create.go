package control

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// dialect describes how the two generations of create and connect differ.
type dialect struct {
	timeout      int32 // default lifetime in seconds
	secure       bool  // envd always requires a token
	bodyOptional bool
}

var (
	version1 = dialect{timeout: 15}
	version2 = dialect{timeout: 300, secure: true, bodyOptional: true}
)

type createRequest struct {
	TemplateID          string             `json:"templateID"`
	Timeout             *int32             `json:"timeout"`
	Secure              bool               `json:"secure"`
	AllowInternetAccess *bool              `json:"allow_internet_access"`
	AutoPause           bool               `json:"autoPause"`
	AutoPauseMemory     *bool              `json:"autoPauseMemory"`
	AutoResume          *autoResumeRequest `json:"autoResume"`
	EnvVars             map[string]string  `json:"envVars"`
	Metadata            map[string]string  `json:"metadata"`
	MCP                 map[string]any     `json:"mcp"` // MCP servers, which the client starts itself
	IAM                 json.RawMessage    `json:"iam"`
	Network             *networkRequest    `json:"network"`
	VolumeMounts        []volumeMount      `json:"volumeMounts"`
	Mounts              []hostMount        `json:"mounts"`      // not a field of the service
	IdleTimeout         *int32             `json:"idleTimeout"` // not a field of the service; seconds; nil: no idle limit
	Image               string             `json:"image"`       // not a field of the service; "": the files are those of the template

	Resources resourcesRequest `json:"resources"` // not a field of the service

	egress *network.Rules // set by validate
}

// resourcesRequest has the requested resources of one sandbox. If a field is 0 or missing, the template
// determines this resource, or else the cloud.
type resourcesRequest struct {
	CPUCount    float64 `json:"cpuCount"`
	MemoryBytes int64   `json:"memoryBytes"`
	DiskBytes   int64   `json:"diskBytes"`
}

// checkResources returns an error if the sandbox cannot have the requested resources.
func (s *Service) checkResources(ctx context.Context, name engine.Name, r resourcesRequest) error {
	switch {
	case r == resourcesRequest{}:
		return nil
	case r.CPUCount < 0:
		return invalid("resources.cpuCount must not be negative")
	case r.MemoryBytes < 0:
		return invalid("resources.memoryBytes must not be negative")
	case r.DiskBytes < 0:
		return invalid("resources.diskBytes must not be negative")
	case s.options.CheckResources == nil:
		return nil
	}
	return s.options.CheckResources(ctx, name, r.asked())
}

func (r resourcesRequest) asked() engine.Resources {
	return engine.Resources{CPUs: r.CPUCount, MemoryBytes: r.MemoryBytes, DiskBytes: r.DiskBytes}
}

type autoResumeRequest struct {
	Enabled bool `json:"enabled"`
}

func (s *Service) create(d dialect) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var q createRequest
		if err := decode(w, r, &q, false); err != nil {
			return err
		}
		q.Secure = q.Secure || d.secure || s.options.Secure
		lifetime, err := s.lifetimeOf(&q, d)
		if err != nil {
			return err
		}
		if lifetime == 0 {
			return errorf(http.StatusBadRequest, "Timeout must be greater than 0")
		}
		if q.Network != nil {
			if err := s.seal(q.Network.EgressProxy, "network."); err != nil {
				return err
			}
		}
		if err := q.validate(); err != nil {
			return err
		}
		t, build, release, err := s.templateOf(r.Context(), &q)
		if err != nil {
			return err
		}
		defer release()
		ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
		defer cancel()
		r = r.WithContext(ctx)
		if err := s.checkResources(r.Context(), t.Engine, q.Resources); err != nil {
			return err
		}
		if err := s.checkSecrets(q.egress); err != nil {
			return err
		}
		if err := s.checkProxy(r.Context(), q.egress); err != nil {
			return err
		}
		mounts, err := s.mounts(q.VolumeMounts)
		if err != nil {
			return err
		}
		request := lifecycle.Request{
			Template: t, Lifetime: lifetime, Secure: q.Secure, Envs: envsOf(build, q.EnvVars), Metadata: q.Metadata,
			Internet: q.AllowInternetAccess, Network: q.Network.asked(), Egress: q.egress,
			AutoPause: q.AutoPause, KeepMemory: !q.dropsMemory(), AutoResume: q.resumes(), Idle: q.idle(), Layers: build.Layers, Volumes: mounts, Mounts: hostMounts(q.Mounts),
			Resources: q.Resources.asked(),
			Headers:   q.Network != nil && len(q.Network.Rules) > 0,
		}
		sb, err := s.createUnique(r, request)
		if err != nil {
			return err
		}
		s.templates.Spawn(t.ID)
		writeJSON(w, http.StatusCreated, s.answer(sb))
		return nil
	}
}

// templateOf returns the template of a sandbox, and the template's build. The caller must call
// release after the sandbox was created. No template that comes with a local cloud has the gateway
// for MCP servers. If a client requests MCP servers and the template does not exist, the error
// explains how to build such a template.
func (s *Service) templateOf(ctx context.Context, q *createRequest) (t lifecycle.Template, build templates.Build, release func(), err error) {
	if named := imageOf(q); named != "" {
		return s.fromImage(ctx, q, named)
	}
	t, build, err = s.findTemplate(q.TemplateID)
	if e, ok := errors.AsType[*templates.Error](err); ok && q.MCP != nil && t.ID == "" && e.Kind == templates.NotFound {
		err = errorf(http.StatusNotFound, "%s: a local cloud brings no program for MCP servers: build a template %s with the program mcp-gateway", e, bounded(q.TemplateID))
	}
	return t, build, func() {}, err
}

// imageOf returns the container image with which a sandbox begins; "" if it begins with a template.
// Clients without a field for the image name it in place of the template. The name of an image then
// begins with a registry, which has a dot or a port. No name of a template begins in this way.
func imageOf(q *createRequest) string {
	if q.Image != "" {
		return q.Image
	}
	registry, _, more := strings.Cut(q.TemplateID, "/")
	host, port, hasPort := strings.Cut(registry, ":")
	if _, err := strconv.ParseUint(port, 10, 16); hasPort && err != nil {
		return ""
	}
	if more && (hasPort || strings.Contains(host, ".")) && !slices.Contains(strings.Split(host, "."), "") {
		return q.TemplateID
	}
	return ""
}

// fromImage returns the template of a sandbox that begins with an image. Such a template is stored
// nowhere. Its id is the reference of the image. A request that names an image in its own field may
// also name a template, which chooses the engine.
func (s *Service) fromImage(ctx context.Context, q *createRequest, reference string) (lifecycle.Template, templates.Build, func(), error) {
	none := func() {}
	if name, ok := builds.BuiltIn(reference); ok {
		t, build, err := s.findTemplate(name)
		return t, build, none, err
	}
	var chosen templates.Build
	if q.Image != "" {
		var err error
		if _, chosen, err = s.findTemplate(q.TemplateID); err != nil {
			return lifecycle.Template{}, templates.Build{}, none, err
		}
	}
	if len(reference) > maxImageName {
		return lifecycle.Template{}, templates.Build{}, none, invalid("the name of the image has more than %d bytes", maxImageName)
	}
	content, err := s.options.Builds.FromImage(ctx, chosen.Engine, reference)
	if err != nil {
		return lifecycle.Template{}, templates.Build{}, none, err
	}
	return lifecycle.Template{
		ID: reference, User: content.User, Workdir: content.Workdir, Engine: s.engineOf(content.Engine), Image: content.Image,
	}, templates.Build{Content: content}, func() { s.options.Builds.Release(content) }, nil
}

// maxImageName bounds the name of an image, in bytes.
const maxImageName = 1024

// envsOf returns the environment of a sandbox: the variables of the build, overridden by the
// requested ones.
func envsOf(build templates.Build, asked map[string]string) map[string]string {
	if len(build.Envs) == 0 {
		return asked
	}
	envs := maps.Clone(build.Envs)
	maps.Copy(envs, asked)
	return envs
}

// lifetime converts the timeout of a create or connect request. It returns an error if the
// timeout is out of bounds.
func (s *Service) lifetime(seconds *int32, d dialect) (time.Duration, error) {
	if seconds == nil {
		seconds = &d.timeout
	}
	if *seconds < 0 {
		return 0, invalid("timeout must not be negative")
	}
	lifetime := time.Duration(*seconds) * time.Second
	if longest := s.sandboxes.MaxLifetime(); lifetime > longest {
		return 0, errorf(http.StatusBadRequest, "Timeout cannot be greater than %g hours", longest.Hours())
	}
	return lifetime, nil
}

// lifetimeOf returns the lifetime of a new sandbox. If the request has an idle limit and no timeout, the
// sandbox lives as long as possible.
func (s *Service) lifetimeOf(q *createRequest, d dialect) (time.Duration, error) {
	if q.IdleTimeout == nil {
		return s.lifetime(q.Timeout, d)
	}
	lifetime := s.sandboxes.MaxLifetime()
	if q.Timeout != nil {
		var err error
		if lifetime, err = s.lifetime(q.Timeout, d); err != nil {
			return 0, err
		}
	}
	if lifetime > 0 && q.idle() >= lifetime {
		return 0, invalid("idleTimeout must be less than the lifetime, which is %g seconds", lifetime.Seconds())
	}
	return lifetime, nil
}

// idle returns the time without use after which the sandbox ends; 0 if there is no limit.
func (q *createRequest) idle() time.Duration {
	if q.IdleTimeout == nil {
		return 0
	}
	return time.Duration(*q.IdleTimeout) * time.Second
}

func (q *createRequest) validate() error {
	switch {
	case q.IdleTimeout != nil && *q.IdleTimeout <= 0:
		return invalid("idleTimeout must be greater than 0")
	case q.TemplateID == "":
		return invalid("templateID is missing")
	case q.dropsMemory() && !q.AutoPause:
		return invalid("autoPauseMemory false needs autoPause true")
	case q.dropsMemory() && q.resumes():
		return invalid("autoResume.enabled true needs autoPauseMemory true: requests do not resume a sandbox without memory")
	case given(q.IAM):
		return unsupported("iam")
	}
	if err := checkMounts(q.VolumeMounts); err != nil {
		return err
	}
	if err := checkHostMounts(q.Mounts, q.VolumeMounts); err != nil {
		return err
	}
	for name, value := range q.EnvVars {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return invalid("envVars has %q, which cannot be an environment variable", bounded(name))
		}
	}
	var err error
	if q.egress, err = q.Network.egress(q.AllowInternetAccess); err != nil {
		return err
	}
	return q.Network.validate(q.Secure)
}

// dropsMemory reports whether an automatic pause keeps only the files.
func (q *createRequest) dropsMemory() bool { return q.AutoPauseMemory != nil && !*q.AutoPauseMemory }

// resumes reports whether a request to the paused sandbox resumes it.
func (q *createRequest) resumes() bool { return q.AutoResume != nil && q.AutoResume.Enabled }

// given reports whether an optional part of a request is present and not empty.
func given(raw json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(raw)), "") {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}

const (
	maxKeyLength  = 255
	keyCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-"
)

// createOnce creates a sandbox, unless a request with the same key has already created one. A
// client that received no answer repeats its request with this key.
func (s *Service) createOnce(r *http.Request, request lifecycle.Request) (lifecycle.Sandbox, error) {
	key := r.Header.Get(protocol.HeaderIdempotency)
	if key == "" {
		return s.sandboxes.Create(r.Context(), request)
	}
	if len(key) > maxKeyLength || strings.Trim(key, keyCharacters) != "" {
		return lifecycle.Sandbox{}, invalid("%s must be 1 to %d lower-case letters, digits and hyphens", protocol.HeaderIdempotency, maxKeyLength)
	}
	return s.sandboxes.CreateOnce(r.Context(), key, request)
}
