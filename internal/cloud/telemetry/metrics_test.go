package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

var longFrom, longUntil = time.Time{}, time.Now().AddDate(1000, 0, 0)

// TestMetrics checks that a sandbox is measured when it begins to run and then every 5 seconds,
// that a paused sandbox is not measured, and that its series continues when it runs again.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{CPUs: 2})
		defer r.Close()
		began := time.Now()
		asked := 0
		measure := func() (engine.Usage, bool) { // of two processors it uses one
			asked++
			return engine.Usage{CPU: time.Since(began), Memory: 7, Cache: 6, Disk: 5, DiskTotal: 4}, true
		}
		r.Run("a", 0, measure)
		if asked > 0 {
			t.Error("it was measured before it was opened")
		}
		r.Open("a")
		r.Run("a", 0, measure)
		<-time.After(2*interval + time.Second)
		got := r.Metrics("a", longFrom, longUntil)
		if len(got) != 3 || got[0].CPUPercent != 0 || got[1].CPUPercent != 50 || got[2].CPUPercent != 50 {
			t.Fatalf("got %v, want 3 samples, of 0, 50 and 50 percent", got)
		}
		got[2].Time = time.Time{}
		if want := (Sample{CPUPercent: 50, Memory: 7, Cache: 6, Disk: 5, DiskTotal: 4}); got[2] != want {
			t.Errorf("got %v, want %v", got[2], want)
		}
		if some := r.Metrics("a", began.Add(interval), began.Add(interval)); len(some) != 1 {
			t.Errorf("got %v of one moment, want its sample", some)
		}
		r.Rest("a")
		before := asked
		<-time.After(10 * interval)
		if last, ok := r.Latest("a"); asked != before || !ok || time.Since(last.Time) < 10*interval {
			t.Errorf("while it is paused it was measured %d times, and its latest sample is %v old, want none and an old one", asked-before, time.Since(last.Time))
		}
		r.Run("a", 0, measure)
		<-time.After(time.Second)
		if got := r.Metrics("a", longFrom, longUntil); len(got) != 4 || got[3].CPUPercent != 0 {
			t.Errorf("got %v after the pause, want 4 samples", got)
		}
	})
}

// TestFirstSample checks that the first caller receives a sample without waiting for the next
// interval.
func TestFirstSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		r.Open("a")
		if _, ok := r.Latest("a"); ok {
			t.Error("there is a sample before it runs")
		}
		known := false
		r.Run("a", 0, func() (engine.Usage, bool) { return engine.Usage{}, known })
		synctest.Wait()
		if got := r.Metrics("a", longFrom, longUntil); len(got) != 0 {
			t.Errorf("got %v of what is not known, want nothing", got)
		}
		known = true
		if _, ok := r.Latest("a"); !ok {
			t.Error("there is no sample of what runs")
		}
		if got := r.Metrics("a", longFrom, longUntil); len(got) != 1 {
			t.Errorf("got %v, want the one sample", got)
		}
		if got := r.Metrics("b", longFrom, longUntil); got == nil || len(got) > 0 {
			t.Errorf("got %#v of nobody, want an empty list", got)
		}
	})
}

// TestThinning checks that a long series keeps its newest part unchanged, and fewer samples of its
// older parts.
func TestThinning(t *testing.T) {
	var s series
	began := time.Now()
	now := began
	for now.Before(began.Add(30 * 24 * time.Hour)) {
		s.add(Sample{Time: now})
		now = now.Add(interval)
	}
	n := len(s.samples)
	if n > maxSamples || n < maxSamples/4 {
		t.Errorf("it has %d samples, want at most %d", n, maxSamples)
	}
	if first := s.samples[0].Time; now.Sub(first) < 20*24*time.Hour {
		t.Errorf("the first one is of %v ago, want weeks", now.Sub(first))
	}
	for i := n - 600; i < n-1; i++ {
		if apart := s.samples[i+1].Time.Sub(s.samples[i].Time); apart != interval {
			t.Fatalf("new samples are %v apart, want %v", apart, interval)
		}
	}
}
