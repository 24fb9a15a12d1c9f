//go:build linux

package envd

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// usage is the answer of /metrics.
type usage struct {
	Timestamp   int64   `json:"ts"`
	CPUCount    uint32  `json:"cpu_count"`
	CPUUsed     float64 `json:"cpu_used_pct"`
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

// metrics measures the sandbox by adding up the processes in /proc. It cannot use the kernel's
// totals in /proc, because these are the totals of the host.
type metrics struct {
	memoryUse func() (used, cache uint64, known bool)

	mu      sync.Mutex
	memory  uint64 // memory limit of the sandbox
	cpus    uint32
	sampled time.Time
	used    time.Duration // processor time until the time sampled
}

func newMetrics(o *Options) *metrics {
	m := &metrics{memory: o.MemoryBytes, memoryUse: o.MemoryUse, cpus: uint32(o.CPUs), sampled: time.Now()}
	if m.memory == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err == nil {
			m.memory = uint64(info.Totalram) * uint64(info.Unit)
		}
	}
	if m.cpus == 0 {
		m.cpus = uint32(runtime.NumCPU())
	}
	if m.memoryUse == nil {
		m.memoryUse = func() (used, cache uint64, known bool) { return }
	}
	return m
}

// Resize changes the memory limit and the number of processors that metrics and errors have.
func (s *Server) Resize(memory uint64, cpus int) {
	s.processes.memory.SetLimit(memory)
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	s.metrics.memory, s.metrics.cpus = memory, uint32(cpus)
}

// serveResize calls Resize. Only the local cloud requests this.
func (s *Server) serveResize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	memory, err := strconv.ParseUint(query.Get("memory"), 10, 64)
	cpus, bad := strconv.ParseUint(query.Get("cpus"), 10, 16)
	if err := errors.Join(err, bad); err != nil || memory == 0 || cpus == 0 {
		writeError(w, http.StatusBadRequest, "memory and cpus must be positive numbers")
		return
	}
	s.Resize(memory, int(cpus))
	writeAnswer(w, struct{}{})
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	sample, err := s.metrics.sample()
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeAnswer(w, sample)
}

func (m *metrics) sample() (usage, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs("/", &disk); err != nil {
		return usage{}, fmt.Errorf("envd: measure the disk: %w", err)
	}
	total := disk.Blocks * uint64(disk.Bsize)
	used, resident, err := processTotals()
	if err != nil {
		return usage{}, err
	}
	memory, cache, known := m.memoryUse()
	if !known {
		memory = resident
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	return usage{
		Timestamp:   now.Unix(),
		CPUCount:    m.cpus,
		CPUUsed:     m.percentLocked(now, used),
		MemTotalMiB: m.memory >> 20,
		MemUsedMiB:  memory >> 20,
		MemTotal:    m.memory,
		MemUsed:     memory,
		MemCache:    cache,
		DiskUsed:    total - disk.Bavail*uint64(disk.Bsize),
		DiskTotal:   total,
	}, nil
}

// percentLocked returns the use of all processors since the previous sample, in percent with two
// decimals.
func (m *metrics) percentLocked(now time.Time, used time.Duration) float64 {
	spent, passed := used-m.used, now.Sub(m.sampled)
	m.sampled, m.used = now, used
	if passed <= 0 || spent <= 0 {
		return 0
	}
	share := float64(spent) / float64(passed) / float64(m.cpus)
	return math.Round(min(share, 1)*10000) / 100
}

// processTotals returns the processor time and the private memory of all processes. The time of
// a process includes its reaped children.
func processTotals() (used time.Duration, resident uint64, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return 0, 0, fmt.Errorf("envd: measure processes: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return 0, 0, fmt.Errorf("envd: measure processes: %w", err)
	}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		used += processorTime(filepath.Join("/proc", name, "stat"))
		resident += privateMemory(filepath.Join("/proc", name, "statm"))
	}
	return used, resident, nil
}

// processorTime returns the sum of utime, stime, cutime and cstime in a stat file. It returns 0
// if the process has ended.
func processorTime(path string) time.Duration {
	const tick = 10 * time.Millisecond // one tick of USER_HZ, which is 100 on every Linux
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	// The name is in parentheses and may contain any character. Field 3 follows after it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return 0
	}
	var used time.Duration
	for _, field := range fields[11:15] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		used += time.Duration(ticks) * tick
	}
	return used
}

// privateMemory returns the resident memory in a statm file, without shared memory.
func privateMemory(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	var size, resident, shared uint64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil || shared > resident {
		return 0
	}
	return (resident - shared) * uint64(os.Getpagesize())
}
