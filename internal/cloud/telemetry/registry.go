package telemetry

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Bounds of the logs.
const (
	maxLog  = 8 << 20   // bytes of one log
	maxLogs = 128 << 20 // bytes of all logs
	kept    = time.Hour // time after the end of the sandbox
	// maxEnded bounds the number of logs of ended sandboxes. An empty log takes about 1 kB, too.
	maxEnded = 1000
)

// loggerTelemetry is the name of the logger in entries that this package adds itself.
const loggerTelemetry = "log"

// Options configure a [Registry]. The zero value is usable.
type Options struct {
	CPUs float64 // number of processors that count as 100 percent; 0: 1
}

// Registry keeps the logs and metrics of all sandboxes of a cloud. It is safe for concurrent
// use. The caller must close it.
type Registry struct {
	options Options

	mu      sync.Mutex
	closed  bool
	records map[string]*record
	ended   []string // ids of records whose sandbox has ended, oldest first
	size    int      // bytes of all logs

	running int            // number of sandboxes to measure; the goroutine exists only while it is above 0
	begun   chan struct{}  // wakes the goroutine for a new sandbox
	stop    chan struct{}  // ends the goroutine when closed
	sampler sync.WaitGroup // waits for the goroutine
}

// record contains the log and the series of one sandbox. Registry.mu guards it.
type record struct {
	log    log
	bucket bucket
	expiry *time.Timer // nil until the sandbox has ended
	series series
}

// New returns a registry without sandboxes.
func New(o Options) *Registry {
	if o.CPUs <= 0 {
		o.CPUs = 1
	}
	return &Registry{options: o, records: map[string]*record{}, begun: make(chan struct{}, 1)}
}

// Open starts the log and the series of a sandbox. If they exist, it continues them, also after an end:
// a request that failed and is repeated may make a sandbox with the same id.
func (r *Registry) Open(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	rec := r.records[id]
	switch {
	case rec == nil:
		r.records[id] = &record{bucket: bucket{left: burst, at: time.Now()}}
	case rec.expiry != nil && rec.expiry.Stop(): // otherwise it is being removed
		rec.expiry = nil
		r.ended = slices.DeleteFunc(r.ended, func(other string) bool { return other == id })
	}
}

// End records that a sandbox has ended. It removes the series immediately, and the log an hour
// later, or when maxEnded other sandboxes have ended.
func (r *Registry) End(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.records[id]
	if rec == nil || rec.expiry != nil || r.closed {
		return
	}
	r.restLocked(rec)
	rec.series = series{}
	if len(r.ended) == maxEnded {
		r.removeLocked(r.ended[0])
	}
	r.ended = append(r.ended, id)
	rec.expiry = time.AfterFunc(kept, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.removeLocked(id)
	})
}

// removeLocked removes the log of a sandbox that has ended.
func (r *Registry) removeLocked(id string) {
	rec := r.records[id]
	if rec == nil {
		return
	}
	rec.expiry.Stop()
	r.size -= rec.log.size
	delete(r.records, id)
	r.ended = slices.DeleteFunc(r.ended, func(other string) bool { return other == id })
}

// Close drops all logs and series, and waits for the goroutine that measures sandboxes. Later
// calls do nothing.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	for _, rec := range r.records {
		r.restLocked(rec)
		if rec.expiry != nil {
			rec.expiry.Stop()
		}
	}
	r.records, r.ended, r.size = map[string]*record{}, nil, 0
	r.mu.Unlock()
	r.sampler.Wait()
}

// Logs returns the entries of a sandbox's log that match q. It returns false if the sandbox has no
// log.
func (r *Registry) Logs(id string, q Query) ([]Entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.records[id]
	if rec == nil {
		return nil, false
	}
	return rec.log.find(q), true
}

// Add adds an entry with the current time to the log of a sandbox. It does nothing if there is
// no log.
func (r *Registry) Add(id string, e Entry) {
	e.bound()
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.records[id]; rec != nil {
		r.addLocked(rec, e)
	}
}

func (r *Registry) addLocked(rec *record, e Entry) {
	e.Time = time.Now()
	r.size -= rec.log.size
	rec.log.add(e)
	rec.log.shrink(maxLog)
	r.size += rec.log.size
	for r.size > maxLogs {
		if len(r.ended) > 0 {
			r.removeLocked(r.ended[0])
			continue
		}
		r.halveLocked()
	}
}

// halveLocked drops half of the largest log.
func (r *Registry) halveLocked() {
	var largest *record
	for _, rec := range r.records {
		if largest == nil || rec.log.size > largest.log.size {
			largest = rec
		}
	}
	r.size -= largest.log.size
	largest.log.shrink(largest.log.size / 2)
	r.size += largest.log.size
}

// Bounds of the entries from inside one sandbox: per second, and in one burst.
const (
	rate  = 500
	burst = 4000
)

// bucket is a token bucket.
type bucket struct {
	left    float64
	at      time.Time
	refused int // number of entries refused since the last admitted one
}

// take reports whether another entry is allowed now.
func (b *bucket) take() bool {
	now := time.Now()
	b.left = min(burst, b.left+now.Sub(b.at).Seconds()*rate)
	b.at = now
	if b.left < 1 {
		b.refused++
		return false
	}
	b.left--
	return true
}

// missing returns the entry that reports refused entries. It resets refused, the number of these
// entries.
func (b *bucket) missing() Entry {
	e := Entry{
		Level: slog.LevelWarn, Logger: loggerTelemetry,
		Message: fmt.Sprintf("%d entries from inside the sandbox were dropped: they came faster than %d a second", b.refused, rate),
	}
	b.refused = 0
	return e
}
