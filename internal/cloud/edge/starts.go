package edge

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

// starts lets requests that start a process go on in the order of their arrival, a few at once. Without
// it, all of a thousand requests would share the processors, and all would be answered at the end. A
// request waits only for the starts of others: it leaves its place when envd answers that the process has
// started, and not at the end of the process.
type starts struct{ places *semaphore.Weighted }

func newStarts() *starts {
	return &starts{semaphore.NewWeighted(int64(startsPerProcessor * runtime.GOMAXPROCS(0)))}
}

const (
	startsPerProcessor = 4
	// startLimit is the time after which a request leaves its place without an answer. Its sandbox is then
	// slow, and its requests take no place for slowFor, so that a sandbox that never answers does
	// not keep other sandboxes waiting.
	startLimit = 250 * time.Millisecond
	slowFor    = time.Minute
)

// startPath is the path of envd's call that starts a process.
const startPath = "/process.Process/Start"

// isStart reports whether a request starts a process.
func isStart(r *http.Request, port int) bool {
	return port == protocol.PortEnvd && r.URL.Path == startPath
}

// enter waits for a place. The caller calls leave when the sandbox has answered. The error is that of
// ctx.
func (s *starts) enter(ctx context.Context, slow *slowness) (leave func(), err error) {
	if slow.now() {
		return func() {}, nil
	}
	if err := s.places.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	release := sync.OnceFunc(func() { s.places.Release(1) })
	late := time.AfterFunc(startLimit, func() { slow.note(); release() })
	return func() { late.Stop(); release() }, nil
}

// slowness is the time of the latest start of a sandbox that took longer than startLimit.
type slowness struct{ at atomic.Pointer[time.Time] }

func (s *slowness) note() {
	now := time.Now()
	s.at.Store(&now)
}

func (s *slowness) now() bool {
	at := s.at.Load()
	return at != nil && time.Since(*at) < slowFor
}
