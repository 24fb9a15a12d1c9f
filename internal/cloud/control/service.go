package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// Limits of the service. They are those of the hosted one where it has them.
const (
	DefaultMaxSandboxes = 100
	DefaultMaxLifetime  = 24 * time.Hour

	maxBody         = 16 << 20
	bodyDeadline    = 10 * time.Second
	requestDeadline = 70 * time.Second
)

// clientID is a field without meaning that older clients insist on.
const clientID = "local"

// A Spec says what sandbox to launch.
type Spec struct {
	ID           string
	TemplateID   string
	AccessToken  string            // the daemon's token, "" for a sandbox that is not secured
	TrafficToken string            // asked for on every port but the daemon's, "" for public ones
	MaskHost     string            // Host header that services see, "" for the original; ${PORT} stands for the port
	HTTPSPorts   []int             // whose servers speak TLS
	Envs         map[string]string // create-time environment
	Egress       *network.Rules    // what it may reach
}

// An Instance is a sandbox that runs.
type Instance interface {
	Done() <-chan struct{} // closed when it has ended, whoever ended it
	Err() error            // why it ended; nil before that
	Close() error          // ends it; everything in it is dead when this returns

	// SetEgress changes what it may reach from now on, and cuts what is connected. It
	// does not block.
	SetEgress(rules *network.Rules)
}

// Resources are what every sandbox is reported to have.
type Resources struct {
	CPUs     int
	MemoryMB int
	DiskMB   int
}

// Options configure a [Service].
type Options struct {
	Key          string        // the only API key that is accepted
	Domain       string        // reported to clients, which reach ports at <port>-<id>.<domain>; may be ""
	EnvdVersion  string        // of the daemon in every sandbox; what SDKs do depends on it
	MaxSandboxes int           // 0: DefaultMaxSandboxes
	MaxLifetime  time.Duration // 0: DefaultMaxLifetime
	Resources    Resources
	Logger       *slog.Logger // nil: no log

	// Launch starts a sandbox. A sandbox that Launch returned is closed by the
	// service: on request, when its time is over, and by Service.Close.
	Launch func(ctx context.Context, spec Spec) (Instance, error)
}

// Service is the REST API and the records behind it: which sandboxes there are
// and how long they live. It is an http.Handler and safe for concurrent use.
type Service struct {
	options Options
	key     [sha256.Size]byte
	mux     *http.ServeMux

	wake chan struct{}  // a deadline changed
	stop chan struct{}  // closed by Close
	work sync.WaitGroup // the evictor, and what it and the watchers do

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	ended     obituaries
	attempts  attempts
	slots     int // sandboxes that start, run or end
	offset    time.Duration
	closed    bool
}

// New makes a service without sandboxes. Close ends it.
func New(o Options) *Service {
	if o.MaxSandboxes == 0 {
		o.MaxSandboxes = DefaultMaxSandboxes
	}
	if o.MaxLifetime == 0 {
		o.MaxLifetime = DefaultMaxLifetime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		options:   o,
		key:       sha256.Sum256([]byte(o.Key)),
		wake:      make(chan struct{}, 1),
		stop:      make(chan struct{}),
		sandboxes: map[string]*sandbox{},
		attempts:  attempts{byKey: map[string]*attempt{}},
	}
	s.mux = s.routes()
	s.work.Go(s.evictor)
	return s
}

// Close ends every sandbox and waits until they are gone. Requests that come
// later are answered with 503. It is idempotent.
func (s *Service) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	var all []*sandbox
	for id := range s.sandboxes {
		all = append(all, s.takeLocked(id))
	}
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	s.endAll(all, "the cloud was closed")
	s.work.Wait()
	return nil
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

// authenticate checks the API key. A key that comes as a bearer token is
// refused: that header is for users, whom a local cloud does not have.
func (s *Service) authenticate(r *http.Request) error {
	key := r.Header.Get("X-Api-Key")
	if key == "" {
		return errorf(http.StatusUnauthorized, "API key is missing: send it in the X-API-KEY header")
	}
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare(sum[:], s.key[:]) != 1 {
		return errorf(http.StatusUnauthorized, "Invalid API key: it is not the key of this local cloud, which e2bctl local env prints")
	}
	return nil
}
