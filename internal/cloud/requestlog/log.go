// Package requestlog records the requests that clients send to the local cloud,
// so that a test or a person can see what an SDK really sent. It keeps no header,
// query or body, so it contains no secrets.
package requestlog

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// size bounds a log; the oldest entries are dropped first.
const size = 1024

// maxText bounds how much of a string from outside one entry keeps.
const maxText = 512

// maxIgnored bounds how many field names are kept for one request.
const maxIgnored = 32

// Entry is a request that was answered.
type Entry struct {
	Time     time.Time
	Method   string
	Path     string // without the query, which may carry a signature
	Status   int
	Duration time.Duration
	Sandbox  string   // the sandbox it was routed to, "" for the REST API
	Port     int      // the port it was routed to, 0 for the REST API
	Ignored  []string // fields of the body, and parameters of the query as ?name, that the cloud does not know
}

// Log is a bounded list of requests. The zero value is ready to use. It is safe
// for concurrent use.
type Log struct {
	mu      sync.Mutex
	entries []Entry
	first   int // index of the oldest entry once the list is full
}

// Entries returns a copy of the log, oldest request first.
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

// MethodEgress is the method of an entry that is not a request but a denied
// connection out of a sandbox; the entry's path is the host.
const MethodEgress = "EGRESS"

// Denied adds an entry for a connection that a sandbox may not make or, with port
// 0, for a name that it may not look up.
func (l *Log) Denied(sandbox, host string, port int) {
	l.add(Entry{Time: time.Now(), Method: MethodEgress, Path: bounded(host), Status: http.StatusForbidden, Sandbox: sandbox, Port: port})
}

// note holds what the handlers behind [Log.Handler] report about their request.
type note struct {
	mu      sync.Mutex
	sandbox string
	port    int
	ignored []string
}

type noteKey struct{}

// Routed records which sandbox and port the request of ctx goes to.
func Routed(ctx context.Context, sandbox string, port int) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.sandbox, n.port = bounded(sandbox), port
	}
}

// Ignored records the names of fields that a request's body has and that the service does not know.
// The names may also be those of parameters of the request's query. ctx is the context of the
// request. Of many names only the first are kept.
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

// Handler logs every request that next answers, once it has been answered. An
// upgraded connection counts as answered when it ends.
func (l *Log) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := &note{}
		rw := &recorder{ResponseWriter: w}
		start := time.Now()
		defer func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			l.add(Entry{
				Time: start, Method: bounded(r.Method), Path: bounded(r.URL.Path), Status: rw.status,
				Duration: time.Since(start), Sandbox: n.sandbox, Port: n.port, Ignored: n.ignored,
			})
		}()
		next.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), noteKey{}, n)))
	})
}

// bounded returns a copy: a substring would keep the whole request in memory.
func bounded(s string) string { return strings.Clone(s[:min(len(s), maxText)]) }

// recorder keeps the status of an answer. The other abilities of a ResponseWriter
// stay available through Unwrap.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	// 1xx statuses are provisional, except the one that ends HTTP.
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
