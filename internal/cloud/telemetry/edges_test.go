package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// TestTimesIdentifyEntries checks that two entries of one log never have the same time.
func TestTimesIdentifyEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		r.Open("a")
		begun := time.Now()
		for range 3 {
			r.Add("a", Entry{Level: slog.LevelInfo, Message: "m"})
		}
		<-time.After(1)
		r.Add("a", Entry{Level: slog.LevelInfo, Message: "m"})
		got, _ := r.Logs("a", Query{})
		for i, e := range got {
			if !e.Time.Equal(begun.Add(time.Duration(i))) {
				t.Errorf("entry %d is of %v, want %v", i, e.Time, begun.Add(time.Duration(i)))
			}
		}
	})
}

// TestShrink checks which entries a log drops for a size, and the entry that takes their place.
func TestShrink(t *testing.T) {
	begun := time.Now()
	made := func() *log {
		var l log
		for i := range 4 {
			l.add(Entry{Time: begun.Add(time.Duration(i) * time.Second), Message: fmt.Sprint(i), Logger: "l", Fields: []Field{{"name", "value"}}})
		}
		return &l
	}
	each := made().size / 4
	if each != 96+2+32+9 {
		t.Errorf("an entry counts as %d bytes, want its texts and 128", each)
	}
	for size, left := range map[int]int{4 * each: 4, 4*each - 1: 3, 2 * each: 2, each + 1: 1, each - 1: 0, 0: 0} {
		l := made()
		all := l.entries
		l.shrink(size)
		dropped := 4 - left
		if len(l.entries) != left || l.size != left*each || l.dropped != dropped {
			t.Errorf("%d bytes: got %d entries of %d bytes, and %d dropped, want %d", size, len(l.entries), l.size, l.dropped, left)
		}
		if !cmp.Equal(all[:dropped], make([]Entry, dropped)) {
			t.Errorf("%d bytes: the texts of dropped entries are kept", size)
		}
		l.shrink(size)
		e := l.missing()
		if (e == nil) != (dropped == 0) {
			t.Errorf("%d bytes: got the entry %v for %d dropped ones", size, e, dropped)
		}
		if e == nil {
			continue
		}
		want := Entry{Time: begun.Add(time.Duration(dropped-1) * time.Second), Level: slog.LevelWarn, Logger: "log", Message: fmt.Sprintf("%d earlier entries were dropped: the log of a sandbox holds 8 MiB, and those of all 128", dropped)}
		if diff := cmp.Diff(want, *e); diff != "" {
			t.Errorf("%d bytes (-want +got):\n%s", size, diff)
		}
	}
}

// TestPages checks where a page of a log ends: at its limit, at its bound of bytes, and, if it must not
// divide a millisecond, before the last one.
func TestPages(t *testing.T) {
	begun := time.Now().Truncate(time.Second)
	var l log
	for i, at := range []time.Duration{0, 1, 2, time.Millisecond, time.Millisecond + 1, 2 * time.Millisecond} {
		l.add(Entry{Time: begun.Add(at), Message: fmt.Sprint(i)})
	}
	var large log
	each := (&Entry{}).size() + maxMessage
	for range maxFound/each + 1 {
		large.add(Entry{Message: strings.Repeat("x", maxMessage)})
	}
	var one log
	one.add(Entry{Message: strings.Repeat("x", maxFound)})
	var gap log
	for i := range 3 {
		gap.add(Entry{Time: begun.Add(time.Duration(i)), Level: slog.LevelError, Message: fmt.Sprint(i)})
	}
	gap.shrink(2 * gap.size / 3)
	for name, tt := range map[string]struct {
		l    *log
		q    Query
		want int
	}{
		"all":                   {&l, Query{}, 6},
		"a limit":               {&l, Query{Limit: 4}, 4},
		"a whole millisecond":   {&l, Query{Limit: 3, Whole: true}, 3},
		"part of one is left":   {&l, Query{Limit: 4, Whole: true}, 3},
		"only part of one":      {&l, Query{Limit: 2, Whole: true}, 2},
		"all fit":               {&l, Query{Limit: 6, Whole: true}, 6},
		"the bound of bytes":    {&large, Query{}, maxFound / each},
		"one above the bound":   {&one, Query{}, 1},
		"the gap counts":        {&gap, Query{Limit: 1}, 1},
		"the gap is a warning":  {&gap, Query{Level: slog.LevelError}, 2},
		"the gap has a time":    {&gap, Query{From: begun.Add(1)}, 2},
		"the gap, newest first": {&gap, Query{Backward: true}, 3},
		"the newest without it": {&gap, Query{Backward: true, Limit: 2}, 2},
		"the gap has a message": {&gap, Query{Search: "EARLIER"}, 1},
	} {
		if got := tt.l.find(tt.q); len(got) != tt.want {
			t.Errorf("%s: got %d entries, want %d", name, len(got), tt.want)
		}
	}
}

// TestCPUPercent checks the share of the processors that a sample reports.
func TestCPUPercent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var usage engine.Usage
		known := true
		r := &run{measure: func() (engine.Usage, bool) { return usage, known }, cpus: 4}
		for i, step := range []struct {
			passed, used time.Duration
			known        bool
			want         float64
		}{
			{time.Second, time.Hour, true, 0}, // before the run, too
			{time.Second, time.Second, true, 25},
			{10 * time.Second, time.Second, true, 2.5},
			{3 * time.Second, time.Second, true, 8.33},
			{time.Second, 5 * time.Second, true, 100},
			{time.Second, -time.Second, true, 0},
			{0, time.Second, true, 0},
			{time.Second, time.Second, false, 0},
			{time.Second, time.Second, true, 25}, // since the latest known one
		} {
			<-time.After(step.passed)
			usage.CPU, known = usage.CPU+step.used, step.known
			s, ok := r.sample()
			if ok != step.known || s.CPUPercent != step.want || ok && !s.Time.Equal(time.Now()) {
				t.Errorf("%d: got %+v, known %v, want %v percent", i, s, ok, step.want)
			}
		}
	})
}

// TestProcessorsOfRun checks how many processors count as 100 percent.
func TestProcessorsOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct{ ofAll, ofOne, want float64 }{{0, 0, 100}, {-1, 0, 100}, {4, 0, 25}, {4, 2, 50}, {0, 2, 50}} {
			r := New(Options{CPUs: tt.ofAll})
			r.Open("a")
			begun := time.Now()
			r.Run("a", tt.ofOne, func() (engine.Usage, bool) { return engine.Usage{CPU: time.Since(begun)}, true })
			<-time.After(interval + 1)
			if s, ok := r.Latest("a"); !ok || s.CPUPercent != tt.want {
				t.Errorf("%+v: got %v percent", tt, s.CPUPercent)
			}
			r.Close()
		}
	})
}

// TestSamplesWhenStale checks that a request measures a running sandbox only if its latest sample is
// older than the interval, and that a measurement of an earlier run is dropped.
func TestSamplesWhenStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := series{run: &run{}, measured: true, samples: []Sample{{Time: time.Now()}}}
		<-time.After(interval)
		if s.stale() {
			t.Errorf("a sample of %v ago is too old", interval)
		}
		<-time.After(1)
		if !s.stale() {
			t.Error("an older sample is recent")
		}
		s.measured = false
		s.samples[0].Time = time.Now()
		if !s.stale() {
			t.Error("the sample of an earlier run is of this one")
		}
		s.run = nil
		if s.stale() {
			t.Error("a sandbox that does not run needs a sample")
		}

		r := New(Options{})
		defer r.Close()
		r.Open("a")
		measuring := make(chan struct{})
		r.Run("a", 0, func() (engine.Usage, bool) { <-measuring; return engine.Usage{}, true })
		synctest.Wait()
		r.Run("a", 0, func() (engine.Usage, bool) { <-measuring; return engine.Usage{}, true }) // in place of the first
		r.Rest("a")
		r.Rest("a")
		close(measuring)
		synctest.Wait()
		if got, ok := r.Latest("a"); ok {
			t.Errorf("got %v of a run that had ended", got)
		}
		if r.running != 0 {
			t.Errorf("%d sandboxes count as running", r.running)
		}
	})
}

// TestSteps checks at which age the samples of a series become fewer, and how many of them stay.
func TestSteps(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0: 1, time.Hour: 1, time.Hour + 1: 30 * time.Second, 6 * time.Hour: 30 * time.Second, 6*time.Hour + 1: 2 * time.Minute,
		12*time.Hour + 1: 5 * time.Minute, 24 * time.Hour: 5 * time.Minute, 24*time.Hour + 1: 30 * time.Minute,
	} {
		if got := stepAt(age); got != want {
			t.Errorf("%v ago: got one in %v, want one in %v", age, got, want)
		}
	}
	now := time.Now()
	filled := func(n int) *series {
		s := &series{}
		for i := range n {
			s.add(Sample{Time: now.Add(time.Duration(i))})
		}
		return s
	}
	for n, want := range map[int]int{maxSamples: maxSamples, maxSamples + 1: maxSamples * 3 / 4} {
		if got := filled(n).samples; len(got) != want || !got[want-1].Time.Equal(now.Add(time.Duration(n-1))) {
			t.Errorf("after %d samples of an hour there are %d, want the latest %d", n, len(got), want)
		}
	}
	at := now.Truncate(24 * time.Hour)
	s := &series{}
	for _, minute := range []int{0, 1, 29, 30, 31, 60, 61} {
		s.samples = append(s.samples, Sample{Time: at.Add(time.Duration(minute) * time.Minute)})
	}
	s.thin(at.Add(30 * time.Hour))
	var left []int
	for _, one := range s.samples {
		left = append(left, int(one.Time.Sub(at)/time.Minute))
	}
	if !slices.Equal(left, []int{0, 30, 60}) {
		t.Errorf("of a day ago are left %v, want one of each half hour", left)
	}
}

// TestBucket checks the burst and the rate of entries from inside.
func TestBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bucket{left: burst, at: time.Now()}
		taken := func() (n int) {
			for b.take() {
				n++
			}
			return n
		}
		for i, step := range []struct {
			after time.Duration
			want  int
		}{{0, burst}, {time.Second, rate}, {time.Second/rate - 1, 0}, {1, 1}, {time.Hour, burst}} {
			<-time.After(step.after)
			if got := taken(); got != step.want {
				t.Errorf("%d: got %d entries, want %d", i, got, step.want)
			}
			if b.refused != i+1 {
				t.Errorf("%d: got %d refused, want %d", i, b.refused, i+1)
			}
		}
		e := b.missing()
		if e.Level != slog.LevelWarn || e.Logger != "log" || !strings.HasPrefix(e.Message, "5 entries from inside") || b.refused != 0 {
			t.Errorf("got %+v, and %d refused after it", e, b.refused)
		}
	})
}

// TestClosed checks that a closed registry begins nothing, and keeps nothing.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		measured := 0
		measure := func() (engine.Usage, bool) { measured++; return engine.Usage{}, true }
		for _, id := range []string{"runs", "ended"} {
			r.Open(id)
			r.Run(id, 0, measure)
			r.Add(id, Entry{Message: "m"})
		}
		r.End("ended")
		synctest.Wait()
		before := measured
		r.Close()
		r.Close()
		for _, id := range []string{"runs", "ended", "new"} {
			r.Open(id)
			r.Run(id, 0, measure)
			r.Add(id, Entry{Message: "m"})
			r.End(id)
			r.Rest(id)
			if _, ok := r.Logs(id, Query{}); ok || len(r.Metrics(id, longFrom, longUntil)) > 0 {
				t.Errorf("%s: there is a log or a sample", id)
			}
			if _, ok := r.Latest(id); ok {
				t.Errorf("%s: there is a sample", id)
			}
		}
		<-time.After(2 * kept)
		if measured != before || r.running != 0 || r.size != 0 || len(r.records)+len(r.ended) != 0 {
			t.Errorf("got %d measurements, %d runs, %d bytes of %d records and %d ended ones", measured-before, r.running, r.size, len(r.records), len(r.ended))
		}
	})
}

// TestEndedOnce checks that an ended sandbox is listed once, until its log is removed or it is opened
// again, and that the bytes of all logs are those of the logs.
func TestEndedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{})
		defer r.Close()
		check := func(when string, ended ...string) {
			t.Helper()
			r.mu.Lock()
			defer r.mu.Unlock()
			size := 0
			for _, rec := range r.records {
				size += rec.log.size
			}
			if !slices.Equal(r.ended, ended) || r.size != size {
				t.Errorf("%s: got the ended %q and %d bytes, want %q and %d", when, r.ended, r.size, ended, size)
			}
		}
		for _, id := range []string{"a", "b", "c"} {
			r.Open(id)
			r.Add(id, Entry{Message: id})
			r.End(id)
			r.End(id)
		}
		r.End("nobody")
		r.Rest("nobody")
		check("all ended", "a", "b", "c")
		r.Open("b")
		check("one is open again", "a", "c")
		r.mu.Lock()
		r.removeLocked("a")
		r.removeLocked("a")
		r.mu.Unlock()
		check("one is removed", "c")
		<-time.After(kept + 1)
		check("after an hour")
		if _, ok := r.Logs("b", Query{}); !ok || len(r.records) != 1 {
			t.Errorf("got %d records, want that of the open sandbox", len(r.records))
		}
	})
}

// TestInsideFields checks which fields of a line from inside are those of the entry, and that an
// attribute of a group names no sandbox.
func TestInsideFields(t *testing.T) {
	r := New(Options{})
	defer r.Close()
	r.Open("a")
	for _, name := range []string{"process", "kernel", "log", ""} {
		r.Inside("a", fmt.Appendf(nil, `{"time":"x","timestamp":"y","message":"z","level":"DEBUG","msg":"m","logger":%q,"null":null,"map":{"k":true},"yes":true}`, name))
	}
	r.Inside("a", []byte(`{"msg":"no level"}`))
	l := r.Logger(nil, "l")
	all := r.Logger(slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug})), "l")
	if l.Enabled(t.Context(), slog.LevelDebug) || !l.Enabled(t.Context(), slog.LevelInfo) || !all.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("the levels of the next logger are not kept")
	}
	l.WithGroup("g").InfoContext(t.Context(), "grouped", "sandbox", "a")
	l.WithGroup("g").With("sandbox", "a").InfoContext(t.Context(), "grouped")
	l.WithGroup("").With("sandbox", "a").WithGroup("g").With("x", 1).WithGroup("h").InfoContext(t.Context(), "groups", "y", 2)
	got, _ := r.Logs("a", Query{Level: slog.LevelDebug})
	var want []Entry
	for _, name := range []string{"process", "kernel", "envd", "envd"} {
		want = append(want, Entry{Level: slog.LevelDebug, Logger: name, Message: "m", Fields: []Field{{"map", `{"k":true}`}, {"null", "<nil>"}, {"yes", "true"}}})
	}
	want = append(want, Entry{Level: slog.LevelInfo, Logger: "l", Message: "groups", Fields: []Field{{"g.x", "1"}, {"g.h.y", "2"}}})
	for i := range got {
		got[i].Time = time.Time{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
