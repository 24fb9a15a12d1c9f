package control

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// RateLimit bounds the requests with one API key. Zero fields have default values. Only a client
// that repeats requests endlessly reaches the default limits.
type RateLimit struct {
	PerSecond int // average number of requests in a second
	Burst     int // maximum number of requests at once
}

// Defaults of [RateLimit].
const (
	DefaultPerSecond = 10_000
	DefaultBurst     = 20_000
)

func (l RateLimit) withDefaults() RateLimit {
	if l.PerSecond <= 0 {
		l.PerSecond = DefaultPerSecond
	}
	if l.Burst <= 0 {
		l.Burst = DefaultBurst
	}
	return l
}

// bucket is a token bucket. A request takes one token.
type bucket struct {
	limit RateLimit

	mu     sync.Mutex
	tokens float64
	at     time.Time // time of the latest computation of tokens
}

func newBucket(l RateLimit) *bucket {
	return &bucket{limit: l, tokens: float64(l.Burst), at: time.Now()}
}

// take takes a token and returns 0. If the bucket has no token, take returns the time until the
// next one.
func (b *bucket) take() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, rate := time.Now(), float64(b.limit.PerSecond)
	b.tokens = min(b.tokens+now.Sub(b.at).Seconds()*rate, float64(b.limit.Burst))
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	return time.Duration((1 - b.tokens) / rate * float64(time.Second))
}

// limited answers 429 to a request above the rate limit, and reports whether it did. It must be
// called before the request has any effect, because clients repeat a request after Retry-After.
func (s *Service) limited(w http.ResponseWriter, key *apiKey) bool {
	wait := key.rate.take()
	if wait == 0 {
		return false
	}
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	h := w.Header()
	h.Set("Retry-After", seconds)
	h.Set("RateLimit-Limit", strconv.Itoa(s.keys.limit.Burst))
	h.Set("RateLimit-Remaining", "0")
	h.Set("RateLimit-Reset", seconds)
	writeJSON(w, http.StatusTooManyRequests, &apiError{Code: http.StatusTooManyRequests, Message: "Rate limit exceeded: wait as long as Retry-After says"})
	return true
}
