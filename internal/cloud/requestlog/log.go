// Package requestlog records the requests of clients to the local cloud, so that a test or a
// person can check which requests an SDK sends. It does not record headers, queries or bodies,
// and therefore contains no secrets.
package requestlog

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// size bounds the number of entries in a log. The oldest entries are dropped first.
const size = 1024

// maxText bounds the length in bytes of each text that an entry contains from a request.
const maxText = 512

// maxIgnored bounds the number of field names that are kept for a request.
const maxIgnored = 32

// Entry describes a request that was answered.
type Entry struct {
	Time     time.Time
	Method   string
	Path     string // without the query, which may contain a signature
	Status   int
	Duration time.Duration
	Sandbox  string   // sandbox that received the request; "": REST API
	Port     int      // port that received the request; 0: REST API
	Ignored  []string // unknown fields of the body, and unknown parameters of the query as ?name
}

// Log is a bounded list of entries. The zero value is ready to use. It is safe for concurrent
// use.
type Log struct {
	// Each is called for each request that was answered. nil: it is not called. It must be set
	// before the first request.
	Each func(*http.Request, Entry)

	mu      sync.Mutex
	entries []Entry
	first   int // index of the oldest entry once the list is full
}

// Entries returns a copy of the log. The oldest entry is first.
func (l *Log) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.entries[l.first:], l.entries[:l.first])
}

func (l *Log) add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) < size {
		l.entries = append(l.entries, e)
		return
	}
	l.entries[l.first] = e
	l.first = (l.first + 1) % size
}

// MethodEgress is the method of an entry for a denied connection out of a sandbox. The path of
// the entry is the host.
const MethodEgress = "EGRESS"

// Denied adds an entry for a connection that a sandbox may not make. If port is 0, the entry is
// for a name that the sandbox may not look up.
func (l *Log) Denied(sandbox, host string, port int) {
	l.add(Entry{Time: time.Now(), Method: MethodEgress, Path: bounded(host), Status: http.StatusForbidden, Sandbox: sandbox, Port: port})
}

// note contains the information that handlers report about a request. These are the handlers that
// [Log.Handler] calls.
type note struct {
	mu      sync.Mutex
	sandbox string
	port    int
	ignored []string
}

type noteKey struct{}

// Routed records the sandbox and the port that receive the request of ctx.
func Routed(ctx context.Context, sandbox string, port int) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.sandbox, n.port = bounded(sandbox), port
	}
}

// Ignored records names of unknown fields in the body of a request, or of unknown parameters in
// its query. ctx is the context of the request. If there are too many names, only the first
// ones are kept.
func Ignored(ctx context.Context, fields ...string) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, f := range fields {
			if len(n.ignored) < maxIgnored {
				n.ignored = append(n.ignored, bounded(f))
			}
		}
	}
}

// Handler returns a handler that calls next and logs each request once it has been answered.
// The request of an upgraded connection is logged when the connection ends.
func (l *Log) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := &note{}
		rw := &recorder{ResponseWriter: w}
		start := time.Now()
		defer func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			e := Entry{
				Time: start, Method: bounded(r.Method), Path: bounded(r.URL.Path), Status: rw.status,
				Duration: time.Since(start), Sandbox: n.sandbox, Port: n.port, Ignored: n.ignored,
			}
			l.add(e)
			if l.Each != nil {
				l.Each(r, e)
			}
		}()
		next.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), noteKey{}, n)))
	})
}

// bounded returns a copy of s, shortened to maxText bytes. It copies because a substring would keep
// the whole request in memory.
func bounded(s string) string { return strings.Clone(s[:min(len(s), maxText)]) }

// recorder records the status of an answer. Unwrap gives access to the other methods of the
// ResponseWriter.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	// A 1xx status is provisional, except the one that switches protocols.
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}
