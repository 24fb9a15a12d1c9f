package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// Usage is the resource usage of a sandbox at one time.
type Usage struct {
	Time time.Time `json:"timestamp"`
	CPUs int       `json:"cpuCount"`
	// CPUPercent is the usage of the sandbox's processors, in percent of all of them together.
	CPUPercent       float64 `json:"cpuUsedPct"`
	MemoryUsedBytes  int64   `json:"memUsed"`
	MemoryTotalBytes int64   `json:"memTotal"`
	// MemoryCacheBytes is the memory used for caches of files. MemoryUsedBytes does not include
	// it.
	MemoryCacheBytes int64 `json:"memCache"`
	DiskUsedBytes    int64 `json:"diskUsed"`
	DiskTotalBytes   int64 `json:"diskTotal"`
}

// MetricsParams selects metrics. The zero value selects all.
type MetricsParams struct {
	// From and Until limit the time, to the second; zero means no limit.
	From, Until time.Time
}

// Metrics returns the metrics of a sandbox, running or paused, oldest first. A service may have no
// metrics of a sandbox that has just started, and fewer for times long ago. Metrics returns
// [ErrNotFound] when there is no such sandbox.
func (s *SandboxService) Metrics(ctx context.Context, id string, p *MetricsParams) ([]Usage, error) {
	path, err := sandboxPath(id, "/metrics")
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if p != nil && !p.From.IsZero() {
		query.Set("start", strconv.FormatInt(p.From.Unix(), 10))
	}
	if p != nil && !p.Until.IsZero() {
		query.Set("end", strconv.FormatInt(p.Until.Unix(), 10))
	}
	usage, _, err := list[Usage](ctx, s.client, "a sample of metrics", call{method: http.MethodGet, path: path, query: query})
	return usage, err
}

// maxMetrics is the largest number of sandboxes in one request for metrics.
const maxMetrics = 100

// MetricsOf returns the latest metrics of several sandboxes, by sandbox id. The result lacks
// sandboxes that do not exist or have no metrics yet.
func (s *SandboxService) MetricsOf(ctx context.Context, ids []string) (map[string]Usage, error) {
	for _, id := range ids {
		if _, err := sandboxPath(id, ""); err != nil {
			return nil, err
		}
	}
	all := make(map[string]Usage, len(ids))
	for len(ids) > 0 {
		some := ids[:min(len(ids), maxMetrics)]
		ids = ids[len(some):]
		var answer struct {
			Sandboxes map[string]*Usage `json:"sandboxes"`
		}
		query := url.Values{"sandbox_ids": {strings.Join(some, ",")}}
		if _, err := s.client.do(ctx, call{method: http.MethodGet, path: "/sandboxes/metrics", query: query}, &answer); err != nil {
			return nil, err
		}
		for id, m := range answer.Sandboxes {
			if m == nil {
				return nil, fmt.Errorf("api: the service's answer has metrics of %s that are null", clip.Line(id, 128))
			}
			all[id] = *m
		}
	}
	return all, nil
}
