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

// Bounds of a sandbox.
const (
	maxKernels  = 64
	maxSockets  = 256
	maxSessions = 256
)

// Options configures a [Server].
type Options struct {
	// Python is the beginning of the argv of the Python that kernels run. The program is an
	// absolute path, or a name to search in PATH. If the field is empty, kernels of Python do not
	// start, and the error of a start explains how to install Python.
	Python []string
	// Wasm runs the kernels of Python in WebAssembly. If Wasm is set, there are no other kernels. If
	// Wasm is nil, the program in the field Python runs the kernels of Python.
	Wasm *kernel.Wasm
	// Environ returns the environment of a kernel. It is called at each start of a kernel.
	Environ func() ([]string, error)
	// Credential is the user of kernels. nil means the user of this process.
	Credential *syscall.Credential
	// Dir is the working directory of kernels, and the root of Jupyter's paths.
	Dir string
	// Token returns the token that requests to the Jupyter port must have. "" means that no token is
	// required.
	Token func() string
	// Scratch is a directory for files of the driver and for connection files.
	Scratch string
	// Memory detects kernels that were killed because memory ran out. nil means that such kernels
	// are not detected.
	Memory *child.Memory
	// Warm forks the processes of kernels where possible. nil means that all kernels start cold.
	Warm *kernel.Warm
	// Logger logs the starts and deaths of kernels. nil means that there is no log.
	Logger *slog.Logger
}

// Server runs the kernels of a sandbox, and serves them on the ports of the code interpreter and of
// Jupyter. A context of the code interpreter is a Jupyter kernel with the same id. The handlers of a
// Server are safe for concurrent use.
type Server struct {
	options Options
	driver  string
	began   time.Time
	// keepalive is keepaliveInterval and ping is pingInterval. Tests use other values.
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
	// buffers is sorted by time of creation.
	buffers []*sessionBuffer
	// creating is held during the creation of a session or of a language's default context.
	creating sync.Mutex
}

// runningKernel is a kernel, together with the attributes that clients see.
type runningKernel struct {
	*kernel.Kernel
	id string
	// spec is the installed Jupyter kernel. nil means the driver's Python.
	spec *zmq.Spec
	// isContext means that the code interpreter's port lists the kernel as a context, with its
	// language and cwd.
	isContext     bool
	language, cwd string // cwd in the form that clients see
	// isDefault means that the kernel runs the code of requests that name no context.
	isDefault bool
}

var errTooMany = errors.New("interpreter: too many")

// New writes the driver's files and creates the default contexts: one for Python and, if a kernel for
// JavaScript is installed, one for JavaScript. The process of a context starts at the context's first
// use. The caller must close the server.
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

// DefaultID returns the id of the Python context that New created.
func (s *Server) DefaultID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kernels) == 0 {
		return ""
	}
	return s.kernels[0].id
}

// Close ends all kernels and connections. It returns when all kernels and connections have ended.
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

// addKernel adds k to the server. If k has no id, addKernel gives it an id. addKernel does not start
// the process of k.
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

// find returns the first kernel for which match returns true, or nil if there is no such kernel.
func (s *Server) find(match func(*runningKernel) bool) *runningKernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.kernels, match); i >= 0 {
		return s.kernels[i]
	}
	return nil
}

// kernelByID returns the kernel with the given id, or nil if there is no such kernel.
func (s *Server) kernelByID(id string) *runningKernel {
	return s.find(func(k *runningKernel) bool { return k.id == id })
}

func (s *Server) listKernels() []*runningKernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kernels)
}

// Busy reports whether code runs or waits in a kernel.
func (s *Server) Busy() bool {
	return slices.ContainsFunc(s.listKernels(), func(k *runningKernel) bool { return k.Busy() })
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
