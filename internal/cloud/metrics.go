package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxScrapers bounds the connections to the address of the metrics.
const maxScrapers = 64

// metricsServer serves /readyz and /metrics on an address of its own, which is not for clients of
// the API. Its answers name no sandbox, and its requests need no API key.
type metricsServer struct {
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup
	counts   requestCounts
}

// openMetrics listens on the address of the metrics.
func (s *starting) openMetrics(ctx context.Context) error {
	o := s.options.Service
	if o == nil || o.MetricsAddress == "" {
		return nil
	}
	inner, err := listenTCP(ctx, o.MetricsAddress)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	s.metrics = &metricsServer{listener: limited(inner, maxScrapers, s.options), counts: requestCounts{of: map[requestKey]uint64{}, seconds: map[string]*histogram{}}}
	s.then(s.metrics.listener.Close)
	return nil
}

// serveMetrics answers requests for /readyz and /metrics until the end of shutDown. By that time,
// /readyz has reported that the cloud is ending.
func (c *Cloud) serveMetrics() {
	if c.metrics == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := c.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ready\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		text := c.gauges()
		_, _ = w.Write(c.metrics.counts.append(text))
	})
	admitted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connlimit.Admit(r.Context())
		mux.ServeHTTP(w, r)
	})
	m := c.metrics
	m.server = &http.Server{
		Handler: connlimit.Handler(admitted), ConnContext: connlimit.ConnContext, MaxHeaderBytes: maxHeader,
		ReadTimeout: headerDeadline, WriteTimeout: headerDeadline, IdleTimeout: idleDeadline,
		ErrorLog: slog.NewLogLogger(c.options.Logger.Handler(), slog.LevelDebug),
	}
	m.serving.Go(func() { _ = m.server.Serve(m.listener) }) // until close
}

// counting returns a function that counts the answered requests. It returns nil if m is nil.
func (m *metricsServer) counting(operation func(*http.Request) string) func(*http.Request, requestlog.Entry) {
	if m == nil {
		return nil
	}
	return func(r *http.Request, e requestlog.Entry) { m.counts.add(operation, r, e) }
}

// close ends the server and its connections. m may be nil.
func (m *metricsServer) close() error {
	if m == nil {
		return nil
	}
	err := m.server.Close()
	m.serving.Wait()
	return err
}

// MetricsAddress returns the address of /readyz and /metrics. It returns nil if they are not
// served.
func (c *Cloud) MetricsAddress() net.Addr {
	if c.metrics == nil {
		return nil
	}
	return c.metrics.listener.Addr()
}

// ready returns an error if the cloud cannot create sandboxes now.
func (c *Cloud) ready() error {
	switch {
	case c.handlers.stopped() || c.life.Err() != nil:
		return errors.New("the server is ending")
	case c.Err() != nil:
		return fmt.Errorf("the server can have no more sandboxes: %w", c.Err())
	case c.keyFiles.Count() == 0:
		return errors.New("the files of API keys have no valid key")
	}
	return nil
}

// gauges returns the current values in the text format of Prometheus.
func (c *Cloud) gauges() []byte {
	var text []byte
	running, paused := c.sandboxes.Count()
	text = describeMetric(text, "e2bctl_sandboxes", "gauge", "Sandboxes, by state.")
	text = fmt.Appendf(text, "e2bctl_sandboxes{state=\"running\"} %d\ne2bctl_sandboxes{state=\"paused\"} %d\n", running, paused)
	one := func(name, help string, value int64) {
		text = describeMetric(text, name, "gauge", help)
		text = fmt.Appendf(text, "%s %d\n", name, value)
	}
	one("e2bctl_sandboxes_max", "The number of sandboxes that may run at once.", int64(c.sandboxes.MaxSandboxes()))
	one("e2bctl_connections", "Open connections of clients.", int64(c.limit.Count()))
	one("e2bctl_connections_max", "The number of connections of clients that may be open at once.", int64(c.limit.Max()))
	one("e2bctl_api_keys", "Valid API keys in the files of keys.", int64(c.keyFiles.Count()))
	if c.tlsFiles != nil {
		one("e2bctl_tls_certificate_expiry_seconds", "The time until which the certificate is valid, in seconds since 1970.", c.tlsFiles.NotAfter().Unix())
	}
	one("go_goroutines", "Goroutines of the server.", int64(runtime.NumGoroutine()))
	return text
}

func describeMetric(text []byte, name, kind, help string) []byte {
	return fmt.Appendf(text, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind)
}

// requestCounts counts requests. The labels of the counts have few values, no matter which requests
// clients and programs in sandboxes send.
type requestCounts struct {
	mu      sync.Mutex
	of      map[requestKey]uint64
	seconds map[string]*histogram // by operation of the API
}

type requestKey struct{ operation, code string }

// buckets are the upper bounds of the buckets of durations, in seconds.
var buckets = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// histogram counts durations by bucket. The last count is the number of durations above all
// buckets.
type histogram struct {
	counts [len(buckets) + 1]uint64
	sum    float64
}

// Operations of requests that are not for the API.
const (
	toEnvd    = "sandbox-envd"
	toCode    = "sandbox-code"
	toProgram = "sandbox-port"
	toOthers  = "other" // refused requests, and requests for /health
)

// add counts a request that was answered. It does not measure the duration of requests to
// sandboxes, because they may be streams that last as long as the sandbox.
func (c *requestCounts) add(operation func(*http.Request) string, r *http.Request, e requestlog.Entry) {
	key := requestKey{toOthers, "none"}
	switch {
	case e.Sandbox == "":
		if name := operation(r); name != "" {
			key.operation = name
		}
	case e.Port == protocol.PortEnvd:
		key.operation = toEnvd
	case protocol.OwnPort(e.Port):
		key.operation = toCode
	default:
		key.operation = toProgram
	}
	if e.Status >= 100 && e.Status < 600 {
		key.code = strconv.Itoa(e.Status/100) + "xx"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[key]++
	if e.Sandbox != "" || key.operation == toOthers {
		return
	}
	h := c.seconds[key.operation]
	if h == nil {
		h = &histogram{}
		c.seconds[key.operation] = h
	}
	seconds := e.Duration.Seconds()
	at, _ := slices.BinarySearch(buckets[:], seconds)
	h.counts[at]++
	h.sum += seconds
}

// append appends the counts in the text format of Prometheus.
func (c *requestCounts) append(text []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	text = describeMetric(text, "e2bctl_requests_total", "counter", "Answered requests, by operation of the API or part of a sandbox, and class of the status.")
	for _, key := range slices.SortedFunc(maps.Keys(c.of), func(a, b requestKey) int {
		return cmp.Or(strings.Compare(a.operation, b.operation), strings.Compare(a.code, b.code))
	}) {
		text = fmt.Appendf(text, "e2bctl_requests_total{operation=%q,code=%q} %d\n", key.operation, key.code, c.of[key])
	}
	text = describeMetric(text, "e2bctl_request_duration_seconds", "histogram", "The duration of requests to the API.")
	for _, operation := range slices.Sorted(maps.Keys(c.seconds)) {
		h, total := c.seconds[operation], uint64(0)
		for i, count := range h.counts {
			total += count
			bound := "+Inf"
			if i < len(buckets) {
				bound = strconv.FormatFloat(buckets[i], 'g', -1, 64)
			}
			text = fmt.Appendf(text, "e2bctl_request_duration_seconds_bucket{operation=%q,le=%q} %d\n", operation, bound, total)
		}
		text = fmt.Appendf(text, "e2bctl_request_duration_seconds_sum{operation=%q} %g\ne2bctl_request_duration_seconds_count{operation=%[1]q} %[3]d\n", operation, h.sum, total)
	}
	return text
}
