//go:build linux

package envd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/pty"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
)

// maxMessage bounds the bytes of a Connect request. The largest requests are SendInput.
const maxMessage = 32 << 20

// Options configures a [Server].
type Options struct {
	Users          []User
	DefaultUser    string // user for a request that names none; "": the first of Users
	AnyUser        bool   // processes may use every id, although Users share one id
	AnyOwner       bool   // builds may give files to ids that processes cannot use
	OneUser        string // the reason why Users share one id, and a remedy; "": this machine allows no other id
	DefaultWorkdir string // replaces an empty path or cwd; "": the user's home

	Token string // access token of the sandbox; "": no token is required

	System map[string]string // variables that the service sets; Envs cannot override them
	Envs   map[string]string // variables that were set when the sandbox was created
	Path   string            // PATH of processes

	Scratch string // directory for unfinished uploads; "": the system's temporary directory

	MemoryBytes uint64 // the sandbox's memory limit, for metrics; 0: the machine's memory
	CPUs        int    // the sandbox's processor limit, for metrics; 0: the machine's processors

	Memory *child.Memory // detects processes that the memory limit killed; nil: they are not detected
	// MemoryUse returns the bytes of memory in use, and of the cache in addition to them, for
	// metrics. If MemoryUse is nil or returns known as false, the memory of the processes is
	// added up instead.
	MemoryUse func() (used, cache uint64, known bool)

	// Terminal opens a pseudo-terminal. If it is nil, this process opens terminals itself.
	Terminal func(context.Context) (controller, tty *os.File, err error)

	// NoProcesses is the reason why no process can be started. If it is empty, processes can be
	// started.
	NoProcesses string

	// KernelsBusy reports whether code runs in a kernel; nil: never.
	KernelsBusy func() bool
	Logger      *slog.Logger // logs the starts and ends of processes; nil: no log
}

// Server serves one sandbox. It is safe for concurrent use.
type Server struct {
	users       *users
	paths       paths
	sandbox     atomic.Pointer[sandbox]
	path        string
	scratch     string
	homes       string // the directory for homes of accounts that builds add
	anyOwner    bool   // see Options.AnyOwner
	processes   *processes
	watchers    *watchers
	uploadLocks fileLocks
	metrics     *metrics
	terminal    func(context.Context) (controller, tty *os.File, err error)
	kernelsBusy func() bool // see Options.KernelsBusy
	refusal     error       // the error for starting any process; nil: processes can be started
}

// New returns a server without processes. It returns an error if o is not valid. [Server.Close]
// ends all processes and streams that the server starts later.
func New(o Options) (*Server, error) {
	users, err := newUsers(o.Users, o.DefaultUser, o.AnyUser, o.OneUser)
	if err != nil {
		return nil, fmt.Errorf("envd: %w", err)
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	open := o.Terminal
	if open == nil {
		open = func(context.Context) (controller, tty *os.File, err error) { return pty.Open() }
	}
	var refusal error
	if o.NoProcesses != "" {
		refusal = connect.NewError(connect.CodeUnimplemented, errors.New(o.NoProcesses))
	}
	s := &Server{
		users:       users,
		paths:       paths{workdir: o.DefaultWorkdir},
		path:        o.Path,
		scratch:     cmp.Or(o.Scratch, os.TempDir()),
		homes:       "/home",
		anyOwner:    o.AnyOwner,
		processes:   newProcesses(o.Memory, logger),
		watchers:    newWatchers(),
		metrics:     newMetrics(&o),
		terminal:    open,
		refusal:     refusal,
		kernelsBusy: o.KernelsBusy,
	}
	return s, s.Become(o.Token, o.System, o.Envs)
}

// sandbox contains the values that change when saved memory continues in another sandbox.
type sandbox struct {
	token string
	envs  map[string]string // [Options].Envs and [Options].System together; System overrides Envs
}

// Become replaces the access token and the variables of [Options]. It affects later requests
// and processes.
func (s *Server) Become(token string, system, envs map[string]string) error {
	all := make(map[string]string, len(system)+len(envs))
	maps.Copy(all, envs)
	maps.Copy(all, system)
	if err := checkEnvironment(all); err != nil {
		return fmt.Errorf("envd: %w", err)
	}
	s.sandbox.Store(&sandbox{token, all})
	return nil
}

// Token returns the access token that requests must have. "" means that none is required.
func (s *Server) Token() string { return s.sandbox.Load().token }

// Handler returns the handler for port 49983. The HTTP server must not have a read or write
// timeout, because a stream lasts as long as its process.
func (s *Server) Handler() http.Handler {
	r := newRouter()
	r.handle(http.MethodGet, "/health", s.serveHealth)
	r.handle(http.MethodGet, "/metrics", s.serveMetrics)
	r.handle(http.MethodGet, "/envs", s.serveEnvs)
	r.handle(http.MethodGet, "/files", s.download)
	r.handle(http.MethodPost, "/files", s.upload)
	r.handle(http.MethodPost, "/files/compose", s.compose)
	r.handle(http.MethodGet, "/local/busy", s.serveBusy)
	r.handle(http.MethodPost, "/local/resources", s.serveResize)
	s.serveBuilding(r)

	// Answers of any size are compressed if a client asks for it. Compression costs more than
	// it saves, so this module's own client does not ask.
	options := []connect.HandlerOption{connect.WithReadMaxBytes(maxMessage), connect.WithInterceptors(cutMessages{})}
	r.mount(processconnect.NewProcessHandler(&processService{s}, options...))
	r.mount(filesystemconnect.NewFilesystemHandler(&filesystemService{s},
		append(options, connect.WithInterceptors(legacyClients{}))...))

	return allowCrossOrigin(boundRequests(s.requireToken(s.resolveUser(r))))
}

// Close kills every process, ends every stream and waits until all have ended. It is
// idempotent. Later requests are refused as unavailable.
func (s *Server) Close() error {
	return errors.Join(s.processes.close(), s.watchers.close())
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "")
	w.WriteHeader(http.StatusNoContent)
}

// serveBusy answers whether the sandbox is in use although no bytes pass. Only the local cloud asks this.
func (s *Server) serveBusy(w http.ResponseWriter, _ *http.Request) {
	busy := s.processes.followed() || s.kernelsBusy != nil && s.kernelsBusy()
	writeAnswer(w, map[string]bool{"busy": busy})
}

func (s *Server) serveEnvs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	writeAnswer(w, s.sandbox.Load().envs)
}
