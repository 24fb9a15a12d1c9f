package control

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/telemetry"
)

// maxMeasured bounds the number of sandboxes in a request for metrics.
const maxMeasured = 100

// metric is a sample of a sandbox's resource use.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       uint64    `json:"memUsed"`
	MemTotal      uint64    `json:"memTotal"`
	MemCache      uint64    `json:"memCache"`
	DiskUsed      uint64    `json:"diskUsed"`
	DiskTotal     uint64    `json:"diskTotal"`
}

func (s *Service) metricOf(sample telemetry.Sample, sb lifecycle.Sandbox) metric {
	has := s.has(sb)
	return metric{
		Timestamp: sample.Time.UTC(), TimestampUnix: sample.Time.Unix(),
		CPUCount: has.CPUs, CPUUsedPct: sample.CPUPercent,
		MemUsed: sample.Memory, MemTotal: uint64(has.MemoryMB) << 20, MemCache: sample.Cache,
		DiskUsed: sample.Disk, DiskTotal: sample.DiskTotal,
	}
}

// metrics answers with the samples of a sandbox, oldest first.
func (s *Service) metrics(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	from, err := second(query, "start", 0)
	if err != nil {
		return err
	}
	const never = 1<<40 - 1
	until, err := second(query, "end", never)
	if err != nil {
		return err
	}
	if from > until {
		return invalid("start must not be after end")
	}
	sb, err := s.find(r)
	if err != nil {
		return err
	}
	samples := s.telemetry.Metrics(sb.ID, time.Unix(from, 0), time.Unix(until, 999_999_999))
	all := make([]metric, len(samples))
	for i, sample := range samples {
		all[i] = s.metricOf(sample, sb)
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

// metricsOf answers with the latest sample of each of several sandboxes. It leaves out
// sandboxes that do not exist or were never measured.
func (s *Service) metricsOf(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	ids := strings.Split(query.Get("sandbox_ids"), ",")
	if ids[0] == "" || len(ids) > maxMeasured {
		return invalid("sandbox_ids must be the ids of 1 to %d sandboxes, separated by commas", maxMeasured)
	}
	latest := map[string]metric{}
	for _, id := range ids {
		if id == "" || strings.ContainsFunc(id, notLowerAlphanumeric) {
			return invalid("sandbox_ids must be ids of sandboxes")
		}
		if sample, ok := s.telemetry.Latest(id); ok {
			sb, _ := s.sandboxes.Get(id) // if the sandbox has ended meanwhile, its engine and resources are unknown
			latest[id] = s.metricOf(sample, sb)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": latest})
	return nil
}

// second reads a time of the query in seconds. It returns fallback if the parameter is absent.
func second(query *query, name string, fallback int64) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, invalid("%s must be a time in seconds since 1970", name)
	}
	return n, nil
}
