package kernelconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Options are the values that the kernels of a sandbox need from its handle.
type Options struct {
	SandboxID string
	Server    Server
	Logger    *slog.Logger
	// Envs is the sandbox's environment; nil means that it is unknown and must be
	// requested from envd.
	Envs map[string]string
	// Background calls do with a Go context that outlives the call of ctx. It cancels the new context
	// when the time for the work is over.
	Background func(ctx context.Context, do func(context.Context))
}

// Timings are the durations for which the connections to kernels wait.
type Timings struct {
	// Silence is the time without a message of the kernel after which the server is
	// asked whether the kernel is still busy.
	Silence time.Duration
	// AnswerAgain is the time after a cut until an answer that may not have reached the code is sent
	// again. Within this time, the server sends the messages that it kept during the cut.
	AnswerAgain time.Duration
	// InterruptPause is the time after which an interrupt without effect is repeated.
	InterruptPause time.Duration
	// CancelGrace and LimitGrace bound the wait for the reaction to an interrupt. The reaction is the
	// traceback with the position of the code. CancelGrace applies if the caller's ctx has ended,
	// because the call must return within 100 ms. LimitGrace applies if the code has exceeded its
	// limit.
	CancelGrace, LimitGrace time.Duration
	// InterruptOvertake is the time that the interrupt may take to arrive after a request over HTTP
	// was cut.
	InterruptOvertake time.Duration
	// BeginPatience bounds the time that the interpreter may take to run an empty request after a
	// request over HTTP was cut. The interpreter may take five seconds to notice the cut.
	BeginPatience time.Duration
}

// Kernels contains the contexts of a sandbox that this handle has used or found, and the
// connections to their kernels.
type Kernels struct {
	Timings Timings // change it only before the first call
	options Options

	opening chan struct{} // held by the call that opens a connection or looks up a context

	mu        sync.Mutex
	open      map[string]*Kernel  // the connections, by the id of the context
	defaults  map[string]string   // the id of the default context, by language
	languages map[string]string   // the language, by the id of the context
	beside    map[string]struct{} // the contexts that were created on request and are no language's default
	dead      map[string]deadContext
	// contexts, by id, whose kernel ended and to which no connection has been opened since
	replaced map[string]bool
	// the gates of the contexts that are being ended, by the id of the context
	ending   map[string]chan struct{}
	lost     map[string]string       // the reasons for lost variables between calls, by the keys that lossOf returns
	requests map[string]*requestTurn // the turns of requests over HTTP, by context or language
	heard    map[string]struct{}     // the keys of requests whose kernel has sent something
}

// New returns the kernels of a sandbox. It opens no connection.
func New(o Options) *Kernels {
	return &Kernels{
		options: o,
		Timings: Timings{
			Silence: 30 * time.Second, AnswerAgain: time.Second, InterruptPause: 2 * time.Second,
			CancelGrace: 50 * time.Millisecond, LimitGrace: LimitGrace,
			InterruptOvertake: 500 * time.Millisecond, BeginPatience: 10 * time.Second,
		},
		opening: make(chan struct{}, 1), open: map[string]*Kernel{},
		defaults: map[string]string{}, languages: map[string]string{}, beside: map[string]struct{}{},
		dead: map[string]deadContext{}, ending: map[string]chan struct{}{}, replaced: map[string]bool{}, lost: map[string]string{},
		requests: map[string]*requestTurn{}, heard: map[string]struct{}{},
	}
}

// maxLookups bounds the number of contexts without a kernel that are tried for a call. A call may try
// several, because the recorded context may no longer exist, and the next context may be dead.
const maxLookups = 3

// Disconnect ends the unused connections. It is called after the other side of the connections has
// ended. Without Disconnect, this program would notice the end only later. Until then, a call would
// send its code to a peer that no longer exists, and could not detect that the code did not run.
func (ks *Kernels) Disconnect() {
	ks.mu.Lock()
	open := slices.Collect(maps.Values(ks.open))
	ks.mu.Unlock()
	for _, k := range open {
		if k.unfinished() == nil {
			k.hangUp()
		}
	}
}

// exclusively waits until no other call opens a connection or looks up a context.
func (ks *Kernels) exclusively(ctx context.Context) (release func(), err error) {
	select {
	case ks.opening <- struct{}{}:
		return func() { <-ks.opening }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Open returns the connection to a context's kernel. If there is no connection, Open opens one. It
// waits while the context is being ended. If a default context has no kernel, Open replaces the
// context.
func (ks *Kernels) Open(ctx context.Context, id, language string) (*Kernel, error) {
	for {
		k, ending, err := ks.openUnlessEnding(ctx, id, language)
		if ending == "" {
			return k, err
		}
		if err := ks.waitAtGate(ctx, ending); err != nil {
			return nil, err
		}
	}
}

// openUnlessEnding does the work of Open, but does not wait while the context is being ended. In
// this case k is nil, and ending is the id of the context.
func (ks *Kernels) openUnlessEnding(ctx context.Context, id, language string) (k *Kernel, ending string, err error) {
	release, err := ks.exclusively(ctx)
	if err != nil {
		return nil, "", err
	}
	defer release()
	for range maxLookups {
		at, err := ks.lookup(ctx, id, language)
		if err != nil {
			return nil, "", err
		}
		ks.mu.Lock()
		k, shut := ks.open[at], ks.ending[at] != nil
		ks.mu.Unlock()
		if k != nil {
			select {
			case <-k.done:
				k.close()
			default:
				return k, "", nil
			}
		}
		if shut {
			return nil, at, nil
		}
		session := jupyter.NewID()
		conn, err := ks.dial(ctx, at, session)
		if err == nil {
			if k := ks.add(at, session, conn); k != nil {
				return k, "", nil
			}
			_ = conn.Close()
			continue
		}
		if refused, ok := errors.AsType[*jupyter.DialError](err); !ok || refused.StatusCode != http.StatusNotFound {
			return nil, "", err
		}
		if found, why := ks.bury(ctx); why != nil {
			return nil, "", why
		} else if !found {
			return nil, "", err
		}
	}
	return nil, "", fmt.Errorf("the sandbox has lost the kernels of %d contexts, one after the other: %w", maxLookups, api.ErrRetryable)
}

// add records a new connection. It returns nil if the context was ended meanwhile, or is being
// ended, because the connection may then lead to the kernel that ends.
func (ks *Kernels) add(id, session string, conn *jupyter.Conn) *Kernel {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	language, known := ks.languages[id]
	if !known || ks.ending[id] != nil {
		return nil
	}
	k := newKernel(ks, id, language, session, conn, ks.replaced[id])
	delete(ks.replaced, id)
	ks.open[id] = k
	return k
}

// Opened returns the connection to the default context of a language. If there is no such
// connection, it returns nil.
func (ks *Kernels) Opened(language string) *Kernel {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return ks.open[ks.defaults[language]]
}

// Close ends all connections.
func (ks *Kernels) Close() {
	ks.mu.Lock()
	open := ks.open
	ks.open = map[string]*Kernel{}
	ks.mu.Unlock()
	for _, k := range open {
		k.close()
	}
}
