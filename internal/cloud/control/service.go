package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
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

// Resources are the resources that every sandbox is reported to have.
type Resources struct {
	CPUs     int
	MemoryMB int
	DiskMB   int
}

// Options configure a [Service].
type Options struct {
	Key         string // the only API key that is accepted
	Domain      string // reported to clients, which reach ports at <port>-<id>.<domain>; may be ""
	EnvdVersion string // of envd in every sandbox; the SDKs' behaviour depends on it
	Resources   Resources
	Sandboxes   *lifecycle.Registry
	Logger      *slog.Logger // nil: no log
}

// Service is the REST API. It is an http.Handler and safe for concurrent use.
type Service struct {
	options   Options
	sandboxes *lifecycle.Registry
	key       [sha256.Size]byte
	mux       *http.ServeMux
}

// New returns a service for the sandboxes of a registry, which the caller keeps
// and closes.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{options: o, sandboxes: o.Sandboxes, key: sha256.Sum256([]byte(o.Key))}
	s.mux = s.routes()
	return s
}

// ServeHTTP answers the REST API.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" && r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("Health check successful"))
		return
	}
	if err := s.authenticate(r); err != nil {
		s.fail(w, r, err)
		return
	}
	connlimit.Admit(r.Context())
	s.mux.ServeHTTP(w, r)
}

// authenticate checks the API key. A key sent as a bearer token is refused: that
// header is for users, and a local cloud has none.
func (s *Service) authenticate(r *http.Request) error {
	key := r.Header.Get(protocol.HeaderAPIKey)
	if key == "" {
		return errorf(http.StatusUnauthorized, "API key is missing: send it in the X-API-KEY header")
	}
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare(sum[:], s.key[:]) != 1 {
		return errorf(http.StatusUnauthorized, "Invalid API key: it is not the key of this local cloud, which e2bctl local env prints")
	}
	return nil
}
