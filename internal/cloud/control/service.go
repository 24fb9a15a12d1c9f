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

// clientID is a field without meaning that older clients require.
const clientID = "local"

// Resources are the reported resources of every sandbox.
type Resources struct {
	CPUs     int
	MemoryMB int
	DiskMB   int
}

// Options configure a [Service].
type Options struct {
	Key         string    // the first API key; the others are in Store
	Domain      string    // reported to clients, which reach ports at <port>-<id>.<domain>; may be ""
	EnvdVersion string    // envd's version in every sandbox; the SDKs' behaviour depends on it
	Resources   Resources // of sandboxes whose engine is not in Of
	Of          map[engine.Name]Resources
	NoDiskLimit func(engine.Name) bool // reports whether an engine does not limit the disk of its sandboxes; nil: all limit it
	Mounts      []mounts.Mount         // of every sandbox
	Engine      engine.Name            // of sandboxes whose template names none
	// Architecture is the architecture of Engine's images, as Go names it.
	Architecture string
	Sandboxes    *lifecycle.Registry
	Templates    *templates.Registry
	Builds       *builds.Builder // of Templates
	Volumes      *volumes.Registry
	Secrets      *secrets.Registry
	// CheckProxy returns an error if the proxy of rules may not be reached; nil checks none.
	CheckProxy func(ctx context.Context, rules *network.Rules) error
	Telemetry  *telemetry.Registry // nil: no logs and no metrics
	Store      *store.Store        // the caller closes it after the last request
	Rate       RateLimit
	Logger     *slog.Logger // nil: no log
}

// Service is the REST API. It is an http.Handler and safe for concurrent use.
type Service struct {
	options    Options
	sandboxes  *lifecycle.Registry
	templates  *templates.Registry
	builds     *builds.Builder
	volumes    *volumes.Registry
	telemetry  *telemetry.Registry
	keys       *keyring
	mux        *http.ServeMux
	contents   *http.ServeMux // of volumes
	unique     turns
	freed      func(ctx context.Context) // waits until the space of deleted things is free
	operations map[string]string         // see operationsByCall
}

// New returns a service for the sandboxes of a registry. The caller closes the registry.
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
	if strings.HasPrefix(r.URL.Path, pathVolumeContent) { // it has tokens of its own
		s.contents.ServeHTTP(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, pathUploads) { // its addresses are signed
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

// authenticate finds the API key of a request.
func (s *Service) authenticate(r *http.Request) (*apiKey, error) {
	value, err := presented(r)
	if err != nil {
		return nil, err
	}
	key, ok := s.keys.use(value)
	switch {
	case !ok:
		return nil, errorf(http.StatusUnauthorized, "Invalid API key: it is not a key of this local cloud; e2bctl local env prints one")
	case foreignTeam(r):
		return nil, errorf(http.StatusForbidden, "no access to that team: this local cloud has only %s", teamID)
	}
	return key, nil
}

// presented returns the API key of a request. On the service, teams and keys are for users with
// a bearer token; here that token may be an API key. Elsewhere a key as a bearer token is
// refused, as on the service.
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
