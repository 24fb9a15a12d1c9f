//go:build linux

package interpreter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	pydriver "github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Bounds of one sandbox.
const (
	maxKernels  = 64
	maxSockets  = 256
	maxSessions = 256
)

// Options configures a [Server].
type Options struct {
	// Python is the argv prefix of the Python that kernels run: its program is an
	// absolute path, or a name to look for in PATH. If it is empty the kernels of
	// Python do not start, and say what to install.
	Python []string
	// Wasm runs the kernels of Python in WebAssembly; other kernels do not exist then. nil
	// means that Python runs them.
	Wasm *kernel.Wasm
	// Environ returns the environment of a kernel. It is called each time one
	// starts.
	Environ func() ([]string, error)
	// Credential is the user that kernels run as; nil means this process's own.
	Credential *syscall.Credential
	// Dir is the working directory of kernels and the root of Jupyter's paths.
	Dir string
	// Token returns the token that the Jupyter port requires now; "" means none.
	Token func() string
	// Scratch is a directory for the files of the driver and of connections.
	Scratch string
	// Memory reports which kernels were killed for lack of memory; nil reports
	// none.
	Memory *child.Memory
	// Warm makes the kernels' processes where it can; nil means that all start
	// cold.
	Warm *kernel.Warm
	// Logger logs the starts and deaths of kernels; nil logs nothing.
	Logger *slog.Logger
}

// Server runs the kernels of a sandbox and serves them on both ports: a context of
// the code interpreter is a Jupyter kernel with the same id. Its handlers may be
// used concurrently.
type Server struct {
	options Options
	driver  string
	began   time.Time
	// keepalive is keepaliveInterval and ping is pingInterval, except in tests.
	keepalive, ping time.Duration
	// ctx ends with Close.
	ctx    context.Context //nolint:containedctx // the life of the server, not of a call
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	kernels  []*runningKernel
	sessions []*session
	sockets  map[*socket]struct{}
	requests uint64 // number of requests for sockets so far
	// buffers are in the order in which they were made.
	buffers []*sessionBuffer
	// creating serialises the code that makes the default context of a language, or
	// a session.
	creating sync.Mutex
}

// runningKernel is a kernel with the values by which clients know it.
type runningKernel struct {
	*kernel.Kernel
	id string
	// spec is the Jupyter kernel; nil means the driver's Python.
	spec *zmq.Spec
	// isContext reports whether it is listed on the code interpreter's port, with this
	// language and working directory.
	isContext     bool
	language, cwd string // cwd as the client sees it
	// isDefault reports whether it runs code for which no context was named.
	isDefault bool
}

var errTooMany = errors.New("interpreter: too many")

// New writes the driver's files and makes the default contexts: Python's, and
// JavaScript's if a kernel for it is installed. Their processes start when they are
// first used. The caller must close the server.
func New(o Options) (*Server, error) {
	if len(o.Python) > 0 && !filepath.IsAbs(o.Python[0]) && filepath.Base(o.Python[0]) != o.Python[0] {
		return nil, fmt.Errorf("interpreter: Python is %q: the absolute path or the name of an interpreter is needed", o.Python)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	driver, err := pydriver.WriteDriver(o.Scratch)
	if err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	s := &Server{options: o, driver: driver, began: time.Now(), keepalive: keepaliveInterval, ping: pingInterval, sockets: map[*socket]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if _, err := s.addKernel(&runningKernel{isContext: true, isDefault: true, language: "python", cwd: o.Dir}); err != nil {
		return nil, err
	}
	if spec, err := s.kernelFor("javascript"); err == nil {
		if _, err := s.addKernel(&runningKernel{spec: spec, isContext: true, isDefault: true, language: "javascript", cwd: o.Dir}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// DefaultID returns the id of the Python context that exists from the start.
func (s *Server) DefaultID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kernels) == 0 {
		return ""
	}
	return s.kernels[0].id
}

// Close ends all kernels and connections and returns when they are gone.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	kernels, buffers := s.kernels, slices.Clone(s.buffers)
	s.kernels, s.sessions = nil, nil
	s.mu.Unlock()
	s.cancel()
	var closing sync.WaitGroup
	for _, k := range kernels {
		closing.Go(func() { _ = k.Close() })
	}
	closing.Wait()
	s.work.Wait()
	for _, b := range buffers {
		b.drop()
	}
	return nil
}

// addKernel gives k an id if it has none, and a process that is not started yet.
func (s *Server) addKernel(k *runningKernel) (*runningKernel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, kernel.ErrClosed
	case len(s.kernels) >= maxKernels:
		return nil, fmt.Errorf("%w kernels: the limit of a sandbox is %d; remove some", errTooMany, maxKernels)
	}
	if k.id == "" {
		k.id = jupyter.NewID()
	}
	if slices.ContainsFunc(s.kernels, func(o *runningKernel) bool { return o.id == k.id }) {
		return nil, fmt.Errorf("interpreter: a kernel with the id %.64s exists already", k.id)
	}
	dir := s.absolute(k.cwd)
	if !isDirectory(dir) {
		dir = s.options.Dir
	}
	k.Kernel = kernel.New(kernel.Spec{
		Python: s.options.Python, Wasm: s.options.Wasm, Driver: s.driver, Jupyter: k.spec, Scratch: s.options.Scratch, Environ: s.options.Environ, Credential: s.options.Credential,
		Dir: dir, Warm: s.options.Warm, Memory: s.options.Memory, Logger: s.options.Logger.With("kernel", k.id),
	})
	s.kernels = append(s.kernels, k)
	return k, nil
}

// find returns the first kernel that matches, or nil.
func (s *Server) find(match func(*runningKernel) bool) *runningKernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.kernels, match); i >= 0 {
		return s.kernels[i]
	}
	return nil
}

// kernelByID returns nil when there is none.
func (s *Server) kernelByID(id string) *runningKernel {
	return s.find(func(k *runningKernel) bool { return k.id == id })
}

func (s *Server) listKernels() []*runningKernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kernels)
}

// removeKernel closes k and its connections.
func (s *Server) removeKernel(k *runningKernel) {
	s.mu.Lock()
	s.kernels = slices.DeleteFunc(s.kernels, func(o *runningKernel) bool { return o == k })
	for _, o := range s.sessions {
		o.gone = o.gone || o.kernel == k
	}
	buffers := slices.Clone(s.buffers)
	s.mu.Unlock()
	_ = k.Close()
	for _, b := range buffers {
		if b.kernel == k {
			b.retire()
		}
	}
}

// background runs f until the server closes. It returns false if the server is
// already closed.
func (s *Server) background(f func(ctx context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(func() { f(s.ctx) })
	return true
}
