package mcpserver

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxSessions bounds the sessions over HTTP that are open at the same time.
const maxSessions = 100

// sessionHeader names the session of a request, and the new one of an answer.
const sessionHeader = "Mcp-Session-Id"

// sessions bounds the sessions over HTTP. Many clients never end theirs. When the number
// reaches the limit, the session that has been without a request for the longest time ends.
type sessions struct {
	server *sdk.Server
	limit  int

	mu      sync.Mutex
	opening int // requests that may open a session
	clock   int // counts requests
	open    map[string]*sessionUse
}

// sessionUse records the use of one session.
type sessionUse struct {
	requests int // being served
	last     int // time on the clock of the end of the last one
}

func newSessions(server *sdk.Server, limit int) *sessions {
	return &sessions{server: server, limit: limit, open: map[string]*sessionUse{}}
}

// handler passes requests to next. It refuses those
// without a session while all sessions are in use.
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
	use := s.open[id]
	if use == nil {
		return func() {} // unknown: the library refuses the request
	}
	use.requests++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		use.requests--
		s.clock++
		use.last = s.clock
	}
}

// begin makes room for a session. It returns false if there is none.
func (s *sessions) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open)+s.opening >= s.limit && !s.makeRoom() {
		return false
	}
	s.opening++
	return true
}

// makeRoom forgets the sessions that have ended. If there are none,
// it ends the one that has been unused for the longest time.
func (s *sessions) makeRoom() bool {
	alive := map[string]*sdk.ServerSession{}
	for session := range s.server.Sessions() {
		alive[session.ID()] = session
	}
	maps.DeleteFunc(s.open, func(id string, _ *sessionUse) bool { return alive[id] == nil })
	if len(s.open)+s.opening < s.limit {
		return true
	}
	var idle []string
	for id, use := range s.open {
		if use.requests == 0 {
			idle = append(idle, id)
		}
	}
	if len(idle) == 0 {
		return false
	}
	oldest := slices.MinFunc(idle, func(a, b string) int { return cmp.Compare(s.open[a].last, s.open[b].last) })
	delete(s.open, oldest)
	go func() { _ = alive[oldest].Close() }() // it waits for a call whose client has gone, which ends with the server at the latest
	return true
}

// opened records the end of a request that may have opened a session.
func (s *sessions) opened(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if id != "" {
		s.clock++
		s.open[id] = &sessionUse{last: s.clock}
	}
}
