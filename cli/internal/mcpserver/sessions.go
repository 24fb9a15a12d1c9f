package mcpserver

import (
	"context"
	"maps"
	"net/http"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxSessions bounds the sessions over HTTP that are open at the same time.
const maxSessions = 100

// sessionHeader is the header with the id of a session. A request contains the id of its session.
// An answer contains the id of a new session.
const sessionHeader = "Mcp-Session-Id"

// sessions bounds the sessions over HTTP. The limit is necessary because many clients never end
// their sessions. When a session is opened beyond the limit, the session that has been unused for
// the longest time ends.
type sessions struct {
	server *sdk.Server
	limit  int

	mu      sync.Mutex
	opening int // the number of requests in progress that may open a session
	clock   int // the number of uses that have ended
	open    map[string]*sessionUse
}

// sessionUse records the use of one session.
type sessionUse struct {
	running int // the number of requests and calls in progress
	last    int // the value of the clock at the end of the last use
}

func newSessions(server *sdk.Server, limit int) *sessions {
	s := &sessions{server: server, limit: limit, open: map[string]*sessionUse{}}
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			defer s.use(req.GetSession().ID())() // a call can outlast its request: the client may have gone
			return next(ctx, method, req)
		}
	})
	return s
}

// handler passes requests to next. While all sessions are in use, it refuses requests without a
// session.
func (s *sessions) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get(sessionHeader); id != "" {
			defer s.use(id)()
		} else {
			if !s.begin() {
				w.Header().Set("Retry-After", "10")
				http.Error(w, "too many sessions: all are in use", http.StatusServiceUnavailable)
				return
			}
			defer func() { s.opened(w.Header().Get(sessionHeader)) }()
		}
		next.ServeHTTP(w, r)
	})
}

// use marks a session as in use until the returned function is called.
func (s *sessions) use(id string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := s.known(id)
	if use == nil {
		return func() {} // the library refuses the request, or opens a session with it
	}
	use.running++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		use.running--
		s.clock++
		use.last = s.clock
		s.trim(s.limit)
	}
}

// known returns the record about the use of the session id, or nil if no such session is open.
func (s *sessions) known(id string) *sessionUse {
	if s.open[id] == nil && s.alive()[id] != nil {
		s.trim(s.limit - 1)
		s.clock++
		s.open[id] = &sessionUse{last: s.clock}
	}
	return s.open[id]
}

// alive returns the sessions that have begun and not ended, by their ids.
func (s *sessions) alive() map[string]*sdk.ServerSession {
	alive := map[string]*sdk.ServerSession{}
	for session := range s.server.Sessions() {
		if session.InitializeParams() != nil {
			alive[session.ID()] = session
		}
	}
	return alive
}

// begin reports whether a request may open a session. It returns false if all sessions are in use.
func (s *sessions) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	inUse := s.opening
	for _, use := range s.open {
		if use.running > 0 {
			inUse++
		}
	}
	if inUse >= s.limit {
		return false
	}
	s.opening++
	return true
}

// opened records the end of a request that was allowed to open a session. id is the session that
// the request opened. If the request was refused, it opened no session, and id is "".
func (s *sessions) opened(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if id != "" {
		s.known(id)
	}
}

// trim forgets the sessions that have ended. If more than most sessions remain, it then ends unused
// sessions until no more than most are open. trim begins with the sessions that have been unused for
// the longest time.
func (s *sessions) trim(most int) {
	if len(s.open) <= most {
		return
	}
	alive := s.alive()
	maps.DeleteFunc(s.open, func(id string, _ *sessionUse) bool { return alive[id] == nil })
	for len(s.open) > most {
		oldest := ""
		for id, use := range s.open {
			if use.running == 0 && (oldest == "" || use.last < s.open[oldest].last) {
				oldest = id
			}
		}
		if oldest == "" {
			return
		}
		delete(s.open, oldest)
		go func() { _ = alive[oldest].Close() }() // it waits for calls that have just begun
	}
}
