package control

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Bounds of a request.
const (
	maxBody         = 16 << 20
	bodyDeadline    = 10 * time.Second
	requestDeadline = 70 * time.Second
)

// clientID is the value of a field that older clients require. It has no meaning.
const clientID = "local"

// Resources are the resources that are reported for every sandbox.
type Resources struct {
	CPUs     int
	MemoryMB int
	DiskMB   int
}

// Options configure a [Service].
type Options struct {
	Key         string    // the first API key; Store has the others
	KeyFiles    *KeyFiles // all API keys, in place of the keys in Key and Store; nil: Key and Store have the keys
	Secure      bool      // every sandbox has an access token, whatever its request says
	BehindProxy bool      // X-Forwarded-Proto has the scheme that clients use
	Domain      string    // reported to clients, which reach ports at <port>-<id>.<domain>; may be ""
	EnvdVersion string    // version of envd in every sandbox, on which the behaviour of SDKs depends
	Resources   Resources // resources of sandboxes whose engine is not in Of
	Of          map[engine.Name]Resources
	// Bounds returns the maximum resources of a sandbox of an engine; nil: there are no bounds.
	Bounds func(engine.Name) engine.Bounds
	// CheckResources returns an error if a sandbox of an engine cannot have these resources; nil:
	// resources are not checked.
	CheckResources func(context.Context, engine.Name, engine.Resources) error
	NoDiskLimit    func(engine.Name) bool // reports whether an engine has no disk limit; nil: all engines have one
	Mounts         []mounts.Mount         // mounts of every sandbox
	Engine         engine.Name            // engine of sandboxes whose template names none
	// Architecture is the processor architecture of Engine's images, as in GOARCH.
	Architecture string
	Sandboxes    *lifecycle.Registry
	Templates    *templates.Registry
	Builds       *builds.Builder // must use the registry Templates
	Volumes      *volumes.Registry
	Secrets      *secrets.Registry
	// CheckProxy returns an error if sandboxes must not reach the proxy of rules. nil: proxies
	// are not checked.
	CheckProxy func(ctx context.Context, rules *network.Rules) error
	Telemetry  *telemetry.Registry // nil: neither logs nor metrics
	Store      *store.Store        // closed by the caller after the last request
	Rate       RateLimit
	Logger     *slog.Logger // nil: no log
}

// Service is the REST API, an [http.Handler]. It is safe for concurrent use.
type Service struct {
	options    Options
	sandboxes  *lifecycle.Registry
	templates  *templates.Registry
	builds     *builds.Builder
	volumes    *volumes.Registry
	telemetry  *telemetry.Registry
	keys       *keyring
	mux        *http.ServeMux
	contents   *http.ServeMux // serves the contents of volumes
	unique     labelLocks
	freed      func(ctx context.Context) // waits until the space of deleted objects is free
	operations map[string]string         // names of operations, as operationsByCall returns them
}

// New returns a service for the sandboxes of a registry. The caller still closes the registry.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Telemetry == nil {
		o.Telemetry = telemetry.New(telemetry.Options{})
	}
	o.Rate = o.Rate.withDefaults()
	s := &Service{options: o, sandboxes: o.Sandboxes, templates: o.Templates, builds: o.Builds, volumes: o.Volumes, telemetry: o.Telemetry, keys: newKeyring(o), freed: func(context.Context) {}}
	if o.Store != nil {
		s.freed = o.Store.Freed
	}
	s.mux, s.contents, s.operations = s.routes(), s.contentRoutes(), s.operationsByCall()
	return s
}

// ServeHTTP answers the REST API.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" && r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("Health check successful"))
		return
	}
	if strings.HasPrefix(r.URL.Path, pathVolumeContent) { // requires the token of a volume instead
		s.contents.ServeHTTP(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, pathUploads) { // has signed addresses
		if err := s.upload(w, r); err != nil {
			s.fail(w, r, err)
		}
		return
	}
	key, err := s.authenticate(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	connlimit.Admit(r.Context())
	if s.limited(w, key) {
		return
	}
	s.mux.ServeHTTP(w, r)
}

// authenticate returns the API key of a request.
func (s *Service) authenticate(r *http.Request) (*apiKey, error) {
	value, err := presented(r)
	if err != nil {
		return nil, err
	}
	key, ok := s.keys.use(value)
	switch {
	case !ok && s.options.KeyFiles != nil:
		return nil, errorf(http.StatusUnauthorized, "Invalid API key: the files of API keys of this server do not have it")
	case !ok:
		return nil, errorf(http.StatusUnauthorized, "Invalid API key: it is not a key of this local cloud; e2bctl local env prints one")
	case foreignTeam(r):
		return nil, errorf(http.StatusForbidden, "no access to that team: this local cloud has only %s", teamID)
	}
	return key, nil
}

// presented returns the value of a request's API key. On the service, the calls for teams and
// keys require a user's bearer token; here, that token may also be an API key. Other calls
// refuse an API key as a bearer token, as the service does.
func presented(r *http.Request) (string, error) {
	if key := r.Header.Get(protocol.HeaderAPIKey); key != "" {
		return key, nil
	}
	if key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && forUsers(r.URL.Path) {
		return key, nil
	}
	return "", errorf(http.StatusUnauthorized, "API key is missing: send it in the X-API-KEY header")
}

func forUsers(path string) bool {
	return path == pathTeams || path == pathKeys || strings.HasPrefix(path, pathKeys+"/")
}

const (
	pathTeams = "/teams"
	pathKeys  = "/api-keys"
)
