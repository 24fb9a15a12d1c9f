package telemetry

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// interval is the time between two measurements of the sandboxes. It is also the maximum age of
// a running sandbox's latest sample.
const interval = 5 * time.Second

// Sample is the resource use of a sandbox at one time.
type Sample struct {
	Time time.Time
	// CPUPercent is the use of the sandbox's processors since the previous sample. It is 0 in
	// the first sample.
	CPUPercent float64
	Memory     uint64 // bytes that cannot be reclaimed
	Cache      uint64 // bytes of the page cache
	Disk       uint64 // bytes
	DiskTotal  uint64 // bytes
}

// Measure returns the current resource use of a sandbox. It returns false if the sandbox cannot
// be measured.
type Measure func() (engine.Usage, bool)

// run is a period during which a sandbox runs.
type run struct {
	measure Measure
	cpus    float64 // number of processors that count as 100 percent

	mu   sync.Mutex // held during a measurement; must not be locked while Registry.mu is held
	used time.Duration
	at   time.Time // time at which used was measured; zero before the first measurement
}

// sample measures the sandbox.
func (r *run) sample() (Sample, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	usage, ok := r.measure()
	if !ok {
		return Sample{}, false
	}
	now := time.Now()
	s := Sample{Time: now, Memory: usage.Memory, Cache: usage.Cache, Disk: usage.Disk, DiskTotal: usage.DiskTotal}
	if passed := now.Sub(r.at); !r.at.IsZero() && passed > 0 {
		share := (usage.CPU - r.used).Seconds() / passed.Seconds() / r.cpus
		s.CPUPercent = math.Round(min(max(share, 0), 1)*10000) / 100
	}
	r.used, r.at = usage.CPU, now
	return s, true
}

// series contains the metrics of one sandbox.
type series struct {
	run      *run     // nil: the sandbox does not run
	measured bool     // measured in this run
	samples  []Sample // oldest first
}

// Run starts to measure a sandbox, until Rest or End. cpus is the number of processors that count as
// 100 percent; 0 means the number in the options.
func (r *Registry) Run(id string, cpus float64, measure Measure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.records[id]
	if rec == nil || rec.expiry != nil || r.closed {
		return
	}
	r.restLocked(rec)
	rec.series.run, rec.series.measured = &run{measure: measure, cpus: cmp.Or(cpus, r.options.CPUs)}, false
	if r.running++; r.running == 1 {
		stop := make(chan struct{})
		r.stop = stop
		r.sampler.Go(func() { r.sampleAll(stop) })
	}
	select {
	case r.begun <- struct{}{}:
	default: // the goroutine will receive an earlier token
	}
}

// Rest stops measuring a sandbox. It keeps the series.
func (r *Registry) Rest(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.records[id]; rec != nil {
		r.restLocked(rec)
	}
}

func (r *Registry) restLocked(rec *record) {
	if rec.series.run == nil {
		return
	}
	rec.series.run = nil
	if r.running--; r.running == 0 {
		close(r.stop)
	}
}

// sampleAll measures all running sandboxes until stop is closed. It measures each sandbox when the
// sandbox begins to run, and then at each interval.
func (r *Registry) sampleAll(stop chan struct{}) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		all := false
		select {
		case <-stop:
			return
		case <-r.begun:
		case <-tick.C:
			all = true
		}
		for rec, now := range r.due(all) {
			r.sample(rec, now)
		}
	}
}

// due returns all running sandboxes if all is set. Otherwise it returns the running sandboxes that
// have not been measured in their current run.
func (r *Registry) due(all bool) map[*record]*run {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := map[*record]*run{}
	for _, rec := range r.records {
		if rec.series.run != nil && (all || !rec.series.measured) {
			due[rec] = rec.series.run
		}
	}
	return due
}

// sample measures a sandbox during the run now. If this run has not ended meanwhile, sample adds
// the result to the series of the sandbox.
func (r *Registry) sample(rec *record, now *run) {
	s, ok := now.sample()
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.series.run == now {
		rec.series.add(s)
	}
}

// Metrics returns the samples of a sandbox from the time from to the time until, inclusive. While
// the sandbox runs, its latest sample is at most 5 seconds old.
func (r *Registry) Metrics(id string, from, until time.Time) []Sample {
	r.refresh(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	found := []Sample{}
	if rec := r.records[id]; rec != nil {
		for _, s := range rec.series.samples {
			if !s.Time.Before(from) && !s.Time.After(until) {
				found = append(found, s)
			}
		}
	}
	return found
}

// Latest returns the latest sample of a sandbox. It returns false if the sandbox has no sample.
// While the sandbox runs, the sample is at most 5 seconds old.
func (r *Registry) Latest(id string) (Sample, bool) {
	r.refresh(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.records[id]
	if rec == nil || len(rec.series.samples) == 0 {
		return Sample{}, false
	}
	return rec.series.samples[len(rec.series.samples)-1], true
}

// refresh measures a running sandbox whose latest sample is too old.
func (r *Registry) refresh(id string) {
	r.mu.Lock()
	rec := r.records[id]
	var now *run
	if rec != nil && rec.series.stale() {
		now = rec.series.run
	}
	r.mu.Unlock()
	if now != nil {
		r.sample(rec, now)
	}
}

// stale reports whether a running sandbox needs a new sample.
func (s *series) stale() bool {
	return s.run != nil && (!s.measured || time.Since(s.samples[len(s.samples)-1].Time) > interval)
}

// maxSamples bounds the number of samples in a series.
const maxSamples = 4096

// steps lists ages of samples, from the highest to the lowest. For each sample, thin uses the first
// element whose age the sample exceeds. Of the samples with the same element, thin keeps one in
// each period of the length step.
var steps = []struct{ age, step time.Duration }{
	{24 * time.Hour, 30 * time.Minute}, {12 * time.Hour, 5 * time.Minute}, {6 * time.Hour, 2 * time.Minute}, {time.Hour, 30 * time.Second},
}

func (s *series) add(sample Sample) {
	s.samples, s.measured = append(s.samples, sample), true
	if len(s.samples) > maxSamples {
		s.thin(sample.Time)
	}
}

// thin removes samples to make room. Of the older samples, it keeps one in each period of a length
// from steps. If more than three quarters of maxSamples then remain, thin also removes the oldest
// samples, until three quarters of maxSamples are left.
func (s *series) thin(now time.Time) {
	var last time.Time
	s.samples = slices.DeleteFunc(s.samples, func(one Sample) bool {
		if step := stepAt(now.Sub(one.Time)); !last.IsZero() && one.Time.Truncate(step).Equal(last.Truncate(step)) {
			return true
		}
		last = one.Time
		return false
	})
	const enough = maxSamples * 3 / 4
	s.samples = slices.Delete(s.samples, 0, max(0, len(s.samples)-enough))
}

func stepAt(age time.Duration) time.Duration {
	for _, s := range steps {
		if age > s.age {
			return s.step
		}
	}
	return 1
}
